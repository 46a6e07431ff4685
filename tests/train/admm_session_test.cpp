// Runs that train by ADMM: saved, resumed and recorded as any other, on one rank and on layers over ranks, and refused
// before any training where they cannot be.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/thread_runs.hpp"

#include <cairn/data/array_dataset.hpp>

#include <limits>

namespace admm_session_tests {

using namespace cairn;
using test::settings_list;

// Values of small volumes by an MLP; classes of generated digits are in other tests.
const std::string volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 24\ncosmology.test_volumes = "
    "6\ncosmology.augment = false\n"
    "[model]\nkind = 'mlp'\nhidden = [12, 10]\n[train]\nepochs = 4\nlog_every = 1\n[admm]\nrho = 0.1\nmu = 1e-3\n";

nlohmann::json run(int ranks, const std::filesystem::path& out, const settings_list& set, std::int64_t steps = -1) {
    return test::train(ranks, {.out = out, .resume = {}, .max_steps = steps}, set, volumes);
}
nlohmann::json resume(int ranks, const std::filesystem::path& run, const settings_list& set = {}) {
    return test::train(ranks, {.out = {}, .resume = run, .max_steps = -1}, set, volumes);
}

void check_same(const nlohmann::json& a, const nlohmann::json& b) {
    for (const char* figure : {"train_loss", "test_loss", "steps", "finished"}) CHECK(a.at(figure) == b.at(figure));
}

TEST_CASE("session: ADMM's runs are recorded, and go on with the same bits", "[train]") {
    for (const settings_list& set : {settings_list{"train.algorithm=dladmm"},
                                     {"train.algorithm=pdadmm"},
                                     {"train.algorithm=dladmm", "admm.solver=gradient", "admm.adaptive_rho=growing"},
                                     {"train.algorithm=pdadmm", "admm.acceleration=anderson"},
                                     {"train.algorithm=pdadmm", "admm.quantise=qsgd", "admm.proximal=true"}}) {
        CAPTURE(set.back());
        const temporary_folder folder;
        const nlohmann::json whole = run(1, folder / "whole", set);
        CHECK(whole["finished"] == true);
        CHECK(whole["steps"] == 4);
        CHECK(whole["algorithm"] == set[0].substr(set[0].find('=') + 1));
        run(1, folder / "part", set, 2);
        check_same(resume(1, folder / "part"), whole);
        CHECK(test::losses(folder / "part") == test::losses(folder / "whole"));
        const std::string metrics = test::text_of(folder / "whole" / "metrics.jsonl");
        for (const char* figure : {"\"residual\"", "\"rho\"", "\"split_loss\"", "\"gflop\"", "\"test_loss\""})
            CHECK(test::contains(metrics, figure));
    }
}

TEST_CASE("session: pdADMM's layers over ranks have the bits of one rank, and read each other's states", "[train]") {
    const temporary_folder folder;
    for (const settings_list& set :
         {settings_list{"train.algorithm=pdadmm"}, {"train.algorithm=pdadmm", "admm.acceleration=anderson"}}) {
        const std::string name = set.back();
        const nlohmann::json alone = run(1, folder / (name + "1"), set);
        check_same(run(2, folder / (name + "2"), set), alone);
        check_same(run(3, folder / (name + "3"), set), alone);
        run(2, folder / (name + "part"), set, 2);
        check_same(resume(1, folder / (name + "part"), {"parallel.pipeline=1"}), alone);
        run(1, folder / (name + "other"), set, 2);
        check_same(resume(3, folder / (name + "other"), {"parallel.pipeline=3"}), alone);
    }
}

TEST_CASE("session: classes, convolutions and a validation split", "[train]") {
    const temporary_folder folder;
    const std::string digits =
        "[data]\nformat = 'mnist'\ntrain_samples = 100\nvalidation = 50\n[model]\nkind = 'cnn'\nfilters = [2]\n"
        "[train]\nalgorithm = 'dladmm'\nepochs = 2\n";
    session<> s(configuration::from_text(digits),
                {.out = folder / "run", .resume = {}, .max_steps = -1, .generated = true});
    const nlohmann::json done = s.train();
    CHECK(done["training_samples"] == 100);
    CHECK(done.contains("test_accuracy"));
}

std::string why(int ranks, settings_list set, const std::string& text = volumes) {
    if (std::ranges::none_of(set, [](const std::string& s) { return s.starts_with("train.algorithm"); }))
        set.insert(set.begin(), "train.algorithm=pdadmm");
    return test::why(ranks, set, text);
}

TEST_CASE("session: what ADMM cannot train is refused before training", "[train]") {
    CHECK(test::contains(why(1, {"model.kind=cosmoflow", "model.filters=2", "model.blocks=1"}), "cannot be split"));
    CHECK(test::contains(why(1, {"train.batch=4"}), "works on all 24 training samples"));
    CHECK(test::contains(why(1, {"data.cosmology.augment=true"}), "change from epoch to epoch"));
    CHECK(test::contains(why(2, {"train.algorithm=dladmm"}), "start one rank, or take pdadmm"));
    CHECK(test::contains(why(4, {}), "4 ranks, but the model has 3 layers to split; start at most 3 (mpirun -np 3)"));
    CHECK(test::contains(why(2, {"parallel.data=2", "parallel.pipeline=1"}), "puts layers on ranks"));
    CHECK(test::contains(why(1, {"admm.acceleration=anderson", "admm.quantise=bf16"}), "take one of the two"));
    CHECK(test::contains(why(1, {"train.algorithm=dladmm", "admm.acceleration=relaxation"}), "take anderson"));
    CHECK(test::contains(why(1, {"train.algorithm=dladmm", "admm.nu=1"}), "admm.nu"));
    CHECK(test::contains(why(1, {"admm.rho=0"}), "admm.rho"));
}

// A sensor that failed once.
struct broken_points : array_dataset {
    broken_points()
        : array_dataset(tensor<float>::filled({5, 3}, 1), tensor<std::int32_t>::zeros({5}), {"a", "b"}, "points") {}
    bool read(index_t i, augment_key key, sample_slot slot) const {
        const bool good = array_dataset::read(i, key, slot);
        if (i == 2) slot.x[1] = std::numeric_limits<float>::quiet_NaN();
        return good;
    }
};

TEST_CASE("admm: samples that are no numbers are named", "[train]") {
    const any_dataset data{broken_points()};
    CHECK(test::contains(test::message_of([&] { read_all_samples(data, 1, "pdadmm"); }),
                         "pdadmm: training sample points #2: value 1 is nan"));
}

}  // namespace admm_session_tests
