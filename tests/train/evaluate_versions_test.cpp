// Several versions of a network on one test set: figures of each, and of the mean of their predictions, by plain loops.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/reconstruction.hpp>
#include <cairn/objectives/regression.hpp>
#include <cairn/train/mean_prediction.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace cairn::evaluate_versions_test {

// Three epochs of three steps; ten test samples in batches of four.
const std::string maps =
    "name = 'maps'\n[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 12\n"
    "cosmology.test_volumes = 10\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\nnormalise = true\n"
    "[optimizer]\nkind = 'adam'\nlr = 1e-2\n[train]\nbatch = 4\nepochs = 3\n[state]\nkeep = ['every 1 epoch']\n";

nlohmann::json evaluated(int ranks, const std::vector<std::filesystem::path>& versions, bool fresh = false,
                         const std::string& more = "", const std::string& filters = "filters = 2") {
    session_options options;
    options.evaluate = versions;
    options.fresh_statistics = fresh;
    std::string text = maps + more;
    text.replace(text.find("filters = 2"), 11, filters);
    nlohmann::json result;
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        session<> s(configuration::from_text(text), options, any_communicator(c.split(0, c.rank())));
        nlohmann::json mine = s.evaluate();
        if (c.rank() == 0) result = std::move(mine);
    });
    return result;
}

TEST_CASE("mean of predictions: probabilities of classes, by plain loops", "[evaluate]") {
    constexpr index_t count = 6, classes = 4;
    constexpr int networks = 3;
    target_info info;
    info.names.assign(classes, "class");
    const any_objective<> goal = classification{{info, {}}};
    batch b;
    b.count = count;
    b.labels = tensor<std::int32_t>({count});
    const random_stream random{1, 2, 3};
    std::vector<double> probabilities(count * classes);
    mean_prediction mean(goal.averages());
    for (int n = 0; n < networks; ++n) {
        tensor<float> y({count, classes});
        for (index_t i = 0; i < y.size(); ++i)
            y[i] = 4 * static_cast<float>(random.normal(static_cast<std::uint64_t>(n * 100 + i)));
        for (index_t i = 0; i < count; ++i) {
            double sum = 0;
            for (index_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(y[i * classes + k]));
            for (index_t k = 0; k < classes; ++k)
                probabilities[static_cast<std::size_t>(i * classes + k)] +=
                    std::exp(static_cast<double>(y[i * classes + k])) / sum / networks;
        }
        mean.add(y.slice(0, {4, classes}));
        mean.add(y.slice(4 * classes, {2, classes}));
        mean.next_network();
    }
    double nats = 0, hits = 0;
    for (index_t i = 0; i < count; ++i) {
        b.labels[i] = static_cast<std::int32_t>(random.below(classes, static_cast<std::uint64_t>(1000 + i)));
        const auto row = probabilities.begin() + i * classes;
        nats -= std::log(row[b.labels[i]]);
        hits += std::max_element(row, row + classes) - row == b.labels[i];
    }
    evaluation e = goal.start();
    goal.add(e, mean.output<cpu>({4, classes}), device_batch<>(samples_of(b, range{0, 4})));
    goal.add(e, mean.output<cpu>({2, classes}), device_batch<>(samples_of(b, range{4, 2})));
    CHECK(e.loss() == Approx(nats / count).epsilon(1e-5));
    CHECK(goal.metrics(e).front() == std::pair<std::string, double>("accuracy", hits / count));
    CHECK_THROWS_WITH(mean.output<cpu>({2, classes}), Catch::Contains("batch 2"));
    CHECK_THROWS_WITH(mean_prediction(any_objective<>(reconstruction{}).averages()), Catch::Contains("one by one"));
}

