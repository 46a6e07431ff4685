// train WORKLOAD.toml: trains a network on a data set, and leaves a directory with its record.
// mpirun -np N train WORKLOAD.toml: the same on N ranks, each with its part of every batch.

#include "train/on_cpu.hpp"
#include "train/on_cuda.hpp"
#include "train/simulate.hpp"
#include "train/tune.hpp"

#include <cairn/comm/checked_communicator.hpp>
#include <cairn/comm/collectives/selection.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/describe_needs.hpp>
#include <cairn/train/machine_file.hpp>
#include <cairn/train/metrics_log.hpp>
#include <cairn/train/process.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>

namespace {

// Kernel choices of this machine, shared by all runs; CAIRN_CACHE names another folder.
std::filesystem::path autotune_file() {
    if (const char* folder = std::getenv("CAIRN_CACHE")) return std::filesystem::path(folder) / "autotune.tsv";
    if (const char* folder = std::getenv("XDG_CACHE_HOME"))
        return std::filesystem::path(folder) / "cairn" / "autotune.tsv";
    if (const char* home = std::getenv("HOME"))
        return std::filesystem::path(home) / ".cache" / "cairn" / "autotune.tsv";
    return {};
}

// A cache that cannot be read or written costs time, not the run.
template <class Action>
void try_cache(const char* what, Action&& action) {
    try {
        action();
    } catch (const std::exception& e) {
        std::cerr << "warning: " << what << ": " << e.what() << '\n';
    }
}

void warn_of_contended_autotune(const std::filesystem::path& cache) {
    const auto all = cairn::autotune_cache::global().entries();
    const auto disturbed = std::count_if(all.begin(), all.end(), [](const auto& e) { return e.second.disturbed; });
    if (disturbed > 0)
        std::cerr
            << "warning: " << disturbed << " of " << all.size()
            << " kernel choices were measured while other programs had the processors, and may be slow ones; remove "
            << cache.string() << " when the machine is quiet, and they are measured again\n";
}

// Throws where MPI cannot be handed memory of GPUs: parallel.transport = mpi.
void require_mpi_between_gpus() {
#if CAIRN_HAS_MPI
    const std::string why = cairn::why_mpi_takes_no_gpu_memory();
#else
    const std::string why = "this program was built without MPI";
#endif
    cairn::require(
        why.empty(), "parallel.transport = mpi hands memory of GPUs to MPI, but ", why,
        "; run with an MPI that was built with CUDA (Open MPI: ompi_info --parsable | grep cuda_support), or take "
        "parallel.transport = nccl or host");
}

// A full disk under standard output must not look like success.
void require_printed() {
    const bool flushed = std::fflush(stdout) == 0;
    cairn::require(std::cout.good() && flushed && !std::ferror(stdout),
                   "the result could not be written to standard output (is its disk full?); files of the run are "
                   "complete, its figures are in record.json");
}

// Where the network is: train.device.
nlohmann::json run_session(cairn::configuration settings, const cairn::session_options& options,
                           cairn::any_communicator world, int local_rank, bool profile, bool plan) {
    const std::string transport = settings.choice("parallel.transport", {"auto", "nccl", "mpi", "host"}, "auto");
    if (settings.choice("train.device", {"cpu", "cuda"}, "cpu") == "cuda") {
        if (transport == "mpi" && world.size() > 1) require_mpi_between_gpus();
        cairn::require(!plan, "--plan is for train.device = cpu");
#if CAIRN_HAS_CUDA
        return run_on_cuda(std::move(settings), options, std::move(world), local_rank, profile);
#else
        (void)local_rank;
        cairn::fail(
            "train.device = cuda: this program was built for the CPU alone; cmake --preset cuda && cmake --build "
            "--preset "
            "cuda --target train makes build/cuda/benchmarks/train, or take train.device = cpu");
#endif
    }
    cairn::require(settings.choice("train.matmul_precision", {"exact", "tf32"}, "exact") == "exact",
                   "train.matmul_precision = tf32 is for train.device = cuda; the CPU's products are exact");
    const std::string precision = settings.choice("train.precision", {"float32", "bf16", "fp16"}, "float32");
    cairn::require(precision != "fp16",
                   "train.precision = fp16 is for train.device = cuda; the CPU has float32 and bf16");
    cairn::require(transport == "auto",
                   "parallel.transport is for train.device = cuda; ranks of the CPU have their own memory only");
    if (precision == "float32") return run_in_float32(std::move(settings), options, std::move(world), profile, plan);
#if CAIRN_HAS_BF16
    return run_in_bf16(std::move(settings), options, std::move(world), profile, plan);
#else
    cairn::fail(
        "train.precision = bf16: this program was built for float32 alone; cmake --build --preset release --target "
        "train makes build/release/benchmarks/train, or take train.precision = float32");
#endif
}

// What `ranks` ranks would hold and do, as threads whose tensors are never touched.
std::vector<nlohmann::json> needs_of_ranks(const cairn::configuration& settings, const cairn::session_options& options,
                                           int ranks) {
    std::vector<nlohmann::json> needs(static_cast<std::size_t>(std::max(1, ranks)));
    cairn::thread_ranks threads;
    threads.kernel_threads = cairn::threads();
    cairn::run_ranks(static_cast<int>(needs.size()), threads, [&](cairn::threads_communicator& world) {
        cairn::counted_machine machine;
        const cairn::phantom_rank here(machine);
        const int rank = world.rank();
        needs[static_cast<std::size_t>(rank)] = run_session(settings, options, world.split(0, rank), 0, false, true);
    });
    return needs;
}

// The same, printed. Does it fit into this machine?
void print_plan(const cairn::configuration& settings, const cairn::session_options& options, int ranks) {
    const cairn::index_t limit = cairn::memory_pool::host().limit();
    const std::vector<nlohmann::json> needs = needs_of_ranks(settings, options, ranks);
    std::cout << cairn::describe_needs(needs, limit / static_cast<cairn::index_t>(needs.size()));
}

// `trace_ranks`: in trace.json; empty: the first of each host.
nlohmann::json simulate_session(const cairn::configuration& settings, const cairn::session_options& options,
                                const cairn::machine_description& machine, const simulated_run& asked, bool throughput,
                                const std::vector<int>& trace_ranks) {
    return simulate(machine, asked, [&](auto simulated, const begun_run& begun) {
        cairn::session_options of_rank = options;
        of_rank.on_start = begun.begin_steps;
        if (!throughput) of_rank.machine = begun.machine;
        of_rank.trace_ranks = trace_ranks.empty() ? begun.first_of_hosts : trace_ranks;
        return run_session(settings, of_rank, std::move(simulated), 0, false, false);
    });
}

// --tune, by simulations; in this process nothing is built.
tuned tune_by_simulation(const cairn::configuration& settings, const cairn::session_options& options,
                         const tuning_request& asked, int ranks, const std::string& machine_file,
                         const nlohmann::json& needs) {
    const cairn::machine_description machine = cairn::read_machine(machine_file);
    machine.check_ranks(ranks);
    const auto run = [&](const std::vector<cairn::tuning_settings>& all) {
        const auto told = tuning::in_children(all.size(), cairn::threads(), [&](std::size_t i) {
            const simulated_run one{.ranks = ranks, .p_state = tuning::p_state_of(all[i])};
            return simulate_session(tuning::applied(settings, all[i]), options, machine, one, true, {}).dump();
        });
        std::vector<cairn::tuning_outcome> outcomes;
        for (const std::string& result : told) outcomes.push_back(tuning::outcome_of(result));
        return outcomes;
    };
    return tune(settings, asked, ranks, needs, &machine, run, true);
}

// --tune, by a few steps of each configuration on the ranks that there are.
tuned tune_by_measuring(const cairn::configuration& settings, cairn::session_options options,
                        const tuning_request& asked, cairn::any_communicator& world, int local_rank,
                        const nlohmann::json& needs) {
    options.generated = true;
    if (options.max_steps < 0) options.max_steps = 8;
    const auto run = [&](const std::vector<cairn::tuning_settings>& all) {
        std::vector<cairn::tuning_outcome> outcomes;
        for (const cairn::tuning_settings& chosen : all) {
            std::string told;
            try {
                told = run_session(tuning::applied(settings, chosen), options, world.split(0, world.rank()), local_rank,
                                   false, false)
                           .dump();
            } catch (const cairn::error& e) {
                told = std::string("!") + e.what();
            }
            outcomes.push_back(tuning::outcome_of(cairn::all_gather_text(world, told).front()));
        }
        return outcomes;
    };
    return tune(settings, asked, world.size(), needs, nullptr, run, world.rank() == 0);
}

// The settings that --tune finds, the same on all ranks; rank 0 prints how.
tuned tune_settings(const cairn::configuration& settings, cairn::session_options options, const tuning_request& asked,
                    int ranks, const std::string& machine_file, cairn::any_communicator& world, int local_rank) {
    options.generated = true;
    std::string needs, found;
    if (world.rank() == 0)
        needs = cairn::in_child_process([&] {
            return tuning::in_silence(
                [&] { return needs_of_ranks(tuning::of_one_rank(settings), options, 1)[0].dump(); });
        });
    needs = cairn::all_gather_text(world, needs).front();
    if (machine_file.empty())
        return tune_by_measuring(settings, options, asked, world, local_rank, nlohmann::json::parse(needs));
    if (world.rank() == 0) {
        const tuned result =
            tune_by_simulation(settings, options, asked, ranks, machine_file, nlohmann::json::parse(needs));
        found = tuning::to_json(result).dump();
    }
    return tuning::from_json(nlohmann::json::parse(cairn::all_gather_text(world, found).front()));
}

// Ranks leave together: where one cannot read its command line, or was asked for help alone, the others would wait.
// Returns whether all go on; a rank that leaves has printed why.
bool all_go_on(cairn::any_communicator& world, bool mine) {
    const std::vector<int> leaves = cairn::values_of_ranks(world, mine ? 0 : 1);
    const auto leaving = std::count(leaves.begin(), leaves.end(), 1);
    if (leaving == 0) return true;
    if (leaving < world.size() && world.rank() == std::find(leaves.begin(), leaves.end(), 0) - leaves.begin())
        for (int r = 0; r < world.size(); ++r)
            if (leaves[static_cast<std::size_t>(r)])
                std::cerr << "rank " << r << " of " << world.size()
                          << " left in its command line, so all ranks leave; start all ranks alike\n";
    return false;
}

int run(int argc, char** argv, cairn::any_communicator world, int local_rank, int local_ranks) {
    CLI::App app{"Trains the network of a workload file and leaves a directory with its record."};
    std::string workload, data, machine_file;
    std::vector<std::string> sets;
    cairn::session_options options;
    int threads = 0, ranks = 0;
    simulated_run asked;
    tuning_request tuning;
    bool throughput = false, profile = false, plan = false;
    std::vector<int> trace_ranks;
    app.add_option("workload", workload, "TOML file; those of Cairn are in benchmarks/workloads");
    app.add_option("--set", sets, "section.key=value, over the file")->allow_extra_args(false)->take_all();
    app.add_option("--data", data, "folder or archive of the data");
    app.add_option("--out", options.out, "run directory (default: a fresh one under runs/)");
    app.add_option("--steps", options.max_steps, "stop after this many updates in all");
    app.add_option("--threads", threads,
                   "threads of the kernels, of each rank (default: cores / ranks of this machine)");
    app.add_option("--resume", options.resume, "go on with the run in this directory");
    CLI::Option* const timed = app.add_flag("--throughput", throughput, "train on generated data and print samples/s");
    app.add_option("--kernels", options.kernels, "of --throughput: seconds of each kernel and shape, as JSON")
        ->needs(timed);
    app.add_flag("--profile", profile, "the same, with a table of the layers, or of a pipeline's stages");
    CLI::Option* const asks_for_plan =
        app.add_flag("--plan", plan, "print mesh, stages, bytes of each rank and predicted bubble; train nothing")
            ->excludes("--throughput", "--profile", "--resume");
    CLI::Option* const asks_to_simulate =
        app.add_option("--simulate", machine_file,
                       "train (3 steps, or --steps), or time steps, on a machine described by this TOML file")
            ->excludes(asks_for_plan)
            ->excludes("--profile", "--resume", "--kernels");
    app.add_option("--samples", asked.samples,
                   "of --simulate: samples of the training set, to tell what the whole training takes")
        ->needs(asks_to_simulate)
        ->check(CLI::PositiveNumber);
    app.add_option("--p-state", asked.p_state,
                   "of --simulate: frequency of all kernels, by its place in the machine's list")
        ->needs(asks_to_simulate)
        ->check(CLI::Range(0, 1000));
    app.add_option("--trace-ranks", trace_ranks,
                   "of --simulate: ranks in trace.json, 0,5,… (default: the first of each host, at most 4)")
        ->needs(asks_to_simulate)
        ->delimiter(',')
        ->check(CLI::NonNegativeNumber);
    CLI::Option* const asks_to_tune =
        app.add_option("--tune", tuning.goal, "find the settings that need least time or energy, or the front of both")
            ->excludes(asks_for_plan)
            ->excludes("--profile", "--resume", "--kernels", "--samples", "--p-state")
            ->check(CLI::IsMember({"time", "energy", "pareto"}));
    app.add_option("--search", tuning.search, "of --tune: how (default: model)")
        ->needs(asks_to_tune)
        ->check(CLI::IsMember({"greedy", "local", "model", "exhaustive", "compare"}));
    app.add_option("--trials", tuning.trials, "of --tune: configurations to try, at most (100)")
        ->needs(asks_to_tune)
        ->check(CLI::PositiveNumber);
    app.add_option("--vary", tuning.only, "of --tune: what to choose, such as mesh,bucket (default: all)")
        ->needs(asks_to_tune)
        ->delimiter(',');
    app.add_option("--records", tuning.records,
                   "of --tune: records of benchmarks/compression_accuracy, or their folder; allow what kept accuracy")
        ->needs(asks_to_tune)
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--allow", tuning.allowed, "of --tune: a compression without a record, such as compress.kind=bf16")
        ->needs(asks_to_tune)
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--ranks", ranks, "of --plan, --simulate and --tune, without mpirun: so many ranks (default: 1)");
    int status = 0;
    bool reads = true;
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        reads = false;
        status = e.get_exit_code();  // 0 of --help: no fault where all ranks were asked
        if (world.size() > 1 && status != 0)
            std::cerr << "rank " << world.rank() << " of " << world.size() << ": command line: " << e.what() << '\n';
        else
            app.exit(e);
    }
    if (!all_go_on(world, reads)) return reads ? 1 : status;

