// Runs whose model is a pipeline: the numbers of one rank with the same micro-batches, and states that any mesh reads.

#include "catch.hpp"
#include "train/thread_runs.hpp"

namespace pipeline_sessions {

using namespace cairn;

namespace {

const std::string workload =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 24\ncosmology.test_volumes = "
    "8\n[model]\nkind = 'cosmoflow'\nfilters = 2\n"
    "blocks = 2\nnormalise = true\n[optimizer]\nkind = 'adam'\nlr = 1e-3\nclip_norm = 0.3\n"
    "[train]\nbatch = 8\nepochs = 2\nlog_every = 1\nmicro_batches = 4\n";

nlohmann::json train(int ranks, const session_options& options, const test::settings_list& set,
                     const std::string& text = workload) {
    return test::train(ranks, options, set, text);
}

std::string why(int ranks, const test::settings_list& set, const std::string& text = workload, std::int64_t steps = 1) {
    return test::why(ranks, set, text, steps);
}

using test::losses;
using test::settings_list;

}  // namespace

TEST_CASE("pipeline session: the bits of one rank with the same micro-batches", "[session]") {
    const temporary_folder folder;
    for (const char* optimizer : {"adam", "lamb"}) {
        const std::string rule = concat("optimizer.kind=", optimizer);
        const auto one = train(1, {.out = folder / concat("one", optimizer), .resume = {}, .max_steps = -1}, {rule});
        const std::vector<double> expected = losses(folder / concat("one", optimizer));
        REQUIRE(expected.size() == 6);
        for (const settings_list& set : {settings_list{"parallel.pipeline=2"},
                                         {"parallel.pipeline=2", "parallel.schedule=zb_v"},
                                         {"parallel.pipeline=4", "parallel.schedule=zb_h1"}}) {
            const std::string name = concat(optimizer, set.back());
            CAPTURE(name);
            settings_list all = set;
            all.push_back(rule);
            const int ranks = set.front().back() - '0';
            const auto got = train(ranks, {.out = folder / name, .resume = {}, .max_steps = -1}, all);
            CHECK(losses(folder / name) == expected);
            CHECK(got["test_loss"] == one["test_loss"]);
            CHECK(got["train_loss"] == one["train_loss"]);
        }
    }
}

TEST_CASE("pipeline plan: the stages of a rank keep to its limit of memory together", "[session]") {
    const planned_unit fixed{.costs = {1, 1, 1}, .parameters = 90.0 / 16}, saved{.costs = {1, 1, 1}, .saved_bytes = 90};
    for (const char* schedule : {"zb_v", "interleaved"}) {
        CAPTURE(schedule);
        const parallel_axes axes{.pipeline = 2, .schedule = schedule, .virtual_stages = 2};
        const auto why = [&](const planned_unit& unit, double limit) {
            return test::message_of([&] { plan_pipeline(std::vector<planned_unit>(4, unit), axes, 4, limit); });
        };
        CHECK(test::contains(why(fixed, 100), "the 2 stages of pipeline rank 0 take 180 bytes together, 100 are"));
        CHECK(why(fixed, 180).empty());
        const double peak =
            peak_saved(schedule_from(schedule, {2, 4, 2}, {}), 0, std::vector<saved_bytes>(4, {90, 90}));
        CHECK(!why(saved, peak - 1).empty());
        CHECK(why(saved, peak).empty());
        CHECK(why(fixed, 0).empty());
    }
}

TEST_CASE("pipeline session: ResNet-20 in 2, 4 and 8 stages", "[session]") {
    const temporary_folder folder;
    const std::string text =
        "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 20\n[optimizer]\nlr = 0.05\n"
        "[train]\nbatch = 8\nlog_every = 1\nmicro_batches = 4\ntest_every = 0\n";
    const auto run = [&](int ranks, const settings_list& set) {
        const auto out = folder / concat("run", ranks);
        train(ranks, {.out = out, .resume = {}, .max_steps = 3, .generated = true}, set, text);
        return losses(out);
    };
    const std::vector<double> expected = run(1, {});
    REQUIRE(expected.size() == 3);
    for (const int ranks : {2, 4, 8}) {
        CAPTURE(ranks);
        CHECK(run(ranks, {concat("parallel.pipeline=", ranks)}) == expected);
    }
}

TEST_CASE("pipeline session: a state of one mesh goes on at another", "[session]") {
    const temporary_folder folder;
    train(1, {.out = folder / "whole", .resume = {}, .max_steps = -1}, {});
    const std::vector<double> expected = losses(folder / "whole");
    const settings_list grid{"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1"};
    train(4, {.out = folder / "grid", .resume = {}, .max_steps = 3}, grid);
    train(1, {.out = {}, .resume = folder / "grid", .max_steps = -1}, {"parallel.pipeline=1", "parallel.data=0"});
    const std::vector<double> got = losses(folder / "grid");
    REQUIRE(got.size() == expected.size());
    // Statistics of batch norm are those of micro-batches half as large.
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(0.2));

    // The same mesh of a pipeline alone: bit for bit, there and back.
    train(1, {.out = folder / "there", .resume = {}, .max_steps = 2}, {});
    train(2, {.out = {}, .resume = folder / "there", .max_steps = 4}, {"parallel.pipeline=2"});
    train(1, {.out = {}, .resume = folder / "there", .max_steps = 5}, {"parallel.pipeline=1"});
    train(4, {.out = {}, .resume = folder / "there", .max_steps = -1},
          {"parallel.pipeline=4", "parallel.schedule=gpipe"});
    CHECK(losses(folder / "there") == expected);
}