TEST_CASE("versions: figures of each as in its own run, of their mean as of the mean outputs", "[evaluate]") {
    const temporary_folder folder;
    const auto run = folder / "run";
    const nlohmann::json end = test::train(1, {.out = run, .resume = {}, .max_steps = -1}, {}, maps);
    const auto version = [&](const char* step) { return locate_version(run.string() + "@" + step).version.directory; };
    const std::vector<std::filesystem::path> both{version("3"), version("9")};
    const nlohmann::json one = evaluated(1, both);
    CHECK(one["versions"][1]["test_loss"] == end["test_loss"]);
    CHECK(one["versions"][0]["test_loss"] == test::metrics_of(run, "test_loss").front());
    CHECK(one["mean"]["samples"] == 10);

    // The same by hand.
    run_parts<> parts(configuration::from_text(maps), {.out = {}, .resume = {}, .max_steps = -1},
                      any_communicator(self_communicator{}));
    run_progress progress;
    version_reader<cpu, float> reader(parts, progress);
    std::vector<double> outputs;
    for (const auto& directory : both) {
        reader.load_network(directory);
        std::size_t at = 0;
        evaluate(parts.update.algorithm->stages(), parts.update.algorithm->goal(), *parts.batches.test(), {}, 1,
                 [&](tensor<float> y, const batch&) {
                     for (index_t i = 0; i < y.size(); ++i, ++at) {
                         if (at == outputs.size()) outputs.push_back(0);
                         outputs[at] += static_cast<double>(y[i]) / 2;
                     }
                     return y;
                 });
    }
    double squares = 0;
    std::size_t at = 0;
    while (auto b = parts.batches.test()->next())
        for (index_t i = 0; i < b->host.targets.size(); ++i, ++at) {
            const double error = outputs[at] - static_cast<double>(b->host.targets[i]);
            squares += error * error;
        }
    REQUIRE(at == outputs.size());
    CHECK(one["mean"]["test_loss"].get<double>() == Approx(squares / static_cast<double>(at)).epsilon(1e-5));

    for (const int ranks : {2, 3}) {
        const nlohmann::json more = evaluated(ranks, both);
        CHECK(more["mean"]["samples"] == 10);
        CHECK(more["mean"]["test_loss"].get<double>() == Approx(one["mean"]["test_loss"].get<double>()).epsilon(1e-4));
    }
    const nlohmann::json two = evaluated(2, both, false, "[parallel]\npipeline = 2\n");
    CHECK(two["mean"]["test_loss"].get<double>() == Approx(one["mean"]["test_loss"].get<double>()).epsilon(1e-4));
    CHECK(!evaluated(1, {both[0]}).contains("mean"));
    const nlohmann::json fresh = evaluated(1, {both[0]}, true);
    CHECK(fresh["versions"][0]["test_loss"] != one["versions"][0]["test_loss"]);
    CHECK(fresh["versions"][0]["test_loss"].get<double>() < 10);
    CHECK_THAT(test::message_of([&] { evaluated(1, both, false, "", "filters = 3"); }),
               Catch::Contains("another network") && Catch::Contains("conv"));
}

TEST_CASE("epochs: a run that stops after some has the state of one that goes on", "[session]") {
    const temporary_folder folder;
    const std::string text = maps + "[lr_schedule]\nkind = 'one_cycle'\n";
    test::train(1, {.out = folder / "whole", .resume = {}, .max_steps = -1}, {}, text);
    session_options some{.out = folder / "some", .resume = {}, .max_steps = -1};
    some.max_epochs = 2;
    CHECK(test::train(1, some, {}, text)["steps"] == 6);
    const auto digests = [&](const char* name) {  // where in the data they are, they say in two ways
        std::vector<std::uint64_t> all;
        const auto directory = locate_version((folder / name).string() + "@6").version.directory;
        for (const manifest::tensor& of : read_manifest(directory).tensors)
            if (of.name.starts_with("model/") || of.name.starts_with("optimizer/")) all.push_back(of.digest);
        return all;
    };
    CHECK(digests("some").size() > 10);
    CHECK(digests("some") == digests("whole"));
}

}  // namespace cairn::evaluate_versions_test
