#pragma once
// Statistics for bounded_codec before it packs an activation: positions of zeros, ranges of channels.

#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/simd.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/packed_symbols.hpp>
#include <cairn/stash/codec.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace cairn::detail {

/// Mean and deviation of the last axis's channels. A deviation is 1e-6 at least.
template <Device D>
struct channel_moments {
    tensor<float, D> mean, deviation;
};

struct deviation_of {
    CAIRN_HD void operator()(float& deviation, const double& variance) const {
        deviation = static_cast<float>(std::sqrt(variance > 1e-12 ? variance : 1e-12));
    }
};

template <Device D>
channel_moments<D> moments_of(const tensor<float, D>& x) {
    const index_t channels = x.extent(-1);
    channel_moments<D> m{tensor<float, D>({channels}, memory_category::workspace),
                         tensor<float, D>({channels}, memory_category::workspace)};
    tensor<double, D> variance({channels}, memory_category::workspace);
    batch_statistics(D{}, x.size() / channels, channels, x.data(), m.mean.data(), variance.data());
    for_each(D{}, channels, deviation_of{}, m.deviation.data(), variance.data());
    return m;
}

/// A bit an element: whether it is not 0, in the layout of an activation function's bits.
template <Device D>
struct zero_pattern {
    tensor<std::uint8_t, D> bits;
    index_t non_zero = 0;
    const tensor<std::uint8_t, D>* same = nullptr;  // of the other masks one that says the same
};

/// On a phantom rank nothing is 0.
inline zero_pattern<cpu> zeros_of(const tensor<float>& x, std::span<const tensor<std::uint8_t>* const> others) {
    zero_pattern<cpu> found{tensor<std::uint8_t>({simd::mask_bytes<float>(x.size())})};
    const float* const values = x.data();
    std::uint8_t* const out = found.bits.data();
    const double n = static_cast<double>(x.size());
    const kernel_call call("search for zeros", "f32", n, 4 * n + n / 8, {x.size()});
    if (on_phantom_rank()) return found.non_zero = x.size(), std::move(found);
    parallel_for(x.size(), packed_block, [=](index_t begin, index_t end) {
        const simd::pack<float> zero(0);
        simd::for_packs<float>(end - begin, [&](index_t i, auto count) {
            const auto equal = simd::to_bits(simd::equal(simd::load(values + begin + i, count), zero));
            const auto lanes = static_cast<std::uint16_t>(~equal & ((1u << count) - 1u));
            std::memcpy(out + (begin + i) / 8, &lanes, 2);
        });
    });
    for (const std::uint8_t byte : found.bits.span()) found.non_zero += std::popcount(byte);
    for (const tensor<std::uint8_t>* other : others)
        if (!found.same && std::ranges::equal(other->span(), found.bits.span())) found.same = other;
    return found;
}

/// The host waits for the numbers. Of other masks four are looked at.
template <GridDevice D>
zero_pattern<D> zeros_of(const tensor<float, D>& x, std::span<const tensor<std::uint8_t, D>* const> others) {
    constexpr int most = 4;
    zero_pattern<D> found{tensor<std::uint8_t, D>({simd::mask_bytes<float>(x.size())})};
    grid::non_zero_eights<most> kernel{x.size(), grid::packets_fit(x.data()), x.data(), found.bits.data(), {}};
    std::array<const tensor<std::uint8_t, D>*, most> candidates{};
    for (std::size_t k = 0; const tensor<std::uint8_t, D>* other : others)
        if (k < candidates.size() && other->size() == found.bits.size()) {
            kernel.others[k] = other->data();
            candidates[k++] = other;
        }
    tensor<double, D> sums({most + 1}, memory_category::workspace);
    grid::sum_indices<most + 1>(D{}, (x.size() + 7) / 8, kernel, sums.data());
    double counted[most + 1] = {};
    D::copy_to_host(counted, sums.data(), sums.bytes());
    found.non_zero = static_cast<index_t>(counted[0]);
    for (std::size_t k = most; k-- > 0;)
        if (candidates[k] && counted[k + 1] == 0) found.same = candidates[k];
    return found;
}

/// How bounded_codec has an activation packed.
template <Device D>
struct bounded_input {
    std::array<float, 2> bounds;  // of kind 0 and 1
    channel_moments<D> moments;   // bounds are in units of the deviation
    random_stream random;
    std::uint64_t first_element = 0;
    tensor<std::uint8_t, D> zeros, kinds;  // bits of elements that have a symbol, and of those of kind 1; empty: all
    index_t own_mask_bytes = 0;            // of zeros, where no other slot holds them
    bool huffman = false;
};

}  // namespace cairn::detail
