// Which settings of a workload file are in force where the command line names another optimizer.

#include "catch.hpp"
#include "messages.hpp"
#include "train/compiled_session.hpp"
#include "train/descent.hpp"

namespace cairn {

namespace {

constexpr const char* file_of_sgd = R"(
[optimizer]
kind = "sgd"
lr = 0.05
momentum = 0.8
clip_norm = 1.0

[optimizer.adam]
lr = 3e-3
beta1 = 0.7

[optimizer.kfac]
lr = 0.02

[kfac]
damping = 0.5
)";

struct chosen {
    configuration settings;
    std::vector<std::string> left_out;

    double number(const std::string& path) { return settings.get(path, -1.0, any_number); }
};

chosen choose(const std::vector<std::string>& sets, const char* file = file_of_sgd) {
    chosen c{configuration::from_text(file), {}};
    for (const std::string& assignment : sets) c.settings.set(assignment);
    c.left_out = choose_optimizer<cpu>(c.settings);
    return c;
}

using paths = std::vector<std::string>;

}  // namespace

TEST_CASE("optimizer settings: a file's own kind has what the file sets") {
    chosen c = choose({});
    CHECK(c.left_out.empty());
    CHECK(c.number("optimizer.lr") == 0.05);
    CHECK(c.number("optimizer.momentum") == 0.8);
    CHECK_FALSE(c.settings.has("optimizer.adam.lr"));
    CHECK_FALSE(c.settings.has("kfac.damping"));
    CHECK(choose({"optimizer.kind=sgd"}).number("optimizer.lr") == 0.05);
}

TEST_CASE("optimizer settings: another kind has its table, or its defaults, and what is of no kind") {
    chosen adam = choose({"optimizer.kind=adam"});
    CHECK(adam.left_out == paths{"optimizer.lr", "optimizer.momentum"});
    CHECK(adam.number("optimizer.lr") == 3e-3);
    CHECK(adam.number("optimizer.beta1") == 0.7);
    CHECK(adam.number("optimizer.clip_norm") == 1);
    CHECK_FALSE(adam.settings.has("optimizer.momentum"));

    chosen muon = choose({"optimizer.kind=muon"});
    CHECK(muon.left_out == paths{"optimizer.clip_norm", "optimizer.lr", "optimizer.momentum"});  // for gradients
    CHECK(muon.number("optimizer.lr") == 0.02);
    CHECK(choose({"optimizer.kind=adamw"}).number("optimizer.lr") == 1e-3);
    CHECK(choose({"optimizer.kind=soap"}).number("optimizer.lr") == 3e-3);
    CHECK(choose({"optimizer.kind=lars"}).number("optimizer.lr") == 0.1);
}

TEST_CASE("optimizer settings: a kind's table may set what is of other sections, by whole paths") {
    const char* const file =
        "[train]\nbatch = 8\nepochs = 2\n[optimizer]\nkind = 'adam'\nlr = 1\n"
        "[optimizer.kfac]\nlr = 2\ntrain.batch = 64\nlr_schedule.kind = 'constant'\n"
        "[optimizer.sgd]\ntrain.batch = 4\n";
    chosen kfac = choose({"optimizer.kind=kfac"}, file);
    CHECK(kfac.number("train.batch") == 64);
    CHECK(kfac.number("train.epochs") == 2);
    CHECK(kfac.number("optimizer.lr") == 2);
    CHECK(kfac.settings.has("lr_schedule.kind"));
    CHECK(choose({}, file).number("train.batch") == 8);
    CHECK(choose({"optimizer.kind=sgd"}, file).number("train.batch") == 4);
    CHECK(choose({"optimizer.kind=kfac", "train.batch=16"}, file).number("train.batch") == 16);
}

TEST_CASE("optimizer settings: a file's table of K-FAC is for its step size") {
    const char* const file = "[optimizer]\nkind = 'adam'\n[kfac]\nstep_size = 'quadratic_model'\ndamping = 1\n";
    CHECK(choose({"optimizer.kind=kfac"}, file).number("kfac.damping") == 1);
    CHECK(choose({"optimizer.kind=kfac", "kfac.step_size=quadratic_model"}, file).number("kfac.damping") == 1);
    chosen graft = choose({"optimizer.kind=kfac", "kfac.step_size=graft", "kfac.form=eigen"}, file);
    CHECK(graft.left_out == paths{"kfac.damping"});
    CHECK_FALSE(graft.settings.has("kfac.damping"));
    CHECK(graft.settings.has("kfac.form"));
    CHECK(choose({"optimizer.kind=kfac", "kfac.step_size=clip"}).left_out == paths{"kfac.damping"});
}

