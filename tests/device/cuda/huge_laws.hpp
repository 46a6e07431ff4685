#pragma once
// Arrays of more than 2^31 and 2^32 elements on a GPU: positions that 32 bits do not hold. Results are looked at around
// 0, 2^31, 2^32 and the end. A GPU without the memory says so, in place of each law.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/cuda/runtime.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace cairn::huge_laws {

inline constexpr index_t past = (index_t{1} << 32) + 4096 + 3;  // elements

/// Whether `bytes` are to be had; says what there is, if not.
inline bool there_are(index_t bytes) {
    std::size_t available = 0, total = 0;
    check(cudaMemGetInfo(&available, &total), "asking for the memory of the GPU");
    const bool enough = static_cast<index_t>(available) > bytes + (index_t{1} << 30);
    if (!enough)
        std::printf("  skipped: %zu GiB free, %lld wanted\n", available >> 30, static_cast<long long>(bytes >> 30));
    return enough;
}

/// Calls f(i, x[i]) for i around what 32 bits hold.
template <class T, class F>
void look(const tensor<T, cuda>& x, F f) {
    constexpr index_t width = 1000;
    for (const index_t at :
         {index_t{0}, (index_t{1} << 31) - width / 2, (index_t{1} << 32) - width / 2, x.size() - width}) {
        const index_t first = std::clamp<index_t>(at, 0, x.size() - width);
        std::vector<T> part(static_cast<std::size_t>(width));
        cuda::copy_to_host(part.data(), x.data() + first, width * index_t{sizeof(T)});
        for (index_t i = 0; i < width; ++i) f(first + i, part[static_cast<std::size_t>(i)]);
    }
}

struct count_up_rule {
    CAIRN_HD void operator()(std::uint8_t& x, const std::uint8_t& y) const { x = static_cast<std::uint8_t>(x + y + 1); }
};

inline void elementwise() {
    if (!there_are(2 * past)) return;
    tensor<std::uint8_t, cuda> x({past}), y({past});
    cuda::set_bytes(x.data(), 5, past);
    cuda::set_bytes(y.data(), 7, past);
    cuda::set_bytes(y.data() + (past - 10), 9, 10);
    for_each(cuda{}, past, count_up_rule{}, x.data(), y.data());
    look(x, [](index_t i, std::uint8_t v) { REQUIRE(v == (i < past - 10 ? 13 : 15)); });
    CHECK(sum(cuda{}, past, x.data()) == 13.0 * static_cast<double>(past) + 20);
}

/// Columns of ones and, in the last rows, of threes.
inline void columns() {
    constexpr index_t width = 24, rows = past / width;
    if (!there_are(rows * width)) return;
    tensor<std::uint8_t, cuda> x({rows, width});
    cuda::set_bytes(x.data(), 1, x.size());
    cuda::set_bytes(x.data() + (rows - 2) * width, 3, 2 * width);
    tensor<double, cuda> sums({width});
    grid::column_sums(cuda{}, rows, width, x.data(), sums.data(), false);
    const auto got = sums.on_host();
    for (index_t c = 0; c < width; ++c) CHECK(got[c] == static_cast<double>(rows) + 4);
}

inline void softmaxes() {
    constexpr index_t classes = 1024, rows = past / classes;
    if (!there_are(rows * classes * 2)) return;
    tensor<bfloat16, cuda> x({rows, classes});
    cuda::set_bytes(x.data(), 0, x.bytes());
    softmax_forward(cuda{}, rows, classes, x.data(), x.data());
    look(x, [](index_t, bfloat16 v) { REQUIRE(static_cast<float>(v) == 1.0f / 1024); });
}

inline void dropouts() {
    if (!there_are(past * 2)) return;
    tensor<bfloat16, cuda> x({past});
    for_each(functors::assign<bfloat16>{bfloat16(1.0f)}, x);
    dropout_apply(cuda{}, past, 0.5, random_stream{7, 11, 13}, x.data(), x.data());
    index_t kept = 0, seen = 0;
    std::vector<bool> first, wrapped;  // what is kept at i, and at 2^32 + i
    look(x, [&](index_t i, bfloat16 v) {
        const auto f = static_cast<float>(v);
        REQUIRE((f == 0.0f || f == 2.0f));
        kept += f != 0, ++seen;
        if (i < 400) first.push_back(f != 0);
        if (i >= index_t{1} << 32 && i < (index_t{1} << 32) + 400) wrapped.push_back(f != 0);
    });
    CHECK(std::abs(static_cast<double>(kept) - 0.5 * static_cast<double>(seen)) <
          5 * std::sqrt(0.25 * static_cast<double>(seen)));
    CHECK(first.size() == 400);
    CHECK(wrapped.size() == 400);
    CHECK(first != wrapped);  // another position, another number
    const double share = sum(cuda{}, past, x.data()) / 2 / static_cast<double>(past);
    CHECK(std::abs(share - 0.5) < 5 * 0.5 / std::sqrt(static_cast<double>(past)));
}

/// Statistics of bfloat16 channels: ones, but for the second half of the rows, which are threes.
inline void norms() {
    constexpr index_t channels = 16, half = past / channels / 2, rows = 2 * half;
    if (!there_are(rows * channels * 2)) return;
    tensor<bfloat16, cuda> x({rows, channels});
    for_each(functors::assign<bfloat16>{bfloat16(1.0f)}, x);
    auto second = x.slice(half * channels, {half, channels});
    for_each(functors::assign<bfloat16>{bfloat16(3.0f)}, second);
    tensor<float, cuda> mean({channels}), var({channels});
    batch_statistics(cuda{}, rows, channels, x.data(), mean.data(), var.data());
    kernel_laws::check_close(mean, tensor<float>::filled({channels}, 2.0f), 1e-5);
    kernel_laws::check_close(var, tensor<float>::filled({channels}, 1.0f), 1e-4);
    CHECK(sum_of_squares(cuda{}, x.size(), x.data()) == 5.0 * static_cast<double>(x.size()));
}

inline const std::vector<law>& all() {
    static const std::vector<law> laws{{"for_each and sums", elementwise},
                                       {"column sums", columns},
                                       {"softmax", softmaxes},
                                       {"dropout", dropouts},
                                       {"batch norm", norms}};
    return laws;
}

}  // namespace cairn::huge_laws
