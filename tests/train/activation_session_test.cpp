// Runs whose activations are packed between forward and backward: resumed, on several ranks and in micro-batches as any
// other, planned for a limit of memory, and refused.

#include "catch.hpp"
#include "sanitized.hpp"
#include "train/thread_runs.hpp"

namespace activation_sessions {

using namespace cairn;
using test::losses;
using test::settings_list;

namespace {

const std::string workload =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 64\ncosmology.test_volumes = "
    "8\n[model]\nkind = 'cosmoflow'\nfilters = 8\n"
    "blocks = 2\nnormalise = true\n[optimizer]\nkind = 'adam'\nlr = 1e-3\n[loss]\nkind = 'mse'\n"
    "[train]\nbatch = 16\nepochs = 2\nlog_every = 1\nactivation_memory = 'compress'\n";

nlohmann::json train(int ranks, const session_options& options, const settings_list& set) {
    return test::train(ranks, options, set, workload);
}
std::string why(const settings_list& set) { return test::why(1, set, workload); }

}  // namespace

TEST_CASE("packed activations: a resumed run has the numbers of one that was not stopped", "[session]") {
    const temporary_folder folder;
    const std::vector<std::pair<int, settings_list>> runs{
        {1, {}},
        {1, {"train.micro_batches=2"}},
        {1, {"optimizer.kind=kfac"}},
        {2, {}},
        {2, {"parallel.pipeline=2", "train.micro_batches=2"}},
        {1, {"train.activation_memory=auto", "train.memory_limit_mb=2"}}};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        settings_list set = runs[i].second;
        const int ranks = runs[i].first;
        const bool planned =
            !set.empty() && set[0] == "train.activation_memory=auto";  // by time: no two plans are alike
        set.push_back(concat("activations.audit_interval=", planned ? 100 : 3));
        CAPTURE(ranks, set);
        const auto whole = folder / concat("whole", i), stopped = folder / concat("stopped", i);
        train(ranks, {.out = whole, .resume = {}, .max_steps = -1}, set);
        train(ranks, {.out = stopped, .resume = {}, .max_steps = 5}, set);
        CHECK(train(ranks, {.out = {}, .resume = stopped, .max_steps = -1}, set)["finished"] == true);
        CHECK(losses(whole).size() == 8);
        if (!planned) CHECK(losses(stopped) == losses(whole));
    }
}

TEST_CASE("packed activations: a pipeline has the bits of one rank with its micro-batches", "[session]") {
    const std::string residual_network =
                          "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\n"
                          "lr = 0.05\n",
                      sentences =
                          "[data]\nformat = 'text'\ntext.length = 8\n[model]\nkind = 'transformer'\n"
                          "embedding_dim = 16\nheads = 2\nblocks = 2\nffn_dim = 32\n[optimizer]\nlr = 1e-2\n";
    int runs = 0;
    for (const std::string& text : {workload, residual_network, sentences})
        for (const char* codec : {"activations.codec=bounded", "activations.codec=group"}) {
            const temporary_folder folder;
            const auto run = [&](int ranks, settings_list set) {
                set.insert(set.end(),
                           {codec, "train.batch=8", "train.micro_batches=4", "train.epochs=1", "train.log_every=1",
                            "train.activation_memory=compress", "activations.audit_interval=2", "train.test_every=0"});
                const auto out = folder / concat("run", ranks, set.front().size(), set.size());
                test::train(ranks, {.out = out, .resume = {}, .max_steps = 3, .generated = true}, set, text);
                return losses(out);
            };
            const std::vector<double> one = run(1, {"parallel.pipeline=1"});
            CHECK(one.size() == 3);
            for (const settings_list& stages : {settings_list{"parallel.pipeline=2"},
                                                {"parallel.schedule=gpipe", "parallel.pipeline=3"},
                                                {"parallel.schedule=zb_v", "parallel.pipeline=2"},
                                                {"parallel.pipeline=6"}}) {
                if (test::sanitized && ++runs % 3) continue;  // all of them without
                CAPTURE(text, codec, stages);
                CHECK(run(stages.back().back() - '0', stages) == one);
            }
        }
}

TEST_CASE("packed activations: layers that are cut over ranks are heard by the audit", "[session]") {
    const auto run = [](int ranks, settings_list set) {
        const temporary_folder folder;
        set.push_back("model.normalise=false");
        train(ranks, {.out = folder / "run", .resume = {}, .max_steps = 4}, set);
        return losses(folder / "run");
    };
    for (const settings_list& memory :
         {settings_list{}, settings_list{"train.activation_memory=auto", "train.memory_limit_mb=64"}}) {
        CAPTURE(memory);
        settings_list cut = memory;
        cut.push_back("parallel.tensor=2");
        const std::vector<double> one = run(1, memory), two = run(2, cut);
        REQUIRE(two.size() == one.size());
        for (std::size_t i = 0; i < one.size(); ++i) CHECK(two[i] == Approx(one[i]).epsilon(0.02));
    }
}

TEST_CASE("packed activations: a run goes on without what its record has settings for", "[session]") {
    const temporary_folder folder;
    const auto go_on = [&](const settings_list& set) {
        return test::message_of([&] { train(1, {.out = {}, .resume = folder / "run", .max_steps = -1}, set); });
    };
    train(1, {.out = folder / "run", .resume = {}, .max_steps = 5}, {"lr_schedule.kind=one_cycle"});
    CHECK(test::contains(go_on({"train.activation_memory=keep", "activations.audit_interval=3"}),
                         "--set activations.audit_interval: setting 'activations.audit_interval' is not known"));
    CHECK(go_on({"train.activation_memory=keep", "lr_schedule.kind=constant"}).empty());
    const std::string record = test::text_of(folder / "run" / "config.toml");
    CHECK(!test::contains(record, "[activations]"));
    CHECK(!test::contains(record, "pct_start"));
}

TEST_CASE("packed activations: fewer bytes wait for backward than kept ones", "[session]") {
    const temporary_folder folder;
    train(1, {.out = folder / "keep", .resume = {}, .max_steps = 2}, {"train.activation_memory=keep"});
    train(1, {.out = folder / "packed", .resume = {}, .max_steps = 2}, {});
    const auto keep = test::metrics_of(folder / "keep", "saved_bytes"),
               packed = test::metrics_of(folder / "packed", "saved_bytes");
    REQUIRE(keep.size() == 2);
    REQUIRE(packed.size() == 2);
    CHECK(packed[1] < 0.35 * keep[1]);
}

TEST_CASE("activation memory: limits that cannot be, and auto without one", "[session]") {
    CHECK(test::contains(why({"train.activation_memory=auto"}), "set train.memory_limit_mb"));
    CHECK(test::contains(
        why({"train.activation_memory=auto", "train.memory_limit_mb=64", "parallel.pipeline=1", "train.batch=1"}),
        "take a larger train.batch"));
    const std::string small = why({"train.activation_memory=keep", "train.memory_limit_mb=1", "train.batch=64"});
    CAPTURE(small);
    CHECK(test::contains(small, "1048576 allowed to this rank"));
}

}  // namespace activation_sessions
