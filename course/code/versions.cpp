// Code of course/versions.md: training that keeps versions of its state, with a state of one's own beside the model's.

#include <cairn/core/arena.hpp>
#include <cairn/core/random.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/state/saved_state.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace cairn;

/// One step on 16 samples that follow from the step's number.
void descend(sequential<float>& net, arena<float>& weights, bound_optimizer<adam, float>& optimizer,
             std::int64_t step) {
    const random_stream random{.seed = 1, .step = static_cast<std::uint32_t>(step)};
    tensor<float> x({16, 64}), y({16, 8});
    for (index_t i = 0; i < x.size(); ++i) x[i] = random.normal(static_cast<std::uint64_t>(i));
    for (index_t i = 0; i < y.size(); ++i) y[i] = std::tanh(x[8 * i] - x[8 * i + 1]);
    saved_tensors<float> saved;
    weights.zero_grad();
    auto [loss, dy] = mean_squared{}(net.forward(x.clone(), saved, {}), y);
    net.backward(std::move(dy), saved, {});
    optimizer.step(1e-2f);
}

// --8<-- [start:train]
/// Trains until step `last`, from the newest version in `states` on where there is one. Returns the mean weights.
std::vector<float> train(const std::filesystem::path& states, std::int64_t last) {
    sequential<float> net;
    net.add("layer", linear<float>({.in = 64, .out = 8}));
    arena<float> weights(net.parameters(), 1);
    bound_optimizer optimizer(adam{}, weights);
    tensor<float> mean = weights.values().clone();  // a state of one's own: an exponential mean of the weights
    std::int64_t step = 0;

    state_view state;  // names and places: what is saved, and what is loaded
    state.add("model", weights.parameters());
    state.add("optimizer", optimizer.tensors());
    state.add("optimizer_steps", optimizer.steps());
    state.add("mean", mean);
    state.add("step", step);

    if (const auto versions = list_versions(states); !versions.empty()) {  // the newest first
        const std::filesystem::path& newest = versions.front().directory;
        saved_state::of_packs(newest, own_packs(read_manifest(newest))).load(state);
        std::printf("goes on from step %lld\n", static_cast<long long>(step));
    }
    version_writer writer({.states = states, .attempt = new_attempt()}, start_helper());
    while (step < last) {
        descend(net, weights, optimizer, step);
        for (index_t i = 0; i < mean.size(); ++i) mean[i] += 0.1f * (weights.values()[i] - mean[i]);
        ++step;
        writer.decide(writer.votes());  // is the one before on disk?
        if (step % 10 == 0 && !writer.in_flight()) writer.capture(step, state, "{}");
    }
    return {mean.data(), mean.data() + mean.size()};
}
// --8<-- [end:train]

int main() {
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / concat("cairn-versions-", ::getpid());
    std::filesystem::create_directory(folder);
    // --8<-- [start:kill]
    const std::vector<float> whole = train(folder / "whole", 50);
    train(folder / "killed", 25);  // as if it were killed there: the newest version is of step 20, or of 10
    const std::vector<float> resumed = train(folder / "killed", 50);
    std::printf("%s\n", whole == resumed ? "the same bits" : "other bits");
    // --8<-- [end:kill]
    require(whole == resumed, "a resumed run has other bits");
    std::filesystem::remove_all(folder);
}