TEST_CASE("optimizer settings: the command line comes before every table") {
    chosen c = choose({"optimizer.kind=adam", "optimizer.lr=7", "optimizer.momentum=0.1"});
    CHECK(c.left_out.empty());
    CHECK(c.number("optimizer.lr") == 7);
    CHECK(c.number("optimizer.beta1") == 0.7);
    CHECK(c.settings.has("optimizer.momentum"));  // an error later: adam has none
    CHECK(choose({"optimizer.kind=adam", "optimizer.adam.lr=8"}).number("optimizer.lr") == 8);
    CHECK(choose({"optimizer.kind=sgd", "kfac.damping=1"}).settings.has("kfac.damping"));  // likewise
}

TEST_CASE("optimizer settings: K-FAC and Shampoo come before the file's optimizer, with all that it has") {
    chosen kfac = choose({"optimizer.kind=kfac"});
    CHECK(kfac.left_out.empty());
    CHECK(optimizer_of_steps<cpu>(kfac.settings) == "sgd");
    CHECK(kfac.number("optimizer.lr") == 0.02);  // of its table
    CHECK(kfac.number("optimizer.momentum") == 0.8);
    CHECK(kfac.number("kfac.damping") == 0.5);

    chosen shampoo = choose({"optimizer.kind=shampoo"}, "[optimizer]\nkind = 'adam'\nlr = 1e-4\nbeta2 = 0.9\n");
    CHECK(optimizer_of_steps<cpu>(shampoo.settings) == "adam");
    CHECK(shampoo.number("optimizer.lr") == 1e-4);
    CHECK(shampoo.number("optimizer.beta2") == 0.9);

    chosen other = choose({"optimizer.kind=kfac", "optimizer.base=lamb"}, "[optimizer]\nkind = 'soap'\nlr = 1e-4\n");
    CHECK(other.left_out == paths{"optimizer.lr"});
    CHECK(other.number("optimizer.lr") == 1e-3);
}

TEST_CASE(
    "optimizer settings: K-FAC's directions are as long as gradients, or of unit length where those are divided by") {
    parameter<float> p;
    p.shape = {2, 3};
    arena<float> weights(parameter_list<float>{{"p", &p}}, 1);
    any_communicator alone = self_communicator{};
    const auto length = [&](const char* base) {
        configuration settings = configuration::from_text("optimizer.kind = 'kfac'");
        settings.set(concat("optimizer.base=", base));
        const auto made = make_preconditioner(settings, weights, alone);
        return dynamic_cast<const kfac<float>&>(*made).config().length;
    };
    for (const char* base : {"sgd", "lars"}) CHECK(length(base) == direction_length::of_gradient);
    for (const char* base : {"adam", "adamw", "lamb"}) CHECK(length(base) == direction_length::unit);
}

TEST_CASE("optimizer settings: a user's kind has what the file sets, and its table") {
    chosen c = choose({"optimizer.kind=descent"});
    CHECK(c.left_out.empty());
    CHECK(c.number("optimizer.lr") == 0.05);
    CHECK(c.number("optimizer.momentum") == 0.8);
    CHECK(choose({"optimizer.kind=descent"}, "[optimizer]\nlr = 1\n[optimizer.descent]\nlr = 2\n")
              .number("optimizer.lr") == 2);
}

TEST_CASE("optimizer settings: a table of an unknown kind is an error") {
    const std::string file = "data.format='mnist'\nmodel.kind='lenet'\n[optimizer.adm]\nlr = 1\n";
    CHECK_THROWS_WITH((run_parts<>(configuration::from_text(file),
                                   {.out = {}, .resume = {}, .max_steps = 1, .generated = true}, self_communicator{})),
                      Catch::Contains("optimizer.adm.lr"));
}

}  // namespace cairn
