#pragma once
// The two streams of symbols of a block of 8192 elements (device/packed_symbols.hpp) in the memory that 256 threads
// share: which elements have a symbol and where it lies, and groups of 32 symbols, one a thread.

#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/packed_symbols.hpp>

#include <bit>
#include <cstdint>

namespace cairn::grid {

inline constexpr int symbol_threads = 256;  // a block: one a group
static_assert(symbol_threads * symbol_group == packed_block);

CAIRN_HD inline int set_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
    return __popc(word);
#else
    return std::popcount(word);
#endif
}

/// Which elements have a symbol and which of them are of kind 1, a bit each; null: all.
struct element_masks {
    const std::uint8_t *live = nullptr, *kinds = nullptr;
};

/// Sizes of a block's streams: symbols, bytes of their planes, escapes; and values that are not finite.
struct stream_sizes {
    std::uint32_t symbols[2], bytes[2], escapes[2], broken;
};

/// The two streams of a block in the memory that its threads share.
struct shared_streams {
    std::uint32_t live[symbol_threads], kinds[symbol_threads];  // of groups of elements
    std::uint32_t before[symbol_threads];       // symbols of the groups before: of stream 1, of stream 0 · 2^16
    std::uint32_t of_group[2][symbol_threads];  // of groups of symbols
    packet<std::uint32_t, 4> symbols[packed_block / 16 + 2];  // 16 each: stream 1, then stream 0, each in whole groups
    std::uint64_t scratch[symbol_threads / warp_threads];

    CAIRN_HD std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(symbols); }
    CAIRN_HD std::uint32_t* words() { return reinterpret_cast<std::uint32_t*>(symbols); }
    CAIRN_HD std::uint32_t* scratch_words() { return reinterpret_cast<std::uint32_t*>(scratch); }
};

/// How a block's elements lie in its streams. The threads of a block make it together. Numbers within the block are
/// int: a GPU computes with 64 bits at half the rate.
struct block_layout {
    static constexpr int group = symbol_group;

    shared_streams& in;
    index_t first;  // of the block's elements
    int length;
    int symbols[2];

    template <class Block>
    CAIRN_HD block_layout(Block& b, index_t n, const element_masks& masks)
        : in(*b.template shared<shared_streams>()), first(b.block() * packed_block), length(length_of(n - first)) {
        const int t = static_cast<int>(b.thread());
        std::uint32_t live = 0, kinds = 0;
        if (t * group < length) {
            live = bits_of_group(masks.live, first + t * group, n);
            kinds = bits_of_group(masks.kinds, first + t * group, n);
        }
        std::uint32_t all = 0;
        const auto mine = static_cast<std::uint32_t>(set_bits(live & kinds) | set_bits(live & ~kinds) << 16);
        in.live[t] = live;
        in.kinds[t] = kinds;
        in.before[t] = sum_before(b, mine, in.scratch_words(), all);
        symbols[1] = static_cast<int>(all & 0xffffu);
        symbols[0] = static_cast<int>(all >> 16);
        b.sync();
    }
    /// Without the elements: of streams that lie in memory.
    CAIRN_HD block_layout(shared_streams& s, index_t n, index_t block, const stream_sizes& of)
        : in(s),
          first(block * packed_block),
          length(length_of(n - first)),
          symbols{static_cast<int>(of.symbols[0]), static_cast<int>(of.symbols[1])} {}

    CAIRN_HD static int length_of(index_t rest) { return static_cast<int>(rest < packed_block ? rest : packed_block); }
    CAIRN_HD int groups(int k) const { return (symbols[k] + group - 1) / group; }
    /// Where stream k begins among the symbols.
    CAIRN_HD int begin(int k) const { return k == 1 ? 0 : groups(1) * group; }
    CAIRN_HD std::uint8_t& symbol(int k, int place) const { return in.bytes()[begin(k) + place]; }
    /// The symbols 4 q … of group g of stream k.
    CAIRN_HD std::uint32_t& four(int k, int g, int q) const { return in.words()[begin(k) / 4 + g * (group / 4) + q]; }

    /// Calls f(i, k, place, v) for each element i of the block: its stream, −1 where it has no symbol, its place there,
    /// and load(i). Neighbouring threads have neighbouring elements, and four loads are on their way at a time.
    template <class Block, class Load, class F>
    CAIRN_HD void for_elements(Block& b, Load&& load, F&& f) const {
        constexpr int together = 4, warps = symbol_threads / warp_threads;
        const int lane = static_cast<int>(b.thread()) % warp_threads;
        const std::uint32_t below = (1u << lane) - 1u;
        for (int g = static_cast<int>(b.thread()) / warp_threads; g * group < length; g += together * warps) {
            decltype(load(int{})) v[together] = {};
            CAIRN_UNROLL
            for (int u = 0; u < together; ++u)
                if (const int i = (g + u * warps) * group + lane; i < length) v[u] = load(i);
            CAIRN_UNROLL
            for (int u = 0; u < together; ++u) {
                const int at = g + u * warps, i = at * group + lane;
                if (i >= length) continue;
                const std::uint32_t live = in.live[at], kinds = in.kinds[at], before = in.before[at];
                const bool one = kinds >> lane & 1u;
                f(i, live >> lane & 1u ? (one ? 1 : 0) : -1,
                  static_cast<int>(one ? before & 0xffffu : before >> 16) +
                      set_bits(live & (one ? kinds : ~kinds) & below),
                  v[u]);
            }
        }
    }

    /// Planes that group g of stream k needs.
    CAIRN_HD std::uint32_t width(int k, int g) const {
        if (g >= groups(k)) return 0;
        std::uint32_t all = 0;
        for (int q = 0; q < 8; ++q) all |= four(k, g, (q + g) % 8);  // other banks for neighbours
        all |= all >> 16;
        all |= all >> 8;
        std::uint32_t planes = 0;
        for (all &= 0xffu; all; all >>= 1) ++planes;
        return planes;
    }

    /// in.of_group[k][g] = escapes of the groups of stream k before group g.
    template <class Block>
    CAIRN_HD void count_escapes_before(Block& b) const {
        const int g = static_cast<int>(b.thread());
        for (int k = 0; k < 2; ++k) {
            std::uint32_t mine = 0, all = 0;
            for (int p = g * group; p < (g + 1) * group && p < symbols[k]; ++p) mine += symbol(k, p) == escape_symbol;
            in.of_group[k][g] = sum_before(b, mine, in.scratch_words(), all);
        }
        b.sync();
    }
    /// Which escape of stream k the symbol at `place` is.
    CAIRN_HD int escape_number(int k, int place) const {
        const int g = place / group;
        int number = static_cast<int>(in.of_group[k][g]);
        for (int p = g * group; p < place; ++p) number += symbol(k, p) == escape_symbol;
        return number;
    }
};

}  // namespace cairn::grid
