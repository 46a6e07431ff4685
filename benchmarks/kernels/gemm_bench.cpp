// GEMM: every kernel and the chosen one, on the products of real layers, in float and in bfloat16.
//   kernels --benchmark_filter=gemm/
//   kernels --benchmark_filter=gemm_bf16/
// Counters: GFLOP/s of the fastest iteration, and percent of the measured matrix peak of the type and as many threads.
#include <benchmark/benchmark.h>

#include <cairn/device/cpu/gemm.hpp>
#include <cairn/perf/machine.hpp>

#include <algorithm>
#include <string>

namespace {

struct product {
    const char* what;
    bool trans_a, trans_b;
    cairn::index_t m, n, k;
};

constexpr product products[] = {
    {"square", false, false, 1024, 1024, 1024},
    {"resnet50_1x1_forward", false, true, 50176, 256, 64},
    {"resnet50_1x1_backward_input", false, false, 50176, 64, 256},
    {"resnet50_1x1_backward_weight", true, false, 256, 64, 50176},
    {"resnet50_1x1_late", false, true, 784, 2048, 512},
    {"im2col_3x3", false, true, 4096, 64, 576},
    {"autoencoder", false, true, 128, 1000, 784},
    {"autoencoder_weight", true, false, 1000, 784, 128},
    {"lenet_dense", false, true, 128, 120, 400},
    {"lenet_last", false, true, 128, 10, 84},
};

// kernel −1: whatever the registry chooses. Operands of T; the result of a product with a transposed left side, a
// weight's gradient, is of float.
template <class T, class R>
void run(benchmark::State& state, const product& p, int kernel) {
    const cairn::gemm_size s{p.trans_a, p.trans_b, p.m, p.n, p.k, p.trans_a ? p.m : p.k, p.trans_b ? p.k : p.n, p.n};
    const auto a = cairn::tensor<T>::filled({p.m * p.k}, 0.5f), b = cairn::tensor<T>::filled({p.k * p.n}, 0.25f);
    auto c = cairn::tensor<R>::zeros({p.m * p.n});
    double fastest = 1e300;
    for (auto _ : state) {
        const cairn::stopwatch watch;
        if (kernel < 0)
            cairn::gemm(cairn::cpu{}, s.trans_a, s.trans_b, s.m, s.n, s.k, 1.0f, a.data(), s.lda, b.data(), s.ldb, 0.0f,
                        c.data(), s.ldc);
        else
            cairn::gemm_detail::run(static_cast<cairn::gemm_detail::kernel>(kernel), true, s, 1.0f, a.data(), b.data(),
                                    0.0f, c.data());
        benchmark::ClobberMemory();
        fastest = std::min(fastest, watch.seconds());
    }
    const double gflops =
        2e-9 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / fastest;
    state.counters["GFLOP/s"] = gflops;
    state.counters["%peak"] = 100 * gflops / cairn::perf::measured_matrix_peak<T>().gflops;
}

template <class T, class R>
void enter(const char* family, const product& p) {
    const auto add = [&](const std::string& name, int kernel) {
        benchmark::RegisterBenchmark((std::string(family) + '/' + p.what + '/' + name).c_str(),
                                     [&p, kernel](benchmark::State& state) { run<T, R>(state, p, kernel); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
    };
    const cairn::gemm_size s{p.trans_a, p.trans_b, p.m, p.n, p.k, p.trans_a ? p.m : p.k, p.trans_b ? p.k : p.n, p.n};
    for (const auto kernel : cairn::gemm_detail::candidates<T, R>(true, s))
        add(cairn::gemm_detail::kernel_names[kernel], kernel);
    add("chosen", -1);
}

const bool registered = [] {
    for (const product& p : products) {
        enter<float, float>("gemm", p);
        p.trans_a ? enter<cairn::bfloat16, float>("gemm_bf16", p)
                  : enter<cairn::bfloat16, cairn::bfloat16>("gemm_bf16", p);
    }
    return true;
}();

}  // namespace
