// Gradient compression on a pipeline's data axis. A compressor works bucket by bucket, and buckets do not reach over
// the end of a stage: where the stages' buckets are those of the whole model, the numbers are those of data
// parallelism alone, bit for bit; elsewhere of casts alone, which work value by value.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

namespace pipeline_compression {

using namespace cairn;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

// Four maps of 1 MiB and a small one: a bucket each, the last with the one before, and two stages of two maps.
const std::string wide =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 16\ncosmology.test_volumes = "
    "4\n[model]\nkind = 'mlp'\n"
    "hidden = [512, 512, 512, 512]\n[optimizer]\nlr = 1e-2\n[train]\nbatch = 8\nepochs = 2\nlog_every = 1\n"
    "micro_batches = 2\ntest_every = 0\n[parallel]\nbucket_mib = 1\n";

// One bucket in the whole model, and one batch, to be learnt by heart.
const std::string narrow =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 8\ncosmology.test_volumes = "
    "4\ncosmology.augment = false\n[model]\nkind = 'mlp'\n"
    "hidden = [40, 30, 20]\n[optimizer]\nlr = 1e-2\n[train]\nbatch = 8\nepochs = 40\nlog_every = 1\n"
    "micro_batches = 2\ntest_every = 0\n";

settings_list with(settings_list set, const settings_list& more) {
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

const settings_list grid{"parallel.pipeline=2", "parallel.data=2"};

std::vector<double> losses_of(int ranks, const settings_list& set, const std::string& text) {
    const temporary_folder folder;
    train(ranks, {.out = folder / "run", .resume = {}, .max_steps = -1}, set, text);
    return losses(folder / "run");
}

void check_equal_buckets(const std::vector<std::string>& kinds) {
    for (const std::string& kind : kinds) {
        CAPTURE(kind);
        const settings_list set{concat("compress.kind=", kind)};
        const std::vector<double> expected = losses_of(2, set, wide);
        REQUIRE(expected.size() == 4);
        CHECK(losses_of(4, with(grid, set), wide) == expected);
    }
}

}  // namespace

TEST_CASE("pipeline compression: equal buckets give the bits of data parallelism alone", "[session]") {
    check_equal_buckets({"topk", "qsgd", "powersgd"});
}

TEST_CASE("pipeline compression: equal buckets, every compressor", "[.exhaustive]") {
    check_equal_buckets({"none", "bf16", "fp16", "topk", "sampled_topk", "dgc", "randomk", "qsgd", "natural", "sign",
                         "onebit", "powersgd", "powersgd_alternating", "error_bounded"});
}

TEST_CASE("pipeline compression: casts give these bits with any buckets", "[session]") {
    for (const char* kind : {"bf16", "fp16"}) {
        CAPTURE(kind);
        const settings_list set{concat("compress.kind=", kind)};
        CHECK(losses_of(4, with(grid, set), narrow) == losses_of(2, set, narrow));
    }
}

TEST_CASE("pipeline compression: other buckets choose other values, and train as well", "[session]") {
    const std::vector<double> dense = losses_of(2, {}, narrow);
    REQUIRE(dense.size() == 40);
    REQUIRE(dense.back() < 0.2 * dense.front());
    const std::vector<std::pair<settings_list, double>> learnt{{{"compress.kind=topk", "compress.ratio=0.1"}, 0.2},
                                                               {{"compress.kind=powersgd", "compress.rank=2"}, 0.2},
                                                               {{"compress.kind=sign"}, 0.5}};
    for (const auto& [set, part] : learnt) {
        CAPTURE(set.front());
        const std::vector<double> flat = losses_of(2, set, narrow), got = losses_of(4, with(grid, set), narrow);
        CHECK(got != flat);  // the largest of each stage's bucket are not those of all
        CHECK(flat.back() < part * flat.front());
        CHECK(got.back() < part * got.front());
    }
}

TEST_CASE("pipeline compression: residuals are part of the state", "[session]") {
    const settings_list set = with(grid, {"compress.kind=topk", "compress.ratio=0.05"});
    const temporary_folder folder;
    train(4, {.out = folder / "whole", .resume = {}, .max_steps = -1}, set, narrow);
    train(4, {.out = folder / "cut", .resume = {}, .max_steps = 7}, set, narrow);
    const auto residuals = [&](const char* run) {
        std::set<std::string> names;
        for (const std::string& name : test::newest_entries(folder / run))
            if (name.starts_with("compression/") && !test::contains(name, "/padding/")) names.insert(name);
        return names;
    };
    const std::set<std::string> of_parameters = residuals("cut");
    REQUIRE(of_parameters.contains("compression/residual/fc1/weight"));
    train(4, {.out = {}, .resume = folder / "cut", .max_steps = -1}, {}, narrow);
    CHECK(losses(folder / "cut") == losses(folder / "whole"));

    // Another mesh has other buckets and other ranks: it gets them by parameter, and their sum stays.
    for (const auto& [ranks, more] : std::vector<std::pair<int, settings_list>>{
             {2, {"parallel.pipeline=1"}},
             {4, {"parallel.pipeline=1", "parallel.data=4"}},
             {1, {"parallel.pipeline=1", "parallel.data=1", "compress.kind=none"}}}) {
        const std::string run = concat("other", ranks);
        train(4, {.out = folder / run, .resume = {}, .max_steps = 7}, set, narrow);
        train(ranks, {.out = {}, .resume = folder / run, .max_steps = 8}, more, narrow);
        CHECK(losses(folder / run).size() == 8);
        if (ranks > 1) CHECK(residuals(run.c_str()) == of_parameters);
    }
}

}  // namespace pipeline_compression
