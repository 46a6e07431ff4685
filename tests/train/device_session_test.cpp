// A run with its network on another device (the emulated GPU) is the host's: losses, figures, saved states, resumed runs.

#include "catch.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "messages.hpp"

#include <cairn/device/cuda/activation.hpp>
#include <cairn/device/cuda/batch_norm.hpp>
#include <cairn/device/cuda/dropout.hpp>
#include <cairn/device/cuda/embedding.hpp>
#include <cairn/device/cuda/layer_norm.hpp>
#include <cairn/device/cuda/pool.hpp>
#include <cairn/device/cuda/softmax.hpp>
#include <cairn/train/session.hpp>

#include <unistd.h>
#include <filesystem>

namespace cairn {

namespace {

struct folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / concat("cairn_device_session_", ::getpid());
    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }
};

// Workloads of the three tasks, small enough for a GPU made of coroutines.
const std::vector<std::string> workloads{
    "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'adam'\nlr = 1e-3\n"
    "[loss]\nlabel_smoothing = 0.1\n",
    "[data]\nformat = 'mnist'\n[model]\nkind = 'autoencoder'\nhidden = [8, 4]\n[loss]\nkind = 'reconstruction'\n"
    "[optimizer]\nlr = 1e-5\n",
    "[data]\nformat = 'cosmology'\nsize = 8\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\nnormalise = "
    "true\n[optimizer]\nlr = 1e-4\n"};

configuration settings_of(const std::string& workload) {
    configuration settings = configuration::from_text(workload);
    for (const char* more :
         {"train.batch=6", "train.micro_batches=2", "train.seed=3", "train.test_every=0", "train.log_every=1"})
        settings.set(more);
    return settings;
}

struct run_figures {
    std::vector<double> losses;
    std::vector<tensor<float>> weights;
};

template <Device D>
run_figures run(const std::string& workload, session_options options) {
    options.generated = true;
    session<D> s(settings_of(workload), options);
    s.train();
    run_figures figures;
    std::ifstream in((options.resume.empty() ? options.out : options.resume) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
        figures.losses.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    for (const auto& [name, p] : s.model().params()) figures.weights.push_back(p->value.on_host());
    return figures;
}

double distance(const run_figures& a, const run_figures& b) {
    double most = 0;
    REQUIRE(a.losses.size() == b.losses.size());
    REQUIRE(a.weights.size() == b.weights.size());
    for (std::size_t i = 0; i < a.losses.size(); ++i)
        most = std::max(most, std::abs(a.losses[i] - b.losses[i]) / (1 + std::abs(b.losses[i])));
    for (std::size_t i = 0; i < a.weights.size(); ++i)
        for (index k = 0; k < a.weights[i].size(); ++k)
            most = std::max(most, static_cast<double>(std::abs(a.weights[i][k] - b.weights[i][k])));
    return most;
}

}  // namespace

TEST_CASE("session: on another device a run gives the host's losses and weights", "[train]") {
    for (std::size_t w = 0; w < workloads.size(); ++w) {
        CAPTURE(workloads[w]);
        const folder dir;
        const run_figures host = run<cpu>(workloads[w], {.out = dir.path / "host", .resume = {}, .max_steps = 3}),
                          device = run<emulated_gpu>(workloads[w],
                                                     {.out = dir.path / "device", .resume = {}, .max_steps = 3});
        CHECK(host.losses.size() == 3);
        CHECK(distance(device, host) < 1e-4);  // float sums in another order, three steps
    }
}

TEST_CASE("session: on another device a resumed run has the bits of one that was not stopped", "[train]") {
    const folder dir;
    const auto whole = run<emulated_gpu>(workloads[0], {.out = dir.path / "whole", .resume = {}, .max_steps = 4});
    run<emulated_gpu>(workloads[0], {.out = dir.path / "parts", .resume = {}, .max_steps = 2});
    const auto parts = run<emulated_gpu>(workloads[0], {.out = {}, .resume = dir.path / "parts", .max_steps = 4});
    CHECK(whole.losses.size() == 4);
    CHECK(distance(parts, whole) == 0);
    // What a device saved, the host goes on with.
    run<emulated_gpu>(workloads[0], {.out = dir.path / "moved", .resume = {}, .max_steps = 2});
    const auto moved = run<cpu>(workloads[0], {.out = {}, .resume = dir.path / "moved", .max_steps = 4});
    CHECK(distance(moved, whole) < 1e-4);
}

TEST_CASE("session: what a device cannot do yet is refused", "[train]") {
    const auto refused = [](const char* setting) {
        return test::message_of([&] {
            configuration settings = settings_of(workloads[0]);
            settings.set(setting);
            session<emulated_gpu>(settings, {.out = {}, .resume = {}, .generated = true});
        });
    };
    CHECK(test::contains(refused("optimizer.kind=kfac"), "runs on the host alone"));
    CHECK(test::contains(refused("train.non_finite=skip"), "take stop"));
    CHECK(test::contains(refused("train.stash=sqrt"), "take keep"));
}

}  // namespace cairn
