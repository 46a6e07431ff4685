// Training that diverges with finite numbers: it is seen, says what grew and what to set, and its state is kept.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"
#include "train/saved_states.hpp"

namespace cairn {

namespace {

const std::string growing_volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 64\ncosmology.test_volumes = 4\n"
    "[model]\nkind = 'mlp'\nhidden = [8]\n[optimizer]\nlr = 1e-3\n[train]\nbatch = 8\nepochs = 8\n";

nlohmann::json train_growing(const std::filesystem::path& out, const std::vector<std::string>& more,
                             bool resume = false) {
    configuration settings = configuration::from_text(growing_volumes);
    if (resume) settings = configuration::from_file(out / "config.toml");
    for (const std::string& assignment : more) settings.set(assignment);
    session<> s(std::move(settings), resume ? session_options{.out = {}, .resume = out, .max_steps = -1}
                                            : session_options{.out = out, .resume = {}, .max_steps = -1});
    return s.train();
}

}  // namespace

TEST_CASE("divergence: the start is a mean of 32 samples, and a spike is none of it") {
    divergence_watch w;
    CHECK_FALSE(w.take(1, 16));
    CHECK_FALSE(w.take(3, 16));
    CHECK(w.start == 2);
    for (int i = 0; i < 20; ++i) CHECK_FALSE(w.take(2, 16));
    CHECK_FALSE(w.take(60, 16));  // a batch that is badly off
    for (int i = 0; i < 20; ++i) CHECK_FALSE(w.take(2, 16));
    bool seen = false;
    int steps = 0;
    for (double loss = 2; !seen && steps < 50; ++steps) seen = w.take(loss *= 1.2, 16);
    CHECK(seen);
    CHECK(w.of_late() > 10);

    divergence_watch at_once;
    CHECK_FALSE(at_once.take(2, 64));
    CHECK(at_once.take(1e10, 64));
    divergence_watch without_multiples;
    CHECK_FALSE(without_multiples.take(0, 64));
    CHECK_FALSE(without_multiples.take(5, 64));
}

TEST_CASE("divergence: a run that diverges before its start is measured is seen") {
    divergence_watch second_step;
    CHECK_FALSE(second_step.take(1, 16));
    CHECK(second_step.take(1e10, 16));
    CHECK(second_step.start < 5);
}

TEST_CASE("divergence: single samples whose losses differ by thousands are none") {
    divergence_watch w;
    const random_stream random{1, 2, 3};
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const double x = random.normal(i);
        REQUIRE_FALSE(w.take(x * x * x * x, 1));
    }
    CHECK(w.most > 1);
}

TEST_CASE("divergence: a run whose loss grows stops, says what to set, and goes on from its last good state",
          "[session]") {
    const ::temporary_folder dir;
    const std::string message = test::message_of([&] { train_growing(dir / "run", {"optimizer.lr=0.5"}); });
    CHECK_THAT(message, Catch::Contains("step ") && Catch::Contains("training diverges") &&
                            Catch::Contains("of the weights fc") && Catch::Contains("--set optimizer.lr=0.005") &&
                            Catch::Contains("--set optimizer.clip_norm=1") && Catch::Contains("from step 0"));
    CHECK_FALSE(test::has_state(dir / "run"));
    CHECK_THAT(test::message_of([&] { train_growing(dir / "run", {}, true); }), Catch::Contains("training diverges"));
    CHECK_THAT(test::message_of([&] { train_growing(dir / "run", {"train.divergence=ignore"}, true); }),
               Catch::Contains("loss is inf"));
    CHECK(train_growing(dir / "run", {"train.divergence=stop", "optimizer.lr=0.005"}, true)["finished"] == true);

    // Growing from the fifth epoch on: the states of epochs before stay.
    const std::vector<std::string> rising{"lr_schedule.kind=one_cycle", "lr_schedule.pct_start=1", "train.epochs=12",
                                          "lr_schedule.initial_fraction=1e-4", "optimizer.lr=0.1"};
    const std::string later = test::message_of([&] { train_growing(dir / "later", rising); });
    CHECK_THAT(later, Catch::Contains("training diverges") && !Catch::Contains("from step 0"));
    CHECK(test::has_state(dir / "later"));
    CHECK(train_growing(dir / "later", {"optimizer.lr=0.005"}, true)["finished"] == true);
}

TEST_CASE("divergence: numbers that are not finite name the same ways out", "[session]") {
    const ::temporary_folder dir;
    CHECK_THAT(test::message_of([&] { train_growing(dir / "run", {"optimizer.lr=1e30"}); }),
               Catch::Contains("step 2: loss is ") && Catch::Contains("of the weights ") &&
                   Catch::Contains("--set optimizer.lr=1e+28"));
}

TEST_CASE("divergence: what makes steps too long is set before the rate") {
    const auto of = [](const char* text, std::int64_t steps) {
        configuration s = configuration::from_text(text);
        const auto [first, second] = remedies_of_divergence(s, steps);
        return first + ' ' + second;
    };
    CHECK(of("[optimizer]\nlr = 2.0\n", 8) == "optimizer.lr=0.2 optimizer.clip_norm=1");
    CHECK(of("[optimizer]\nlr = 2.0\nclip_norm = 1.0\n", 3) == "optimizer.lr=0.02 lr_schedule.kind=one_cycle");
    CHECK(of("[optimizer]\nlr = 2.0\nmomentum = 0.999\n", 20) == "optimizer.momentum=0.9 optimizer.lr=0.2");
    CHECK(of("[optimizer]\nkind = 'kfac'\nlr = 2.0\n[kfac]\nstep_size = 'clip'\n", 20) ==
          "kfac.step_size=graft optimizer.lr=0.2");
}

}  // namespace cairn