    cairn::require(app.count("--threads") == 0 || threads >= 1, "--threads ", threads, ": at least 1 is needed");
    cairn::require(app.count("--steps") == 0 || options.max_steps >= 1, "--steps ", options.max_steps,
                   ": at least 1 is needed");
    if (local_ranks > 1 || world.size() > 1) cairn::take_share_of_cores(local_rank, local_ranks);
    if (threads) cairn::set_threads(threads);
    cairn::keep_to_address_space(cairn::threads());
    cairn::require(workload.empty() != options.resume.empty(),
                   "give either a workload file or --resume RUN; see train --help");
    cairn::require(options.resume.empty() || options.out.empty(),
                   "--resume goes on in the run's own directory: leave --out away");
    const std::filesystem::path source =
        options.resume.empty() ? std::filesystem::path(workload) : options.resume / "config.toml";
    cairn::configuration settings = cairn::configuration::from_file(source);
    for (const std::string& assignment : sets) settings.set(assignment);
    if (!data.empty()) settings.set_text("data.path", data);
    const bool simulates = !machine_file.empty();
    const bool tunes = !tuning.goal.empty(), starts = !simulates || (tunes && ranks == 0);
    cairn::require(starts || world.size() == 1, "--simulate makes its own ranks: start it without mpirun");
    cairn::require(app.count("--ranks") == 0 || (ranks >= 1 && (simulates || plan)), "--ranks ", ranks,
                   ": a number from 1, of --plan and --simulate; real ranks are mpirun's, or srun's");
    options.generated = throughput || profile || !starts || (plan && world.size() == 1);
    cairn::require_equal(
        world, cairn::concat(options.max_steps, ' ', throughput, ' ', profile, ' ', plan, ' ', options.resume.empty()),
        "--steps, --throughput, --profile, --plan or --resume");

