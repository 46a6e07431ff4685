// A header's entries are known by their names; a program includes that header alone.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"
#include "train/descent.hpp"

#include <fstream>

namespace cairn {

namespace {

const std::string workload =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 8\n[model]\nkind = 'mlp'\nhidden = "
    "[5]\n[train]\nbatch = 4\n"
    "epochs = 3\ntest_every = 0\nlog_every = 1\n[optimizer]\nlr = 1e-2\n";

std::vector<double> losses_with(const std::string& optimizer) {
    const temporary_folder folder;
    session<> s(configuration::from_text(workload + optimizer),
                {.out = folder / "run", .resume = {}, .max_steps = -1, .generated = false});
    s.train();
    std::vector<double> losses;
    std::ifstream in(folder / "run" / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) losses.push_back(nlohmann::json::parse(line)["loss"]);
    return losses;
}

struct other_entry {
    static constexpr const char* name = "descent";
};

}  // namespace

TEST_CASE("registry: a user's optimizer trains by its name", "[registry]") {
    const auto plain = losses_with("kind = 'sgd'\nmomentum = 0.0\n");
    CHECK(plain.size() == 6);
    const auto same = losses_with("kind = 'descent'\n");
    REQUIRE(same.size() == plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same[i] == Approx(plain[i]).epsilon(1e-6));  // fused or not
    CHECK(losses_with("kind = 'descent'\nslowness = 2.0\n") != plain);
    CHECK(losses_with("kind = 'kfac'\nbase = 'descent'\n").size() == 6);
    const std::string why = test::message_of([] { losses_with("kind = 'descend'\n"); });
    CHECK(test::contains(why, "optimizer.kind: 'descend' is not known; did you mean 'descent'?"));
    CHECK(test::contains(why, "sgd, adam, adamw, lars, lamb"));
    CHECK(test::contains(test::message_of([] { losses_with("kind = 'descent'\nslownes = 2\n"); }), "slowness"));
}

TEST_CASE("registry: every concept lists what it knows", "[registry]") {
    const auto why = [](const std::string& text) {
        return test::message_of([&] {
            session<> s(configuration::from_text(text), {.out = {}, .resume = {}, .max_steps = -1, .generated = true});
        });
    };
    CHECK(test::contains(why("[data]\nformat = 'mnits'\n"), "did you mean 'mnist'"));
    CHECK(test::contains(why("[data]\nformat = 'mnits'\n"),
                         "(mnist, cifar10, cifar100, folder, quijote, cosmology, text"));
    CHECK(test::contains(why("[data]\nformat = 'mnist'\n[model]\nkind = 'lnet'\n"), "did you mean 'lenet'"));
    CHECK(test::contains(why(workload + "[compress]\nkind = 'topp'\n"), "(none, bf16, fp16, topk, sampled_topk, dgc"));
    CHECK(test::contains(why(workload + "[lr_schedule]\nkind = 'cos'\n"),
                         "(one_cycle, cosine, step, polynomial, constant)"));
    CHECK(test::contains(why("[model]\nkind = 'mlp'\n"), "'data.format' is missing"));
}

TEST_CASE("registry: one entry may be made in several files, two of one name may not", "[registry]") {
    registry<int> all;
    all.add("descent", typeid(user::descent_entry), 1);
    all.add("descent", typeid(user::descent_entry), 1);
    CHECK(all.at("optimizer.kind", "descent") == 1);
    CHECK(all.names().size() == 1);
    all.add("other", typeid(other_entry), 2);
    all.add("descent", typeid(other_entry), 3);
    CHECK(test::contains(test::message_of([&] { all.at("optimizer.kind", "descent"); }), "two headers"));
    CHECK(all.at("optimizer.kind", "other") == 2);
}

TEST_CASE("registry: what adds in parts is known to the autotuner as such", "[registry]") {
    configuration settings = configuration::from_text("[compress]\nratio = 0.5\n");
    const auto kind = [&](const char* name) {
        return compressors<cpu>::global().at("compress.kind", name)(settings).kind;
    };
    for (const char* name : {"bf16", "fp16", "randomk", "powersgd", "powersgd_alternating"})
        CHECK(kind(name) == exchange::all_reduce);
    for (const char* name : {"topk", "sampled_topk", "dgc", "qsgd", "natural", "error_bounded"})
        CHECK(kind(name) == exchange::all_gather);
    for (const char* name : {"sign", "onebit"}) CHECK(kind(name) == exchange::two_phase);
    settings.set("compress.error_feedback=false");
    CHECK(kind("sign") == exchange::all_gather);
}

}  // namespace cairn
