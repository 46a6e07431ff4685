// Training that diverges with finite numbers: it is seen, says what grew and what to set, and its state is kept.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"

namespace cairn {

namespace {

const std::string growing_volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 64\ncosmology.test_volumes = 4\n"
    "[model]\nkind = 'mlp'\nhidden = [8]\n[optimizer]\nlr = 1e-3\n[train]\nbatch = 8\nepochs = 8\n";

nlohmann::json train_growing(const std::filesystem::path& out, const std::string& more, bool resume = false) {
    configuration settings = configuration::from_text(growing_volumes);
    if (resume) settings = configuration::from_file(out / "config.toml");
    for (const std::string& assignment : {more}) settings.set(assignment);
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

TEST_CASE("divergence: a run whose loss grows stops with its state saved, and says what to set", "[session]") {
    const ::temporary_folder dir;
    const std::string message = test::message_of([&] { train_growing(dir / "run", "optimizer.lr=0.5"); });
    CHECK_THAT(message, Catch::Contains("training diverges") && Catch::Contains("of the weights ") &&
                            Catch::Contains("--set optimizer.lr=0.05"));
    CHECK(std::filesystem::exists(dir / "run" / "state.cairn"));
    CHECK_THAT(test::message_of([&] { train_growing(dir / "run", "optimizer.lr=0.5", true); }),
               Catch::Contains("training diverges"));  // its start is that of the run
    CHECK_THAT(test::message_of([&] { train_growing(dir / "run", "train.divergence=ignore", true); }),
               Catch::Contains("loss is inf"));
    CHECK(train_growing(dir / "slow", "optimizer.lr=0.005")["finished"] == true);
}

}  // namespace cairn
