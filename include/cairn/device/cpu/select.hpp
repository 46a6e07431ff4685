#pragma once
// Finding the k numbers of largest magnitude among n, and moving a few values of an array (device/selection.hpp).
// Magnitudes are compared as the integers that their bits are, so NaN is above Inf is above all numbers; of equal ones
// the first win. Two ways:
//   select_largest    exact: a threshold that surely lets k pass, guessed from a sample, one pass that collects the
//                     candidates, and a radix select among them; if the guess was wrong, a histogram gives one that is
//                     right
//   select_sampled    DGC's estimate: the threshold from a sample of 1 %, accepted if it lets 0.8 to 1.3 k pass
// Memory traffic: the array once where the guess holds, about 2 % of it for the rest.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/simd.hpp>
#include <cairn/device/selection.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace cairn {

/// Some values of an array and where they are, by rising position. On a phantom rank their number alone.
template <>
class selection<cpu> {
public:
    /// Room for `most` of n values. Grows by itself here.
    void prepare(index_t, index_t most) {
        if (on_phantom_rank()) return;
        positions.reserve(static_cast<std::size_t>(most));
        values.reserve(static_cast<std::size_t>(most));
    }
    std::vector<std::uint32_t> positions;
    std::vector<float> values;

    index_t count() const { return on_phantom_rank() ? declared_ : static_cast<index_t>(positions.size()); }
    /// On a phantom rank: `k` values of `n` were found, as many as were asked for.
    void declare(index_t n, index_t k) { of_ = n, declared_ = k; }
    /// The n of declare().
    index_t of() const { return of_; }
    std::size_t size() const { return positions.size(); }
    void resize(std::size_t n) {
        positions.resize(n);
        values.resize(n);
    }

private:
    index_t of_ = 0, declared_ = 0;
};

namespace detail {

/// The announcement of finding k of n values. Bytes: the array once, and what is found.
inline kernel_call select_call(const char* kind, index_t n, index_t k) {
    const double found = static_cast<double>(k), all = static_cast<double>(n);
    return kernel_call(kind, "f32", all, 4 * all + 8 * found, {n, k});
}

/// The announcement of a kernel that moves `bytes` for each of k chosen values.
inline kernel_call chosen_call(const char* kind, index_t k, double bytes) {
    return kernel_call(kind, "f32", static_cast<double>(k), bytes * static_cast<double>(k), {k});
}

/// Values in [begin, end) of magnitudes ≥ t and their positions, to arrays with room for end − begin + 16; returns how
/// many.
inline index_t collect_run(const float* x, index_t begin, index_t end, std::uint32_t t, std::uint32_t* where,
                           float* values) {
    index_t count = 0, i = begin;
#if CAIRN_SIMD_AVX512
    const __m512i sign = _mm512_set1_epi32(0x7fffffff), threshold = _mm512_set1_epi32(static_cast<int>(t));
    const __m512i step = _mm512_set1_epi32(16);
    __m512i at = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(begin))),
                                  _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    for (; i + 16 <= end; i += 16) {
        const __m512i v = _mm512_loadu_si512(x + i);
        const __mmask16 passed = _mm512_cmpge_epu32_mask(_mm512_maskz_and_epi32(0xffff, v, sign), threshold);
        _mm512_storeu_si512(where + count, _mm512_maskz_compress_epi32(passed, at));
        _mm512_storeu_si512(values + count, _mm512_maskz_compress_epi32(passed, v));
        count += std::popcount(static_cast<unsigned>(passed));
        at = _mm512_maskz_add_epi32(0xffff, at, step);
    }
#endif
    for (; i < end; ++i) {
        where[count] = static_cast<std::uint32_t>(i);
        values[count] = x[i];
        count += magnitude_bits(x[i]) >= t ? 1 : 0;
    }
    return count;
}

/// All values of magnitudes ≥ t. They are carried along: going back for them would miss the caches.
inline void collect(std::span<const float> x, std::uint32_t t, selection<cpu>& found) {
    const index_t n = static_cast<index_t>(x.size());
    std::vector<selection<cpu>> pieces(static_cast<std::size_t>((n + compress_grain - 1) / compress_grain));
    parallel_chunks(n, compress_grain, [&](index_t chunk, index_t begin, index_t end) {
        static thread_local selection<cpu> room;
        room.resize(static_cast<std::size_t>(compress_grain + 16));
        const index_t count = collect_run(x.data(), begin, end, t, room.positions.data(), room.values.data());
        selection<cpu>& piece = pieces[static_cast<std::size_t>(chunk)];
        piece.positions.assign(room.positions.begin(), room.positions.begin() + count);
        piece.values.assign(room.values.begin(), room.values.begin() + count);
    });
    std::size_t total = 0;
    for (const selection<cpu>& p : pieces) total += p.size();
    found.resize(total);
    std::size_t at = 0;
    for (const selection<cpu>& p : pieces) {
        std::copy(p.positions.begin(), p.positions.end(), found.positions.begin() + static_cast<std::ptrdiff_t>(at));
        std::copy(p.values.begin(), p.values.end(), found.values.begin() + static_cast<std::ptrdiff_t>(at));
        at += p.size();
    }
}