TEST_CASE("pipeline session: a data axis beside it adds what one rank adds", "[session]") {
    const temporary_folder folder;
    const std::string plain = workload + "[parallel]\noverlap = true\n";
    const settings_list no_norm{"model.normalise=false"};
    train(1, {.out = folder / "one", .resume = {}, .max_steps = -1}, no_norm, plain);
    const std::vector<double> expected = losses(folder / "one");
    for (const settings_list& more : {settings_list{},
                                      {"parallel.zero_stage=2"},
                                      {"train.activation_memory=recompute"},
                                      {"train.non_finite=skip"}}) {
        settings_list set{"model.normalise=false", "parallel.pipeline=2"};
        set.insert(set.end(), more.begin(), more.end());
        const std::string name = concat("run", set.size(), more.empty() ? "" : more.front());
        CAPTURE(name);
        train(4, {.out = folder / name, .resume = {}, .max_steps = -1}, set, plain);
        const std::vector<double> got = losses(folder / name);
        REQUIRE(got.size() == expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-4));
    }
}

TEST_CASE("pipeline session: what does not fit is refused with what to do", "[session]") {
    CHECK(test::contains(why(2, {"parallel.pipeline=3"}), " = 3 does not divide the number of ranks, 2"));
    CHECK(test::contains(why(2, {"parallel.data=4"}), "need 4 ranks, there are 2"));
    CHECK(test::contains(why(2, {"parallel.pipeline=2", "parallel.schedule=zigzag"}), "no schedule \"zigzag\""));
    CHECK(test::contains(why(2, {"parallel.pipeline=2", "parallel.schedule=dualpipe"}), "two copies of every stage"));
    CHECK(test::contains(why(2, {"parallel.pipeline=2", "parallel.schedule=dualpipe_v", "train.micro_batches=2"}),
                         "parallel.schedule: "));
    CHECK(test::contains(why(2, {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.virtual_stages=40",
                                 "train.micro_batches=4"}),
                         "80 stages, but the model has"));
    CHECK(test::contains(why(4, {"parallel.pipeline=2", "optimizer.kind=kfac", "parallel.zero_stage=1"}),
                         "needs whole gradients on every rank"));
    CHECK(test::contains(why(2, {"parallel.pipeline=2", "train.batch=2"}), "train.micro_batches"));
    const std::string diverged = why(
        2, {"parallel.pipeline=2", "optimizer.lr=1e30", "optimizer.clip_norm=0", "optimizer.kind=sgd"}, workload, 4);
    CAPTURE(diverged);
    CHECK(test::contains(diverged, "step 2: rank 0 of 2: gradient of conv1"));
    CHECK(test::contains(diverged, "no rank took the step"));
}

TEST_CASE("pipeline session: the plan names stages, bytes and bubble", "[session]") {
    std::string text;
    run_ranks(4, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        configuration settings = configuration::from_text(workload);
        for (const char* s : {"parallel.pipeline=2", "parallel.data=2"}) settings.set(s);
        session<> run(std::move(settings), {.out = {}, .resume = {}, .max_steps = -1},
                      any_communicator(c.split(0, c.rank())));
        const std::string plan = run.plan();
        if (c.rank() == 0) text = plan;
    });
    CAPTURE(text);
    CHECK(test::contains(text, "pipeline 2 x data 2"));
    CHECK(test::contains(text, "rank 3: pipeline 1 data 1"));
    CHECK(test::contains(text, "schedule 1f1b, 4 micro-batches, 2 stages"));
    CHECK(test::contains(text, "stage 1 on pipeline rank 1"));
    CHECK(test::contains(text, "predicted bubble"));
}

TEST_CASE("pipeline session: a profile has what each stage costs, and changes no step", "[session]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (const std::string schedule : {"1f1b", "zb_v"}) {
        const int stages = schedule == "zb_v" ? 4 : 2;
        nlohmann::json profile;
        bool same_steps = false;
        run_ranks(2, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& c) {
            const auto make = [&] {
                configuration settings = configuration::from_text(workload);
                settings.set("parallel.pipeline=2");
                settings.set("parallel.schedule=" + schedule);
                return std::make_unique<run_parts<>>(std::move(settings),
                                                     session_options{.out = {}, .resume = {}, .generated = true},
                                                     any_communicator(c.split(0, c.rank())));
            };
            const auto profiled = make(), plain = make();
            const pipeline_profile p = profile_pipeline(*profiled, 2);
            auto b = plain->batches.train->next();
            for (int i = 0; i < 2; ++i) plain->update.trainer->step({*b, plain->task.micro_batches});
            if (c.rank() != 0) return;
            profile = to_json(p);
            same_steps =
                std::ranges::equal(profiled->model.weights->values().span(), plain->model.weights->values().span());
        });
        CAPTURE(schedule, profile.dump());
        CHECK(same_steps);
        REQUIRE(profile["costs"].size() == static_cast<std::size_t>(stages));
        for (const auto& of_stage : profile["costs"])
            for (const char* half : {"forward_s", "input_s", "weight_s"}) CHECK(of_stage[half].get<double>() > 0);
        CHECK(profile["simulated_s"].get<double>() > 0);
        CHECK(profile["measured_s"].get<double>() > 0);
        CHECK(profile["step_s"].get<double>() >= profile["measured_s"].get<double>());
        CHECK(profile["waited_s"].size() == 2);
    }
}

}  // namespace pipeline_sessions
