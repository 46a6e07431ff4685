// train WORKLOAD.toml: trains a network on a data set, and leaves a directory with its record.
// mpirun -np N train WORKLOAD.toml: the same on N ranks, each with its part of every batch.

#include "train/audit_data.hpp"
#include "train/session.hpp"
#include "train/tune_settings.hpp"

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
#include <cairn/train/lineage.hpp>
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

// A full disk under standard output must not look like success.
void require_printed() {
    const bool flushed = std::fflush(stdout) == 0;
    cairn::require(std::cout.good() && flushed && !std::ferror(stdout),
                   "the result could not be written to standard output (is its disk full?); files of the run are "
                   "complete, its figures are in record.json");
}

// The same, printed. Does it fit into this machine?
void print_plan(const cairn::configuration& settings, const cairn::session_options& options, int ranks) {
    const cairn::index_t limit = cairn::memory_pool::host().limit();
    const std::vector<nlohmann::json> needs = needs_of_ranks(settings, options, ranks);
    std::cout << cairn::describe_needs(needs, limit / static_cast<cairn::index_t>(needs.size()));
}

// Returns the exit status: 1 where there is a leak.
int print_audit(const cairn::configuration& settings) {
    std::ptrdiff_t leaks = 0;
    for (const auto& [leak, text] : audit_data(settings)) {
        std::cout << (leak ? "LEAK  " : "      ") << text << '\n';
        leaks += leak;
    }
    std::cout << (leaks ? cairn::concat(leaks, " leaks: figures of the test part are not to be believed\n")
                        : std::string("no leak found\n"));
    return leaks > 0;
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
                std::cerr << cairn::concat("rank ", r, " of ", world.size(),  // at once: other ranks write, too
                                           " left in its command line, so all ranks leave; start all ranks alike\n");
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
    bool throughput = false, profile = false, plan = false, audits = false;
    std::vector<int> trace_ranks;
    app.add_option("workload", workload, "TOML file; those of Cairn are in benchmarks/workloads");
    app.add_option("--set", sets, "section.key=value, over the file")->allow_extra_args(false)->take_all();
    app.add_option("--data", data, "folder or archive of the data");
    app.add_option("--out", options.out, "run directory (default: a fresh one under runs/)");
    app.add_option("--steps", options.max_steps, "stop after this many updates in all");
    app.add_option("--epochs", options.max_epochs,
                   "stop after this many epochs in all; the learning rate goes by train.epochs");
    app.add_option("--threads", threads,
                   "threads of the kernels, of each rank (default: cores / ranks of this machine)");
    app.add_option("--resume", options.resume, "go on with the run in this directory");
    std::string from, init;
    app.add_option("--from", from, "begin a new run with a version of another: RUN, RUN@STEP or RUN@TAG")
        ->excludes("--resume");
    app.add_option("--init", init, "begin with the parameters of a version that fit: RUN, RUN@STEP or RUN@TAG")
        ->excludes("--resume", "--from");
    std::vector<std::string> evaluate;
    CLI::Option* const asks_to_evaluate =
        app.add_option("--evaluate", evaluate,
                       "test versions of one network, and the mean of their predictions; train nothing")
            ->excludes("--resume", "--from", "--init", "--out", "--steps", "--epochs");
    app.add_flag("--fresh-statistics", options.fresh_statistics,
                 "of --evaluate: with batch norm's statistics of an epoch of training samples, not those saved")
        ->needs(asks_to_evaluate);
    CLI::Option* const timed = app.add_flag("--throughput", throughput, "train on generated data and print samples/s")
                                   ->excludes(asks_to_evaluate);
    app.add_option("--kernels", options.kernels, "of --throughput: seconds of each kernel and shape, as JSON")
        ->needs(timed);
    app.add_flag("--profile", profile, "the same, with a table of the layers, or of a pipeline's stages")
        ->excludes(asks_to_evaluate);
    CLI::Option* const asks_for_plan =
        app.add_flag("--plan", plan, "print mesh, stages, bytes of each rank and predicted bubble; train nothing")
            ->excludes("--throughput", "--profile", "--resume", "--evaluate");
    app.add_flag("--audit-data", audits,
                 "look for what the training and the test part share, and for columns that give the target away; train "
                 "nothing")
        ->excludes(asks_for_plan)
        ->excludes("--throughput", "--profile", "--resume", "--evaluate", "--from", "--init", "--out");
    CLI::Option* const asks_to_simulate =
        app.add_option("--simulate", machine_file,
                       "train (3 steps, or --steps), or time steps, on a machine described by this TOML file")
            ->excludes(asks_for_plan)
            ->excludes("--profile", "--resume", "--kernels", "--evaluate");
    app.add_option("--samples", asked.samples,
                   "of --simulate: samples of the training set, to tell what the whole training takes")
        ->needs(asks_to_simulate)
        ->check(CLI::PositiveNumber);
    app.add_option("--p-state", asked.p_state,
                   "of --simulate: frequency of all kernels, by its place in the machine's list; slack: in a pipeline "
                   "each action at the lowest that others do not wait for")
        ->needs(asks_to_simulate)
        ->check(CLI::Range(0, 1000) | CLI::IsMember({"slack"}));
    app.add_option("--trace-ranks", trace_ranks,
                   "of --simulate: ranks in trace.json, 0,5,… (default: the first of each host, at most 4)")
        ->needs(asks_to_simulate)
        ->delimiter(',')
        ->check(CLI::NonNegativeNumber);
    CLI::Option* const asks_to_tune =
        app.add_option("--tune", tuning.goal, "find the settings that need least time or energy, or the front of both")
            ->excludes(asks_for_plan)
            ->excludes("--profile", "--resume", "--kernels", "--samples", "--p-state", "--evaluate")
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
    app.add_option("--report", tuning.report, "of --tune: all configurations that were tried go into this JSON file")
        ->needs(asks_to_tune);
    app.add_option("--predictions", options.predictions,
                   "the last test's prediction of each test sample goes into this CSV file")
        ->excludes("--throughput", "--profile", "--plan", "--audit-data", "--simulate", "--tune");
    app.add_option("--ranks", ranks, "of --plan, --simulate and --tune, without mpirun: so many ranks (default: 1)");
    int status = 0;
    bool reads = true;
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        reads = false;
        status = e.get_exit_code();  // 0 of --help: no fault where all ranks were asked
        if (world.size() > 1 && status != 0)
            std::cerr << cairn::concat("rank ", world.rank(), " of ", world.size(), ": command line: ", e.what(), '\n');
        else
            app.exit(e);
    }
    if (!all_go_on(world, reads)) return reads ? 1 : status;

    cairn::require(app.count("--threads") == 0 || threads >= 1, "--threads ", threads, ": at least 1 is needed");
    cairn::require(app.count("--steps") == 0 || options.max_steps >= 1, "--steps ", options.max_steps,
                   ": at least 1 is needed");
    cairn::require(app.count("--epochs") == 0 || options.max_epochs >= 1, "--epochs ", options.max_epochs,
                   ": at least 1 is needed");
    if (local_ranks > 1 || world.size() > 1) cairn::take_share_of_cores(local_rank, local_ranks);
    if (threads) cairn::set_threads(threads);
    cairn::keep_to_address_space(cairn::threads());
    cairn::require(workload.empty() != options.resume.empty() || !from.empty() || !evaluate.empty(),
                   "give a workload file, --resume RUN, --from RUN or --evaluate RUN; see train --help");
    if (!from.empty()) options.from = std::filesystem::absolute(cairn::locate_version(from).version.directory);
    if (!init.empty()) options.init = std::filesystem::absolute(cairn::locate_version(init).version.directory);
    for (const std::string& version : evaluate)
        options.evaluate.push_back(std::filesystem::absolute(cairn::locate_version(version).version.directory));
    // Whose settings and kernels are those of the run, so that its bits go on.
    const std::filesystem::path& earlier = options.evaluate.empty() ? options.from : options.evaluate.front();
    cairn::require(options.resume.empty() || options.out.empty(),
                   "--resume goes on in the run's own directory: leave --out away");
    const std::filesystem::path source =
        options.resume.empty() ? std::filesystem::path(workload) : options.resume / "config.toml";
    cairn::configuration settings = workload.empty() && !earlier.empty() ? cairn::settings_of_version(earlier)
                                                                         : cairn::configuration::from_file(source);
    for (const std::string& assignment : sets) settings.set(assignment);
    if (!data.empty()) settings.set_text("data.path", data);
    const bool simulates = !machine_file.empty();
    const bool tunes = !tuning.goal.empty(), starts = !simulates || (tunes && ranks == 0);
    cairn::require(starts || world.size() == 1, "--simulate makes its own ranks: start it without mpirun");
    cairn::require(app.count("--ranks") == 0 || (ranks >= 1 && (simulates || plan)), "--ranks ", ranks,
                   ": a number from 1, of --plan and --simulate; real ranks are mpirun's, or srun's");
    options.generated = throughput || profile || !starts || (plan && world.size() == 1);
    cairn::require_equal(world,
                         cairn::concat(options.max_steps, ' ', options.max_epochs, ' ', throughput, ' ', profile, ' ',
                                       plan, ' ', options.resume.empty()),
                         "--steps, --epochs, --throughput, --profile, --plan or --resume");

    if (audits) {
        cairn::require(world.size() == 1, "--audit-data: start it without mpirun");
        const int leaks = print_audit(settings);
        return require_printed(), leaks;
    }

    const std::filesystem::path cache = autotune_file();
    const std::string machine = cairn::perf::fingerprint();
    if (!cache.empty())
        try_cache("kernel choices", [&] { cairn::autotune_cache::global().load(cache.string(), machine); });
    // Of runs before their states had the choices.
    if (!options.resume.empty())
        cairn::autotune_cache::global().load((options.resume / "autotune.tsv").string(), machine);
    if (!earlier.empty())
        cairn::autotune_cache::global().load((earlier.parent_path().parent_path() / "autotune.tsv").string(), machine);

    // What benchmarks/collectives --calibrate measured, for this machine and number of ranks.
    if (const std::string trouble = cairn::load_collectives(world, machine); !trouble.empty())
        std::cerr << "warning: " << trouble << '\n';

    const bool is_root = world.rank() == 0;
    if (plan && world.size() == 1) return print_plan(settings, options, ranks), require_printed(), 0;
    const cairn::interrupt_guard guard(is_root);
    tuned found;
    if (tunes) {
        tuning.sets = sets;
        found = tune_settings(settings, options, tuning, ranks, machine_file, world, local_rank);
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
    cairn::now();  // the time of train.time_limit begins
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