/// The magnitude of rank `rank` (1: the largest) among values at positions 0, stride, 2 stride, … .
inline std::uint32_t sample_threshold(std::span<const float> x, index_t stride, index_t rank) {
    std::vector<std::uint32_t> sample;
    for (index_t i = 0; i < static_cast<index_t>(x.size()); i += stride)
        sample.push_back(magnitude_bits(x[static_cast<std::size_t>(i)]));
    if (rank > static_cast<index_t>(sample.size())) return 0;
    const auto nth = sample.begin() + (rank - 1);
    std::nth_element(sample.begin(), nth, sample.end(), std::greater<>{});
    return *nth;
}

/// Of a histogram from low to high, the bin in which the number of rank `rank` from above lies; rank becomes that in
/// the bin.
template <class Bins>
std::uint32_t bin_of_rank(const Bins& bins, index_t& rank) {
    std::size_t b = bins.size() - 1;
    while (bins[b] < rank) rank -= bins[b--];
    return static_cast<std::uint32_t>(b);
}

/// The magnitude of rank k, by 11, 10 and 10 bits from the top. Afterwards k is how many of the equal ones belong to
/// the k.
inline std::uint32_t radix_select(std::vector<std::uint32_t> magnitudes, index_t& k) {
    std::uint32_t prefix = 0;
    int shift = 20;
    for (const int bits : {11, 10, 10}) {
        std::vector<index_t> bins(std::size_t{1} << bits, 0);
        const std::uint32_t mask = (1u << bits) - 1;
        for (const std::uint32_t m : magnitudes) ++bins[(m >> shift) & mask];
        const std::uint32_t bin = bin_of_rank(bins, k);
        prefix |= bin << shift;
        std::erase_if(magnitudes, [=](std::uint32_t m) { return ((m >> shift) & mask) != bin; });
        shift -= 10;
    }
    return prefix;
}

/// A threshold below which the kth largest does not lie: the lower edge of its bin in a histogram of the upper 11 bits.
inline std::uint32_t histogram_threshold(std::span<const float> x, index_t k) {
    struct histogram {
        std::array<index_t, 2048> bins{};
        histogram& operator+=(const histogram& other) {
            for (std::size_t b = 0; b < bins.size(); ++b) bins[b] += other.bins[b];
            return *this;
        }
    };
    const auto all =
        parallel_sum<histogram>(static_cast<index_t>(x.size()), index_t{1} << 20, [&](index_t begin, index_t end) {
            histogram h;
            for (index_t i = begin; i < end; ++i) ++h.bins[magnitude_bits(x[static_cast<std::size_t>(i)]) >> 20];
            return h;
        });
    return bin_of_rank(all.bins, k) << 20;
}

}  // namespace detail

/// The k values of largest magnitude, 0 ≤ k ≤ x.size() < 2^32; exactly k, of equal magnitudes the first ones.
inline void select_largest(cpu, std::span<const float> x, index_t k, selection<cpu>& chosen) {
    const index_t n = static_cast<index_t>(x.size());
    const kernel_call call = detail::select_call("select largest", n, k);
    if (on_phantom_rank()) return chosen.declare(n, k);
    chosen.resize(0);
    if (k == 0) return;
    const index_t stride = std::max<index_t>(1, n / 16384) | 1;  // odd: no row length of a power of two is met
    const double expected = static_cast<double>(k) / static_cast<double>(stride);
    selection<cpu> candidates;
    detail::collect(
        x, detail::sample_threshold(x, stride, static_cast<index_t>(1.1 * expected + 3 * std::sqrt(expected) + 3)),
        candidates);
    if (static_cast<index_t>(candidates.size()) < k) detail::collect(x, detail::histogram_threshold(x, k), candidates);

    std::vector<std::uint32_t> magnitudes(candidates.size());
    std::transform(candidates.values.begin(), candidates.values.end(), magnitudes.begin(), magnitude_bits);
    index_t ties = k;
    const std::uint32_t threshold = detail::radix_select(magnitudes, ties);
    chosen.resize(static_cast<std::size_t>(k));
    std::size_t taken = 0;
    for (std::size_t c = 0; c < candidates.size(); ++c)
        if (magnitudes[c] > threshold || (magnitudes[c] == threshold && ties-- > 0)) {
            chosen.positions[taken] = candidates.positions[c];
            chosen.values[taken++] = candidates.values[c];
        }
}

