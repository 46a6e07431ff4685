// Updates of 25 million parameters, the size of ResNet-50: bytes that the formulas must move, per second, and their
// share of a copy measured in the same program. Part of the program `kernels`.

#include <benchmark/benchmark.h>

#include <cairn/core/arena.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace cairn;

constexpr cairn::index_t values = 25'000'000, layers = 50;

/// Fifty parameters of equal size.
struct layers_of_parameters {
    std::vector<parameter<float>> list{static_cast<std::size_t>(layers)};
    std::unique_ptr<arena<float>> memory;

    layers_of_parameters() {
        parameter_list<float> names;
        for (std::size_t i = 0; i < list.size(); ++i) {
            list[i].shape = {values / layers};
            list[i].init = {initializer::distribution::constant, 0.0, 0.5};
            names.push_back({concat("layer", i), &list[i]});
        }
        memory = std::make_unique<arena<float>>(names, 1);
        for_each([](float& g) { g = 1e-3f; }, memory->grads());
    }
};

/// Bytes per second of a copy between two arrays of this size: the best of ten.
double copy_bandwidth() {
    static const double bandwidth = [] {
        const auto from = tensor<float>::filled({values}, 1.0f, memory_category::workspace);
        auto to = tensor<float>::filled({values}, 0.0f, memory_category::workspace);
        double best = 1e300;
        for (int run = 0; run < 10; ++run) {
            const stopwatch watch;
            for_each([](float& b, float a) { b = a; }, to, from);
            best = std::min(best, watch.seconds());
        }
        return 2.0 * static_cast<double>(from.bytes()) / best;
    }();
    return bandwidth;
}

/// `bytes`: what the formula moves for one float, as its header says; the norm of the gradient adds 4.
template <class O>
void step(benchmark::State& run, O o, double bytes) {
    layers_of_parameters model;
    bound_optimizer opt(o, *model.memory);
    opt.step(1e-6);
    for (auto _ : run) opt.step(1e-6);
    const double moved = static_cast<double>(values) * (bytes + 4) * static_cast<double>(run.iterations());
    using benchmark::Counter;
    run.counters["GB/s"] = Counter(moved * 1e-9, Counter::kIsRate);
    run.counters["%_of_copy"] = Counter(100 * moved / copy_bandwidth(), Counter::kIsRate);
}

BENCHMARK_CAPTURE(step, sgd, sgd{{.weight_decay = 5e-4}}, 20)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, sgd_clipped, (clipped{sgd{{.weight_decay = 5e-4}}, by_norm{1}}), 20)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, adam, adam{}, 28)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, adamw, adamw{}, 28)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, lars, lars{}, 28)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, lamb, lamb{}, 40)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
