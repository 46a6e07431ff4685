// What the tuner may choose of a run, what records allow, and bounds of what a machine can do.

#include "catch.hpp"

#include <cairn/train/tuning_bound.hpp>
#include <cairn/train/tuning_records.hpp>
#include <cairn/train/tuning_space.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace cairn::tuning_cases {

using Catch::Matchers::Contains;

configuration workload(const std::string& more = "") {
    return configuration::from_text("name = \"w\"\n[model]\nkind = \"transformer\"\n[optimizer]\nkind = \"adamw\"\n" +
                                    more);
}
tuned_run of(int ranks, index_t batch) { return {.ranks = ranks, .batch = batch, .parameters = 2e6, .p_states = 2}; }

std::vector<tuning_settings> all_of(const tuning_space& space) {
    std::vector<tuning_settings> all;
    space.for_each([&](const tuning_choice& c) { all.push_back(*space.settings(c)); });
    return all;
}
bool sets(const tuning_settings& s, const std::string& one) { return std::ranges::find(s, one) != s.end(); }
bool names(const tuning_settings& s, const std::string& path) {
    return std::ranges::any_of(s, [&](const std::string& one) { return one.starts_with(path + '='); });
}

nlohmann::json record(const std::string& name) {
    const auto row = [](const char* compressor, nlohmann::json feedback, nlohmann::json mean) {
        return nlohmann::json{
            {"compressor", compressor}, {"error_feedback", feedback}, {"mean", mean}, {"half_interval_95", 0.5}};
    };
    return {{"workload", name},
            {"settings", nlohmann::json::array()},
            {"rows",
             {row("none", nullptr, 60.0), row("bf16", nullptr, 59.6), row("topk", true, 59.4), row("sign", false, 61.0),
              row("sign, gathered", true, 59.5), row("randomk", false, nullptr)}}};
}

TEST_CASE("the space of a run: the plain configuration is the run as it is, and each is named once") {
    const run_space choices(of(8, 32), workload());
    const tuning_space space = choices.space();
    CHECK(space.settings(space.plain())->empty());
    const auto all = all_of(space);
    CHECK(std::set<tuning_settings>(all.begin(), all.end()).size() == all.size());
    CHECK(std::ranges::any_of(
        all, [](const auto& s) { return sets(s, "parallel.pipeline=4") && sets(s, "parallel.tensor=2"); }));
    for (const tuning_settings& s : all) {
        const bool pipeline = names(s, "parallel.pipeline");
        CHECK((pipeline || !names(s, "parallel.schedule")));
        CHECK_FALSE(names(s, "compress.kind"));
        // 8 ranks along other axes leave no data axis, and nothing to reduce
        if (sets(s, "parallel.pipeline=8") || sets(s, "parallel.tensor=8"))
            CHECK_FALSE((names(s, "parallel.bucket_mib") || names(s, "parallel.all_reduce") ||
                         names(s, "parallel.zero_stage")));
    }
}

TEST_CASE("what a workload sets stays as it is") {
    const run_space choices(of(8, 32),
                            workload("[parallel]\npipeline = 2\nzero_stage = 1\n[train]\nmicro_batches = 4\n"));
    for (const tuning_settings& s : all_of(choices.space())) {
        CHECK_FALSE(names(s, "parallel.pipeline"));
        CHECK_FALSE(names(s, "parallel.zero_stage"));
        CHECK_FALSE(names(s, "train.micro_batches"));
    }
    choices.space().for_each([&](const tuning_choice& c) {
        CHECK(choices.layout(c).pipeline == 2);
        CHECK(choices.layout(c).micro_batches == 4);
    });
}

TEST_CASE("batch norm sees at least as many samples as in plain data parallelism") {
    tuned_run run = of(8, 64);
    run.batch_norm = true;
    const run_space choices(run, configuration::from_text("[model]\nkind = \"resnet-cifar\"\n"));
    int pipelines = 0;
    choices.space().for_each([&](const tuning_choice& c) {
        const rank_layout at = choices.layout(c);
        CHECK(run.batch / (at.data * at.micro_batches) >= run.batch / run.ranks);
        pipelines += at.pipeline > 1;
    });
    CHECK(pipelines > 0);
}

TEST_CASE("gradients are compressed as is allowed, on a data axis, and without ZeRO's second stage") {
    tuned_run run = of(4, 32);
    run.compressions = {"compress.kind=sign compress.error_feedback=false"};
    const run_space choices(run, workload());
    int compressed = 0;
    for (const tuning_settings& s : all_of(choices.space()))
        if (names(s, "compress.kind")) {
            ++compressed;
            CHECK(sets(s, "compress.error_feedback=false"));
            CHECK_FALSE(sets(s, "parallel.zero_stage=2"));
            CHECK_FALSE(names(s, "parallel.all_reduce"));
        }
    CHECK(compressed > 0);
}

TEST_CASE("frequency on slack is for pipelines of whole layers, on ranks that have processors of their own") {
    tuned_run run = of(8, 32);
    for (const bool own : {false, true}) {
        run.own_processors = own;
        run_space choices(run, workload());
        choices.vary_only({"mesh", "p-state"});
        const tuning_space space = choices.space();
        int slows = 0;
        space.for_each([&](const tuning_choice& c) {
            const rank_layout at = choices.layout(c);
            CHECK(at.on_slack == sets(*space.settings(c), "p-state=slack"));
            if (!at.on_slack) return;
            ++slows;
            CHECK((at.pipeline > 1 && at.tensor == 1 && at.p_state == 0));
        });
        CHECK((slows > 0) == own);
    }
}