/// About k values: all magnitudes ≥ a threshold (Lin et al., Deep Gradient Compression, ICLR 2018). It begins with the
/// one of rank k / 100 in a strided sample of 1 %, and is multiplied by 1.3 while more than 1.3 k pass, by 0.8 while
/// fewer than 0.8 k do. The selection is exact after 10 of these, or where the threshold is 0. Returns the number of
/// adaptations, 11 for exact.
inline int select_sampled(cpu, std::span<const float> x, index_t k, selection<cpu>& chosen) {
    constexpr int most = 10;
    const kernel_call call = detail::select_call("select sampled", static_cast<index_t>(x.size()), k);
    if (on_phantom_rank()) return chosen.declare(static_cast<index_t>(x.size()), k), 0;
    chosen.resize(0);
    if (k == 0) return 0;
    const index_t stride = std::max<index_t>(1, std::min<index_t>(101, static_cast<index_t>(x.size()) / 1024)) | 1;
    const double target = static_cast<double>(k);
    float threshold = std::bit_cast<float>(detail::sample_threshold(
        x, stride, std::max<index_t>(1, static_cast<index_t>(target / static_cast<double>(stride)))));
    for (int adapted = 0; adapted <= most && threshold > 0 && std::isfinite(threshold); ++adapted) {
        detail::collect(x, magnitude_bits(threshold), chosen);
        const double passed = static_cast<double>(chosen.size());
        if (passed >= 0.8 * target && passed <= 1.3 * target) return adapted;
        threshold *= passed > target ? 1.3f : 0.8f;
    }
    select_largest(cpu{}, x, k, chosen);
    return most + 1;
}

inline void pack_values(cpu, const selection<cpu>& chosen, sparse_value type, std::byte* out) {
    const kernel_call call =
        detail::chosen_call("pack values", chosen.count(), 4.0 + static_cast<double>(bytes_of(type)));
    if (on_phantom_rank()) return;
    if (type == sparse_value::float32) {
        if (chosen.size()) std::memcpy(out, chosen.values.data(), 4 * chosen.size());
        return;
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const std::uint16_t h = bf16_format::nearest(chosen.values[i]);
        std::memcpy(out + 2 * i, &h, 2);
    }
}

/// Values may begin at any byte.
template <class Put>
void put_at_positions(cpu, std::span<const std::uint32_t> positions, const std::byte* values, sparse_value type,
                      std::span<float> into, Put put) {
    const kernel_call call = detail::chosen_call("put values", static_cast<index_t>(positions.size()),
                                                 12.0 + static_cast<double>(bytes_of(type)));
    for (std::size_t i = 0; i < positions.size(); ++i) {
        float& target = into[positions[i]];
        if (type == sparse_value::float32) {
            float v;
            std::memcpy(&v, values + 4 * i, 4);
            put(target, v);
        } else {
            std::uint16_t h;
            std::memcpy(&h, values + 2 * i, 2);
            put(target, bf16_format::widen(h));
        }
    }
}

inline void zero_at_positions(cpu, const selection<cpu>& chosen, float* x) {
    const kernel_call call = detail::chosen_call("zero values", chosen.count(), 8);
    if (on_phantom_rank()) return;
    for (const std::uint32_t p : chosen.positions) x[p] = 0;
}

namespace detail {

/// each(i, place i, size of its stratum), four to a Philox block.
template <class Each>
void for_each_place(const random_places& places, Each each) {
    parallel_for((places.k + 3) / 4, 1024, [=](index_t begin, index_t end) {
        for (index_t block = begin; block < end; ++block) {
            const auto bits = places.random.bits4(static_cast<std::uint64_t>(block));
            for (index_t i = 4 * block; i < std::min(4 * block + 4, places.k); ++i)
                places.at(i, bits[static_cast<std::size_t>(i % 4)],
                          [&](index_t place, index_t size) { each(i, place, size); });
        }
    });
}

}  // namespace detail

inline void take_at_places(cpu, const random_places& places, const float* x, std::byte* out) {
    const kernel_call call = detail::chosen_call("take places", places.k, 16);
    detail::for_each_place(places, [=](index_t i, index_t place, index_t) { std::memcpy(out + 4 * i, x + place, 4); });
}

template <class Put>
void put_at_places(cpu, const random_places& places, const std::byte* values, bool unbiased, float* into, Put put) {
    const kernel_call call = detail::chosen_call("put places", places.k, 16);
    detail::for_each_place(places, [=](index_t i, index_t place, index_t stratum) {
        float v;
        std::memcpy(&v, values + 4 * i, 4);
        put(into[place], unbiased ? v * static_cast<float>(stratum) : v);
    });
}

}  // namespace cairn
