// Training steps on ranks that are threads send, rank by rank and cause by cause, the messages and bytes that the
// formulas of perf/data_movement.hpp say for the run (train/step_movement.hpp): K-FAC, pipelines, tensor and spatial
// layers. The ranks are phantom, so collectives are not cut into segments.

#include "catch.hpp"
#include "sanitized.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/train/describe_needs.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

namespace {

constexpr int step = test::sanitized ? 3 : 1;  // of numbers of ranks: every third under sanitizers

/// Some hundred bytes a step that no formula tells.
bool is_small(std::string_view cause) {
    constexpr std::array<std::string_view, 5> small{"agreement", "norms", "sums over slices", "rows of kfac's layers",
                                                    "state of kfac's decompositions"};
    return std::ranges::find(small, cause) != small.end() || cause.starts_with("diagonals of kfac");
}

std::string line(std::string_view cause, std::int64_t messages, std::int64_t bytes) {
    return concat(cause, ": ", messages, " messages, ", bytes, " bytes\n");
}

/// A step of a workload on so many ranks: counted = told, for each of them.
void check_movement(const char* workload, int ranks, const std::vector<std::string>& set) {
    std::vector<std::string> counted(static_cast<std::size_t>(ranks)), told(counted);
    std::vector<nlohmann::json> needs(counted.size());
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& threads) {
        counted_machine machine;
        const phantom_rank here(machine);
        counting_communicator<threads_communicator> c(threads.split(0, threads.rank()));
        const auto rank = static_cast<std::size_t>(c.rank());
        configuration settings = configuration::from_file(concat("benchmarks/workloads/", workload, ".toml"));
        for (const std::string& one : set) settings.set(one);
        settings.set("parallel.overlap=false");  // the counter is one thread's
        session<cpu, float> run(std::move(settings), {.out = {}, .resume = {}, .max_steps = 2, .generated = true},
                                any_communicator(c.split(0, c.rank())));
        run.needs(1);  // start
        c.reset();
        needs[rank] = run.needs(1);
        for (const auto& [cause, sent] : c.by_cause())
            if (!is_small(cause) && sent.messages > 0) counted[rank] += line(cause, sent.messages, sent.bytes);
        for (const auto& [cause, sent] : needs[rank].at("sent").items())
            told[rank] += line(cause, sent.at("messages").get<std::int64_t>(), sent.at("bytes").get<std::int64_t>());
    });
    INFO(workload << " on " << ranks << ": " << listed(set));
    for (std::size_t r = 0; r < counted.size(); ++r) {
        CAPTURE(r);
        CHECK(counted[r] == told[r]);
        CHECK(counted[r].empty() == (ranks == 1));
    }
}

/// As long as it lives, kernels are not measured and no profile of this machine decides.
struct same_choices {
    same_choices() : kept(*collective_profiles_in_use()) {
        autotune_cache::global().set_policy(autotune_policy::first);
        use_collectives({});
    }
    ~same_choices() {
        use_collectives(kept);
        autotune_cache::global().set_policy(autotune_policy::measure);
    }
    const collective_profiles kept;
};

using setting_list = std::vector<std::string>;

setting_list with_more(setting_list all, std::initializer_list<std::string> more) {
    all.insert(all.end(), more);
    return all;
}

/// Every fraction of gradient workers that p ranks can have.
void check_kfac(int p, const setting_list& more) {
    for (int m = 1; m <= p; ++m)
        if (p % m == 0)
            check_movement("lenet-mnist", p,
                           with_more(more, {"train.batch=16", "optimizer.kind='kfac'", "kfac.factor_update_interval=1",
                                            "kfac.inverse_update_interval=1", "kfac.inverse_staleness=0",
                                            concat("kfac.grad_worker_fraction=", double(m) / p)}));
}

const setting_list little_transformer{"model.blocks=2", "model.embedding_dim=64", "model.heads=8"};

/// p stages or pairs of stages, twice as many micro-batches, uneven ones.
void check_pipeline(int p, const std::string& schedule, int data = 1) {
    check_movement(
        "transformer-text", p * data,
        with_more(little_transformer, {concat("train.batch=", 5 * p * data), concat("train.micro_batches=", 2 * p),
                                       "data.text.length=8", "model.tied_embedding=true", "train.drop_last=true",
                                       concat("parallel.pipeline=", p), concat("parallel.schedule='", schedule, "'")}));
}

void check_tensor(int t, const char* sequence_parallel, int data = 1) {
    check_movement("transformer-text", t * data,
                   with_more(little_transformer, {"train.batch=5", "train.micro_batches=2",
                                                  concat("data.text.length=", 2 * t), concat("parallel.tensor=", t),
                                                  concat("parallel.sequence_parallel=", sequence_parallel)}));
}

void check_spatial(int ranks, const std::string& grid, const char* batch = "train.batch=5") {
    check_movement("cosmology-quickstart", ranks, {batch, "model.blocks=2", concat("parallel.spatial=", grid)});
}

}  // namespace

