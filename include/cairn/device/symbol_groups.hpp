#pragma once
// Numbers as symbols of b bits, in groups of 256 with a minimum and a maximum each (stash/simple_codecs.hpp):
//   | minimum | maximum | eight symbols, b bytes | … |
// In double: a range of finite floats may be no float, nor its inverse. On a grid device:
// device/grid/symbol_groups.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cstdint>

namespace cairn {

struct symbol_groups {
    static constexpr index_t size = 256, eights = size / 8;
    int bits = 2;

    struct head {
        float least, most;
        CAIRN_HD double range() const { return static_cast<double>(most) - static_cast<double>(least); }
    };

    CAIRN_HD index_t count(index_t n) const { return (n + size - 1) / size; }
    CAIRN_HD index_t bytes(index_t n) const { return count(n) * (8 + eights * bits); }
    /// Where group g begins, its head first.
    CAIRN_HD index_t place(index_t g) const { return g * (8 + eights * bits); }
    CAIRN_HD int largest() const { return (1 << bits) - 1; }

    /// Writes `count` values of a group, at most eight, as `bits` bytes. `number`: which one of `random` is the first.
    CAIRN_HD void encode(const float* v, int count, head h, const random_stream& random, std::uint64_t number,
                         std::uint8_t* to) const {
        const double unit = h.most > h.least ? largest() / h.range() : 0;
        std::uint64_t all = 0;
        for (int j = 0; j < count; ++j) {
            const double u = static_cast<double>(random.uniform(number + static_cast<std::uint64_t>(j)));
            const double at = (static_cast<double>(v[j]) - static_cast<double>(h.least)) * unit;
            const int q = static_cast<int>(at + u);
            all |= static_cast<std::uint64_t>(q < largest() ? q : largest()) << (bits * j);
        }
        for (int k = 0; k < bits; ++k) to[k] = static_cast<std::uint8_t>(all >> (8 * k));
    }
};

/// Values 8 k to 8 k + 8 of a message.
struct unpack_eight_symbols {
    symbol_groups groups;
    index_t n;
    const std::uint8_t* body;
    float* x;

    CAIRN_HD void operator()(index_t k) const {
        const std::uint8_t* const group = body + groups.place(k / symbol_groups::eights);
        const auto head = *reinterpret_cast<const symbol_groups::head*>(group);
        const double unit = head.range() / groups.largest();
        const std::uint8_t* const from = group + 8 + k % symbol_groups::eights * groups.bits;
        std::uint64_t all = 0;
        for (int j = 0; j < groups.bits; ++j) all |= std::uint64_t{from[j]} << (8 * j);
        for (int j = 0; j < 8; ++j) {
            const auto q = static_cast<double>(all >> (groups.bits * j) & static_cast<std::uint64_t>(groups.largest()));
            if (8 * k + j < n) x[8 * k + j] = static_cast<float>(static_cast<double>(head.least) + q * unit);
        }
    }
};

/// Writes the message of x (n) into `body`. False: a value is not finite.
inline bool pack_groups(cpu, symbol_groups groups, index_t n, const float* x, const random_stream& random,
                        std::uint64_t first_number, std::uint8_t* body) {
    const double all = static_cast<double>(n);
    const kernel_call call("pack groups", "f32", 6 * all, 4 * all + static_cast<double>(groups.bytes(n)),
                           {n, groups.bits});
    return parallel_sum<index_t>(groups.count(n), 64, [&](index_t begin, index_t end) {
               index_t broken = 0;
               for (index_t g = begin; g < end; ++g) {
                   const float *const first = x + g * symbol_groups::size, *const last =
                                                                               x + std::min(n, (g + 1) *
                                                                                                   symbol_groups::size);
                   broken += !std::all_of(first, last, [](float v) { return v - v == 0; });
                   if (broken) break;
                   const auto [least, most] = std::minmax_element(first, last);
                   const symbol_groups::head head{*least + 0.0f, *most + 0.0f};  // −0 is 0
                   std::uint8_t* const to = body + groups.place(g);
                   *reinterpret_cast<symbol_groups::head*>(to) = head;
                   for (index_t k = 0; k < symbol_groups::eights; ++k) {
                       const float* const v = first + 8 * k;
                       groups.encode(v, static_cast<int>(std::clamp<index_t>(last - v, 0, 8)), head, random,
                                     first_number + static_cast<std::uint64_t>(v - x), to + 8 + k * groups.bits);
                   }
               }
               return broken;
           }) == 0;
}

}  // namespace cairn