    const std::filesystem::path cache = autotune_file();
    const std::string machine = cairn::perf::fingerprint();
    if (!cache.empty())
        try_cache("kernel choices", [&] { cairn::autotune_cache::global().load(cache.string(), machine); });
    if (!options.resume.empty())
        cairn::autotune_cache::global().load((options.resume / "autotune.tsv").string(), machine);

    // What benchmarks/collectives --calibrate measured, for this machine and number of ranks.
    if (const std::string trouble = cairn::load_collectives(world, machine); !trouble.empty())
        std::cerr << "warning: " << trouble << '\n';

    const bool is_root = world.rank() == 0;
    if (plan && world.size() == 1) return print_plan(settings, options, ranks), require_printed(), 0;
    const cairn::interrupt_guard guard(is_root);
    tuned found;
    if (tunes) {
        tuning.sets = sets;
        found =
            tune_settings(settings, options, tuning, ranks > 0 ? ranks : world.size(), machine_file, world, local_rank);
        settings = tuning::applied(std::move(settings), found.choice.settings);
    }
    if (!starts) {
        asked.ranks = std::max(1, ranks);
        asked.epochs = cairn::configuration(settings).get<std::int64_t>("train.epochs", 1, cairn::at_least(1));
        if (!throughput && options.max_steps < 0) options.max_steps = 3;  // one is like the other
        const auto result = tunes ? found.report
                                  : simulate_session(settings, options, cairn::read_machine(machine_file), asked,
                                                     throughput, trace_ranks);
        std::cout << cairn::detail::printable(result) << std::endl;
        return require_printed(), 0;
    }
    auto result = run_session(std::move(settings), options, std::move(world), local_rank, profile, plan);
    if (!is_root) return 0;
    if (tunes) tuning::print_beside(found, result);
    if (plan) return require_printed(), 0;
    if (!cache.empty())
        try_cache("kernel choices", [&] {
            std::filesystem::create_directories(cache.parent_path());
            cairn::autotune_cache::global().save(cache.string(), machine);
        });
    if (!cache.empty()) warn_of_contended_autotune(cache);
    std::cout << cairn::detail::printable(result) << std::endl;
    require_printed();
    return cairn::interrupt_guard::requested() ? 130 : 0;
}

}  // namespace

int main(int argc, char** argv) {
#if CAIRN_HAS_MPI
    if (cairn::started_by_mpi())
        return cairn::run_mpi(argc, argv, [&](cairn::mpi_communicator& world) {
            const cairn::mpi_communicator node = world.split_node();
            return run(argc, argv, cairn::checked_if_asked(world.split(0, world.rank())), node.rank(), node.size());
        });
#endif
    try {
        return run(argc, argv, cairn::self_communicator{}, 0, 1);
    } catch (const std::exception& e) {
        std::cerr << "train: " << e.what() << '\n';
        return 1;
    }
}
