// Optimizers with curvature on inputs that they seldom meet (odd_inputs.hpp), and K-FAC that goes on with other rules.

#include "train/odd_inputs.hpp"
#include "sanitized.hpp"

namespace cairn {

TEST_CASE("odd inputs: second-order optimizers train on them, or stop with a reason", "[session]") {
    for (const std::string kind : {"kfac", "shampoo", "soap", "muon"})
        for (const test::odd_case& c : test::odd_cases()) {
            const ::temporary_folder dir;
            INFO(kind << ", " << c.name);
            test::check_end(test::train_odd<cpu>(dir / "run", c, kind));
        }
}

TEST_CASE("odd inputs: every form of K-FAC trains on them, or stops with a reason", "[session]") {
    int runs = 0;
    for (const std::string set :
         {"kfac.form=eigen", "kfac.step_size=clip", "kfac.step_size=quadratic_model", "kfac.fisher=mc",
          "kfac.norm_layers=true", "kfac.max_size=1", "kfac.skip=[\"fc\"]", "kfac.skip=[\"1\"]", "kfac.damping=1e-12",
          "kfac.scaling=kfac_pytorch", "kfac.inverse_staleness=5"})
        for (const test::odd_case& c : test::odd_cases()) {
            if (set == "kfac.fisher=mc" && c.set.size() > 1 && c.set[1] == "loss.kind=scaled") continue;  // draws none
            if (test::sanitized && ++runs % 4) continue;  // all of them without
            const ::temporary_folder dir;
            INFO(set << ", " << c.name);
            test::check_end(test::train_odd<cpu>(dir / "run", c, "kfac", {"optimizer.lr=0.01", set}));
        }
}

TEST_CASE("odd inputs: K-FAC goes on with another rule for its damping", "[session]") {
    for (const test::settings_of_case& then : std::vector<test::settings_of_case>{
             {"kfac.damping=1"}, {"kfac.step_size=clip"}, {"kfac.step_size=quadratic_model"}, {"kfac.form=eigen"}}) {
        const ::temporary_folder dir;
        CAPTURE(then);
        REQUIRE(test::train_odd<cpu>(dir / "run", {"drawn", {}}, "kfac", {"optimizer.lr=0.01"}).reason.empty());
        configuration s = configuration::from_file(dir / "run" / "config.toml");
        for (const std::string& one : then) s.set(one);
        const std::string reason = test::message_of(
            [&] { session<>(std::move(s), {.out = {}, .resume = dir / "run", .max_steps = 60}).train(); });
        if (then[0] == "kfac.damping=1" || then[0] == "kfac.step_size=clip")
            CHECK(reason.empty());
        else
            CHECK_THAT(reason, Catch::Contains("kfac"));
    }
}

TEST_CASE("odd inputs: the record says what K-FAC preconditions, and how often its guards acted", "[session]") {
    const ::temporary_folder dir;
    const auto record_of = [&](const char* run, const test::settings_of_case& set) {
        test::train_odd<cpu>(dir / run, {"drawn", {}}, "kfac", set, 20);
        std::ifstream in(dir / run / "record.json");
        return nlohmann::json::parse(in);
    };
    const nlohmann::json clipped = record_of("clipped", {"kfac.step_size=clip", "kfac.kl_clip=1e-9"}),
                         skipped = record_of("skipped", {"kfac.skip=[\"fc1\"]"}),
                         promising = record_of("promising", {"kfac.step_size=quadratic_model", "kfac.damping=1e-4"});
    CHECK(clipped["result"]["guards"] == nlohmann::json({{"shortened_steps", 20},
                                                         {"rejected_statistics", 0},
                                                         {"retried_decompositions", 0},
                                                         {"kept_decompositions", 0}}));
    CHECK(clipped["preconditions"] == "kfac preconditions 103 of 103 parameters, those of 2 layers");
    CHECK(skipped["result"]["guards"]["shortened_steps"] == 0);
    CHECK(promising["result"]["guards"]["shortened_steps"] > 0);
    CHECK(skipped["preconditions"] == "kfac preconditions 18 of 103 parameters, those of 1 layer");
}

}  // namespace cairn
