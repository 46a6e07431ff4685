#pragma once
// How long the GPU takes for what is launched: events around repetitions, after a warm-up. And its two ceilings: bytes
// a second of a copy, operations a second of a large matrix product.

#include <cairn/core/random.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <algorithm>
#include <vector>

namespace cairn::gpu_benchmark {

/// Median seconds of one call of `work`, over `rounds` rounds that each last a few milliseconds.
template <class Work>
double seconds_of(Work&& work, int rounds = 15) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "making an event");
    check(cudaEventCreate(&end), "making an event");
    const auto timed = [&](int repeats) {
        check(cudaEventRecord(begin, cuda::stream()), "recording an event");
        for (int i = 0; i < repeats; ++i) work();
        check(cudaEventRecord(end, cuda::stream()), "recording an event");
        check(cudaEventSynchronize(end), "waiting for an event");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "reading an event");
        return static_cast<double>(milliseconds) / 1e3 / repeats;
    };
    timed(3);
    const int repeats = std::clamp(static_cast<int>(5e-3 / std::max(timed(1), 1e-7)), 1, 1000);
    std::vector<double> all;
    for (int i = 0; i < rounds; ++i) all.push_back(timed(repeats));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
    return all[static_cast<std::size_t>(rounds / 2)];
}

/// Numbers in (-1, 1) made on the GPU: constant data would make matrix products look faster than they are.
template <class T>
struct random_kernel {
    index_t n;
    random_stream random;
    T* out;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            out[i] = static_cast<T>(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1);
    }
};

template <class T>
tensor<T, cuda> random_numbers(index_t n, std::uint32_t stream) {
    tensor<T, cuda> t({n});
    cuda::launch({.blocks = grid::blocks_for<cuda>(n, 256, 4)}, random_kernel<T>{n, {1, stream, 0}, t.data()});
    return t;
}

/// Bytes read and written a second, of 2 GiB.
inline double copy_rate() {
    constexpr index_t bytes = index_t{2} << 30;
    const auto from = random_numbers<float>(bytes / 4, 1);
    tensor<float, cuda> to({bytes / 4});
    return 2.0 * bytes / seconds_of([&] { cuda::copy_within(to.data(), from.data(), bytes); });
}

/// Operations a second of a product of matrices of 8192 x 8192, as gpu_float_products() has it.
template <class T>
double product_rate() {
    constexpr index_t n = 8192;
    const auto a = random_numbers<T>(n * n, 2), b = random_numbers<T>(n * n, 3);
    tensor<T, cuda> c({n * n});
    using number = grid::sum_type<T>;
    const double seconds = seconds_of(
        [&] { gemm(cuda{}, false, false, n, n, n, number{1}, a.data(), n, b.data(), n, number{0}, c.data(), n); });
    return 2.0 * n * n * n / seconds;
}

}  // namespace cairn::gpu_benchmark
