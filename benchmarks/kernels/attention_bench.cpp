// Attention: fused, forward and backward, on the shapes of small language models.
//   kernels --benchmark_filter=attention/
// Counters: GFLOP/s of the fastest iteration, counting pairs that attend to each other alone, and percent of the
// measured matrix peak of as many threads; milliseconds of that iteration. Beside libtorch:
// benchmarks/compare_attention.
#include <benchmark/benchmark.h>

#include <cairn/core/clock.hpp>
#include <cairn/core/random.hpp>
#include <cairn/device/cpu/attention.hpp>
#include <cairn/perf/machine.hpp>

#include <algorithm>
#include <string>

namespace {

void run(benchmark::State& state, cairn::attention_geometry g, bool forward) {
    const cairn::index_t n = g.batch * g.length * g.width();
    cairn::tensor<float> qkv({3 * n}), dy({n}), y({n}), lse({g.batch * g.heads * g.length}), dqkv({3 * n});
    const cairn::random_stream random{1, 2, 3};
    for (cairn::index_t i = 0; i < 3 * n; ++i)
        qkv[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    std::copy_n(qkv.data(), n, dy.data());
    g.stride = 3 * g.width();
    const float* const q = qkv.data();
    float* const dq = dqkv.data();
    const cairn::index_t w = g.width();
    const auto call = [&](bool first) {
        if (first)
            cairn::attention_forward(cairn::cpu{}, g, q, q + w, q + 2 * w, y.data(), lse.data());
        else
            cairn::attention_backward(cairn::cpu{}, g, q, q + w, q + 2 * w, y.data(), lse.data(), dy.data(), dq, dq + w,
                                      dq + 2 * w);
    };
    call(true);
    double fastest = 1e300;
    for (auto _ : state) {
        const cairn::stopwatch watch;
        call(forward);
        benchmark::ClobberMemory();
        fastest = std::min(fastest, watch.seconds());
    }
    const double gflops = 1e-9 * (forward ? g.forward_flops() : g.backward_flops()) / fastest;
    state.counters["GFLOP/s"] = gflops;
    state.counters["fastest_ms"] = 1e3 * fastest;
    state.counters["%peak"] = 100 * gflops / cairn::perf::measured_matrix_peak().gflops;
}

const bool registered = [] {
    for (const cairn::attention_geometry& g :
         {cairn::attention_geometry{.batch = 16, .length = 128, .heads = 4, .head_dim = 32, .causal = true},
          cairn::attention_geometry{.batch = 4, .length = 512, .heads = 12, .head_dim = 64},
          cairn::attention_geometry{.batch = 1, .length = 2048, .heads = 12, .head_dim = 64, .causal = true}})
        for (const bool forward : {true, false})
            benchmark::RegisterBenchmark(
                cairn::concat("attention/", g.batch, 'x', g.length, " of ", g.heads, 'x', g.head_dim,
                              g.causal ? " causal/" : "/", forward ? "forward" : "backward")
                    .c_str(),
                [g, forward](benchmark::State& state) { run(state, g, forward); })
                ->UseRealTime()
                ->Unit(benchmark::kMillisecond);
    return true;
}();

}  // namespace