TEST_CASE("K-FAC's placement is free, its tensors are whole") {
    const run_space choices(
        of(4, 32), configuration::from_text("[model]\nkind = \"resnet-cifar\"\n[optimizer]\nkind = \"kfac\"\n"));
    std::set<std::string> fractions;
    for (const tuning_settings& s : all_of(choices.space())) {
        CHECK_FALSE(names(s, "parallel.tensor"));
        CHECK_FALSE(names(s, "parallel.zero_stage"));
        for (const std::string& one : s)
            if (one.starts_with("kfac.")) fractions.insert(one);
    }
    CHECK(fractions == std::set<std::string>{"kfac.grad_worker_fraction=0.25", "kfac.grad_worker_fraction=0.5"});
}

TEST_CASE("dimensions by name; an unknown one is refused with those that there are") {
    run_space choices(of(4, 32), workload());
    choices.vary_only({"bucket"});
    CHECK(all_of(choices.space()).size() == 3);  // 25, 1 and 4 MiB of 8 MB of gradients
    CHECK_THROWS_WITH(choices.vary_only({"buckets"}), Contains("'buckets'") && Contains("mesh, micro-batches"));
}

TEST_CASE("no mesh for a batch that is too small") {
    CHECK_THROWS_WITH(run_space(of(8, 2), workload("[parallel]\npipeline = 1\ntensor = 1\n")), Contains("batch of 2"));
}

TEST_CASE("a record allows what kept accuracy within the interval of the seeds") {
    const std::vector<std::string> kept{"compress.kind=bf16", "compress.kind=sign compress.error_feedback=false",
                                        "compress.kind=sign compress.two_phase=false"};
    CHECK(kept_compressions(record("w"), {}) == kept);
    nlohmann::json other = record("w");
    other["settings"] = {"optimizer.lr=0.05"};
    CHECK(kept_compressions(other, {}).empty());
    CHECK(kept_compressions(other, {"optimizer.lr=0.05"}) == kept);
}

TEST_CASE("records in files: of another workload, of something else, missing") {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / "cairn_tuning_records";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "a.json") << record("w");
    std::ofstream(folder / "b.json") << record("another");
    std::ofstream(folder / "c.json") << "{}";
    CHECK(kept_compressions(folder, "w", {}).size() == 3);
    CHECK(kept_compressions(folder / "a.json", "w", {}).size() == 3);
    CHECK(kept_compressions(folder, "third", {}).empty());
    CHECK_THROWS_WITH(kept_compressions(folder / "b.json", "w", {}), Contains("a record of another"));
    CHECK_THROWS_WITH(kept_compressions(folder / "c.json", "w", {}), Contains("compression_accuracy"));
    CHECK_THROWS_WITH(kept_compressions(folder / "d.json", "w", {}), Contains("does not exist"));
    std::ofstream(folder / "c.json") << "{";
    CHECK_THROWS_WITH(kept_compressions(folder, "w", {}), Contains("no JSON"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("bounds: by hand for one kind of kernel") {
    machine_description m;
    m.kernels[{"gemm", "any"}] = {.start = 1e-6, .flops = 1e12, .bandwidth = 1e11};
    m.between = link_model({{0, 1e-5, 0}, {1e6, 1e-3, 0}});
    m.power = host_power{10, 20, {{1, 100}, {0.5, 40}}};
    const run_work work{{{"gemm", {100, 8e9, 4e8}}}};
    const tuned_run run{.ranks = 4, .batch = 32, .parameters = 1e6};
    // 2 ms of operations and 1 ms of bytes a rank, 100 kernels of 1 µs
    const tuning_outcome plain = least_outcome({.data = 4}, run, work, m);
    CHECK(plain.bytes == 2 * 0.75 * 4e6);
    CHECK(plain.seconds == Approx(6e6 * 1e-9).epsilon(1e-12));  // sending: 6 MB at 1 GB/s
    CHECK(plain.memory == 8e6);
    CHECK(plain.joules == Approx(4 * 20 * 6e-3 + 4 * 80 * 3.1e-3));
    const tuning_outcome piped = least_outcome({.data = 1, .pipeline = 4, .micro_batches = 8}, run, work, m);
    CHECK(piped.bytes == 0);
    CHECK(piped.seconds == Approx((3e-3 + 200e-6) * 11 / 8));
    const tuning_outcome slow =
        least_outcome({.data = 1, .pipeline = 4, .micro_batches = 8, .p_state = 1}, run, work, m);
    CHECK(slow.seconds == Approx((5e-3 + 200e-6) * 11 / 8));
    const tuning_outcome on_slack =
        least_outcome({.data = 1, .pipeline = 4, .micro_batches = 8, .on_slack = true}, run, work, m);
    CHECK(on_slack.seconds == piped.seconds);
    CHECK(on_slack.joules == Approx(4 * 20 * piped.seconds + 4 * 20 * 3.2e-3));  // as at the lowest frequency
    CHECK(least_outcome({.data = 4, .compresses = true}, run, work, m).bytes == 0);
    CHECK(least_outcome({.data = 4, .zero_stage = 2}, run, work, m).memory == 2e6);
}

}  // namespace cairn::tuning_cases
