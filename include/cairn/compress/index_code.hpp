#pragma once
// Sorted positions as gaps in few bits: delta coding with binary packing (Lemire and Boytsov, "Decoding billions of
// integers per second through vectorization", 2015). Positions p_0 < p_1 < …, gaps p_0, p_1 − p_0 − 1, …; each 128 gaps
// have a width of their own, that of the largest.
//
//   group of m ≤ 128 gaps: | width b, 1 byte | m gaps of b bits, lowest bit first, ⌈m b / 8⌉ bytes |
//
// A share of 1 % at random places costs about 9 bits a position (the entropy is 8.1, plain indices are 32).

#include <cairn/compress/compressor.hpp>

#include <algorithm>
#include <bit>

namespace cairn {

inline constexpr index_t gap_group = 128;

namespace detail {

inline index_t packed_bytes(index_t count, index_t bits) { return (count * bits + 7) / 8; }

/// Calls group(gaps, m) for each group of gaps; gaps is an array of 128.
template <class Group>
void for_each_gap_group(std::span<const std::uint32_t> positions, Group&& group) {
    std::uint32_t gaps[gap_group], next = 0;
    const index_t k = static_cast<index_t>(positions.size());
    for (index_t begin = 0; begin < k; begin += gap_group) {
        const index_t m = std::min(k - begin, gap_group);
        for (index_t i = 0; i < m; ++i) {
            const std::uint32_t p = positions[static_cast<std::size_t>(begin + i)];
            gaps[i] = p - next;
            next = p + 1;
        }
        group(gaps, m);
    }
}

inline index_t gap_width(const std::uint32_t* gaps, index_t m) {
    std::uint32_t all = 0;
    for (index_t i = 0; i < m; ++i) all |= gaps[i];
    return static_cast<index_t>(std::bit_width(all));
}

}  // namespace detail

/// Bytes of the code of these positions, exactly.
inline index_t index_code_bytes(std::span<const std::uint32_t> positions) {
    index_t bytes = 0;
    detail::for_each_gap_group(positions, [&](const std::uint32_t* gaps, index_t m) {
        bytes += 1 + detail::packed_bytes(m, detail::gap_width(gaps, m));
    });
    return bytes;
}

/// The most bytes that k positions below n can take.
inline index_t index_code_max_bytes(index_t n, index_t k) {
    const index_t width = static_cast<index_t>(std::bit_width(static_cast<std::uint64_t>(n)));
    return k / gap_group * (1 + detail::packed_bytes(gap_group, width)) +
           (k % gap_group ? 1 + detail::packed_bytes(k % gap_group, width) : 0);
}

/// Bytes that stand for those of k of n positions on a phantom rank, which has none: places at random, where the
/// largest of 128 gaps is about ln 128 ≈ 5 times the mean one.
inline index_t index_code_expected_bytes(index_t n, index_t k) {
    return k == 0 ? 0 : std::min(index_code_max_bytes(n, k), index_code_max_bytes(5 * n / k, k));
}

/// Writes the code of `positions` to out and returns the end; there must be room.
inline std::byte* write_index_code(std::span<const std::uint32_t> positions, std::byte* out) {
    detail::for_each_gap_group(positions, [&](const std::uint32_t* gaps, index_t m) {
        const index_t width = detail::gap_width(gaps, m);
        *out++ = static_cast<std::byte>(width);
        std::uint64_t bits = 0;
        index_t held = 0;
        for (index_t i = 0; i < m; ++i) {
            bits |= std::uint64_t{gaps[i]} << held;
            held += width;
            while (held >= 8) {
                *out++ = static_cast<std::byte>(bits);
                bits >>= 8;
                held -= 8;
            }
        }
        if (held > 0) *out++ = static_cast<std::byte>(bits);
    });
    return out;
}

/// Reads positions.size() positions below n. Throws on a damaged code.
inline void read_index_code(message_reader& reader, index_t n, std::span<std::uint32_t> positions) {
    const index_t k = static_cast<index_t>(positions.size());
    index_t next = 0;
    for (index_t begin = 0; begin < k; begin += gap_group) {
        const index_t m = std::min(k - begin, gap_group);
        const index_t width = reader.number<std::uint8_t>("the width of gaps");
        if (width > 32) reader.damaged("gaps of ", width, " bits");
        const std::byte* code = reader.take(detail::packed_bytes(m, width), "gaps");
        const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
        std::uint64_t bits = 0;
        index_t held = 0;
        for (index_t i = 0; i < m; ++i) {
            while (held < width) {
                bits |= static_cast<std::uint64_t>(*code++) << held;
                held += 8;
            }
            next += static_cast<index_t>(bits & mask);
            bits >>= width;
            held -= width;
            if (next >= n) reader.damaged("position ", next, " of ", n, " values, before it");
            positions[static_cast<std::size_t>(begin + i)] = static_cast<std::uint32_t>(next++);
        }
    }
}

}  // namespace cairn