TEST_CASE("movement: K-FAC with every fraction of gradient workers", "[train][movement]") {
    const same_choices fixed;
    for (int p = 1; p <= 8; ++p) check_kfac(p, {});
    check_kfac(4, {"kfac.statistics='sharded'", "kfac.form='inverse'"});
    check_kfac(4, {"kfac.statistics='local'", "kfac.colocate_factors=false"});
}

TEST_CASE("movement: pipelines of every schedule", "[train][movement]") {
    const same_choices fixed;
    for (const char* schedule :
         {"gpipe", "interleaved", "interleaved_zb", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v", "auto"})
        if (!test::sanitized || schedule[0] == 'i' || schedule[0] == 'd') check_pipeline(3, schedule);
    for (int p = 1; p <= 8; p += step) check_pipeline(p, "1f1b");
    check_pipeline(2, "1f1b", 2);
}

TEST_CASE("movement: tensor layers", "[train][movement]") {
    const same_choices fixed;
    for (int t = 1; t <= 8; t += step) check_tensor(t, "false");
    check_tensor(4, "true");
    check_tensor(2, "true", 2);
    check_movement(
        "transformer-text", 4,
        with_more(little_transformer, {"train.batch=4", "train.micro_batches=2", "data.text.length=8",
                                       "loss.label_smoothing=0.1", "parallel.tensor=2", "parallel.pipeline=2"}));
    check_movement("resnet20-cifar", 2, {"train.batch=4", "parallel.tensor=2"});
}

TEST_CASE("movement: spatial layers", "[train][movement]") {
    const same_choices fixed;
    for (int p = 1; p <= 8; p += step) check_spatial(p, concat('[', p, ",1,1]"));
    check_spatial(8, "[2,2,2]", "train.batch=17");
    check_spatial(6, "[1,3,2]");
    for (const char* sync : {"false", "true"})  // batch norm over the ranks of a sample, or over all
        check_movement("cosmology-quickstart", 4,
                       {"train.batch=6", "model.blocks=2", "model.normalise=true", "parallel.spatial=[2,1,1]",
                        concat("parallel.sync_batch_norm=", sync)});
    check_movement("cosmology-quickstart", 4, {"train.batch=4", "parallel.spatial=[2,1,1]", "parallel.tensor=2"});
}

TEST_CASE("movement: all", "[.exhaustive][train][movement]") {
    const same_choices fixed;
    for (int p = 1; p <= 8; ++p) {
        for (const char* statistics : {"sharded", "local"})
            for (const char* colocated : {"true", "false"})
                for (const char* form : {"inverse", "eigen"})
                    check_kfac(p, {concat("kfac.statistics='", statistics, "'"),
                                   concat("kfac.colocate_factors=", colocated), concat("kfac.form='", form, "'")});
        for (const char* schedule : {"gpipe", "1f1b", "interleaved", "interleaved_zb", "zb_h1", "zb_h2", "zb_v",
                                     "v_half", "v_min", "dualpipe_v", "auto"}) {
            check_pipeline(p, schedule);
            if (p <= 4) check_pipeline(p, schedule, 2);
        }
        check_movement("resnet20-cifar", p, {"train.batch=4", concat("parallel.tensor=", p)});
        check_movement("cosmology-quickstart", p, {"train.batch=4", concat("parallel.tensor=", p)});
    }
    for (int t = 2; t <= 8; ++t) check_tensor(t, "true");
    for (const char* grid : {"[2,1,1]", "[3,1,2]", "[2,2,1]", "[2,2,2]"}) {
        const int ranks = (grid[1] - '0') * (grid[3] - '0') * (grid[5] - '0');
        check_spatial(ranks, grid);
        check_movement("cosmology-quickstart", ranks,
                       {"train.batch=3", "model.blocks=2", "train.activation_memory='recompute_smallest'",
                        concat("parallel.spatial=", grid)});
    }
}

TEST_CASE("movement: --plan prints what each rank sends, by axis and cause", "[train][movement]") {
    const auto needs = [](const char* sent) {
        return nlohmann::json::parse(concat(R"({"compresses": false, "sent": )", sent, '}'));
    };
    CHECK(describe_sent({needs("{}")}).empty());
    CHECK(describe_sent({needs(R"({"gradients": {"axis": "data", "messages": 2, "bytes": 1500000},
                                   "parameters": {"axis": "data", "messages": 1, "bytes": 750000},
                                   "halos": {"axis": "spatial", "messages": 1, "bytes": 4000}})"),
                         needs("{}")}) ==
          "MB that each rank sends in a step, by formulas:\n"
          "  rank 0: data 2.250 (gradients 1.500, parameters 0.750) spatial 0.004 (halos 0.004)\n"
          "  rank 1: nothing\n");
}

}  // namespace cairn
