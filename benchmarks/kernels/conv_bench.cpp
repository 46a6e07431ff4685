// Convolutions: every algorithm and the chosen one, all phases, on the layers of real networks (conv_layers.hpp), in
// float and in bfloat16.
//   kernels --benchmark_filter=conv/resnet18_cifar/.*/forward
//   kernels --benchmark_filter=conv_bf16/resnet18_cifar/.*/chosen
// Counters: effective GFLOP/s of the fastest iteration, counting the direct algorithm's operations whatever runs
// (Winograd can so be above 100 %), and percent of the measured matrix peak of the type and as many threads.
#include <benchmark/benchmark.h>

#include "conv_layers.hpp"

#include <cairn/device/cpu/conv.hpp>
#include <cairn/perf/machine.hpp>

#include <algorithm>
#include <string>

namespace {

using cairn::conv_phase;
using cairn::conv_detail::algorithm;

// a = −1: whatever the registry chooses. Operands of T, the result of R.
template <class T, class R>
void time(benchmark::State& state, const cairn::conv_geometry& g, conv_phase phase, int a,
          const cairn::conv_detail::operands<T, R>& o) {
    const algorithm chosen = a < 0 ? cairn::conv_detail::choose(phase, g, o) : static_cast<algorithm>(a);
    if (a < 0) state.SetLabel(cairn::conv_detail::algorithm_names[static_cast<std::size_t>(chosen)]);
    cairn::conv_detail::run(chosen, phase, g, o);
    double fastest = 1e300;
    for (auto _ : state) {
        const cairn::stopwatch watch;
        cairn::conv_detail::run(chosen, phase, g, o);
        benchmark::ClobberMemory();
        fastest = std::min(fastest, watch.seconds());
    }
    const double gflops = 1e-9 * g.flops() / fastest;
    state.counters["GFLOP/s"] = gflops;
    state.counters["%peak"] = 100 * gflops / cairn::perf::measured_matrix_peak<T>().gflops;
}

template <class T>
void run(benchmark::State& state, const kernels::conv_layer& layer, conv_phase phase, int a) {
    const cairn::conv_geometry& g = layer.g;
    if (a >= 0 && !cairn::conv_detail::applies<T>(static_cast<algorithm>(a), g, phase)) {
        state.SkipWithError("does not apply to this shape");
        return;
    }
    auto x = cairn::tensor<T>::filled({g.x_elements()}, 0.5f), w = cairn::tensor<T>::filled({g.w_elements()}, 0.25f),
         y = cairn::tensor<T>::filled({g.y_elements()}, 0.125f);
    auto dw = cairn::tensor<float>::filled({g.w_elements()}, 0.25f);
    using cairn::conv_detail::operands;
    if (phase == conv_phase::forward)
        time(state, g, phase, a, operands<T>{x.data(), w.data(), nullptr, y.data()});
    else if (phase == conv_phase::backward_input)
        time(state, g, phase, a, operands<T>{y.data(), w.data(), nullptr, x.data()});
    else
        time(state, g, phase, a, operands<T, float>{x.data(), y.data(), nullptr, dw.data()});
}

template <class T>
bool enter(const std::string& family) {
    static const auto layers = kernels::conv_layers();
    for (const auto& layer : layers)
        for (const auto phase : {conv_phase::forward, conv_phase::backward_input, conv_phase::backward_weight}) {
            if (layer.first && phase == conv_phase::backward_input) continue;
            const auto add = [&](const char* name, int a) {
                const std::string title =
                    family + '/' + layer.network + '/' + layer.name + '/' + cairn::name_of(phase) + '/' + name;
                benchmark::RegisterBenchmark(
                    title.c_str(), [&layer, phase, a](benchmark::State& state) { run<T>(state, layer, phase, a); })
                    ->UseRealTime()
                    ->Unit(benchmark::kMillisecond);
            };
            for (const auto a :
                 {algorithm::direct, algorithm::winograd4, algorithm::winograd2, algorithm::tiled, algorithm::im2col}) {
                if (a == algorithm::direct && !cairn::onednn::available) continue;
                if ((a == algorithm::winograd4 && !cairn::winograd_applies(layer.g, 4)) ||
                    (a == algorithm::winograd2 && !cairn::winograd_applies(layer.g, 2)))
                    continue;
                add(cairn::conv_detail::algorithm_names[static_cast<std::size_t>(a)], static_cast<int>(a));
            }
            add("chosen", -1);
        }
    return true;
}

const bool registered = enter<float>("conv") && enter<cairn::bfloat16>("conv_bf16");

}  // namespace
