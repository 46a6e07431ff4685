#pragma once
// Common parts of the kernels that make and read messages (codecs.hpp). A warp encodes a span of 1,024 values,
// eight packets of four a thread: thread l of the warp has values 128 k + 4 l … + 3 of it as packet k, so that a warp
// reads 512 bytes at a time and its packets k are a group of 128 (device/codes.hpp). Bits are brought together by
// shuffles. Random words go through shared memory: each thread computes four Philox blocks of the span, and takes the
// 32 halves of words that belong to its values.

#include <cairn/core/random.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/grid/for_each.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

using float_packet = packet<float, 4>;
using word_packet = packet<std::uint32_t, 4>;

inline constexpr int span_threads = 256, span_warps = span_threads / warp_threads, span_packets = 8;
inline constexpr index_t span_group = 4 * warp_threads, span_values = span_packets * span_group;  // of a warp
inline constexpr index_t span_words = span_values / 2;                                            // random ones
static_assert(span_group == random_group);

/// Which values of the spans of its block a thread has.
struct span_place {
    int warp, lane;
    index_t stride;  // of the first values of a thread's spans
    template <class Block>
    CAIRN_HD explicit span_place(Block& b)
        : warp(static_cast<int>(b.thread()) / warp_threads),
          lane(static_cast<int>(b.thread()) % warp_threads),
          stride(b.blocks() * span_warps * span_values) {}

    /// The first value of this warp's span, of the spans of a block that begin at value `all`; may be behind the last
    /// one.
    CAIRN_HD index_t first(index_t all) const { return all + warp * span_values; }
    CAIRN_HD index_t of_packet(int k) const { return k * span_group + 4 * lane; }
};

template <class T>
CAIRN_HD bool aligned_as(const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignof(T) == 0;
}

/// p[i … i + 4), zeros from n on; i is a multiple of 4. One access where p is aligned.
template <class T>
CAIRN_HD packet<T, 4> load_four(const T* p, index_t i, index_t n) {
    using four = packet<T, 4>;
    if (i + 4 <= n && aligned_as<four>(p)) return *reinterpret_cast<const four*>(p + i);
    four v{};
    for (int j = 0; j < 4; ++j)
        if (i + j < n) v.v[j] = p[i + j];
    return v;
}
template <class T>
CAIRN_HD void store_four(T* p, index_t i, index_t n, const packet<T, 4>& v) {
    using four = packet<T, 4>;
    if (i + 4 <= n && aligned_as<four>(p)) {
        *reinterpret_cast<four*>(p + i) = v;
        return;
    }
    for (int j = 0; j < 4; ++j)
        if (i + j < n) p[i + j] = v.v[j];
}

/// Values to encode …
struct values_alone {
    const float* x;
    CAIRN_HD float_packet load(index_t i, index_t n) const { return load_four(x, i, n); }
    CAIRN_HD void keep(index_t, index_t, const float_packet&, const float_packet&) const {}
};
/// … or a gradient and the residual of error feedback, which becomes what the message leaves out.
struct values_with_residual {
    const float* gradient;
    float* residual;
    CAIRN_HD float_packet load(index_t i, index_t n) const {
        float_packet x = load_four(residual, i, n);
        const float_packet g = load_four(gradient, i, n);
        for (int j = 0; j < 4; ++j) x.v[j] += g.v[j];
        return x;
    }
    CAIRN_HD void keep(index_t i, index_t n, const float_packet& x, const float_packet& sent) const {
        float_packet left;
        for (int j = 0; j < 4; ++j) left.v[j] = x.v[j] - sent.v[j];
        store_four(residual, i, n, left);
    }
};

/// The random words of a warp's span, where random_packet finds them. All threads of the block wait before they are
/// read.
CAIRN_HD inline void draw_words(const random_stream& random, int lane, index_t first, index_t n, std::uint32_t* words) {
    for (int q = 0; q < 4; ++q) {
        const int block = q * warp_threads + lane, group = block / 16;
        if (first + group * span_group >= n) break;
        const auto bits = random.bits4(static_cast<std::uint64_t>(first / 8 + block));
        for (int w = 0; w < 4; ++w) words[group * 64 + w * 16 + block % 16] = bits[static_cast<std::size_t>(w)];
    }
}
/// 16 random bits for each value of packet k.
CAIRN_HD inline word_packet random_packet(const std::uint32_t* words, int lane, int k) {
    word_packet r = *reinterpret_cast<const word_packet*>(words + k * 64 + lane / 8 * 16 + lane % 4 * 4);
    for (int j = 0; j < 4; ++j) r.v[j] = r.v[j] >> (lane / 4 % 2 * 16) & 0xffffu;
    return r;
}

/// Nibble k of thread l among eight neighbours becomes nibble l of thread k.
template <class Block>
CAIRN_HD std::uint32_t transposed_nibbles(Block& b, std::uint32_t w) {
    std::uint32_t mask = 0x0000ffffu;  // nibbles whose number lacks the bit `apart`
    for (int apart = 4; apart > 0; apart /= 2) {
        const std::uint32_t other = b.shuffle_xor(w, apart);
        w = b.thread() & apart ? (w & ~mask) | (other >> 4 * apart & mask) : (w & mask) | (other & mask) << 4 * apart;
        mask ^= mask << 2 * apart;
    }
    return w;
}

/// Bit j of a byte as bit 4 j, and back.
CAIRN_HD inline std::uint32_t spread_bits(std::uint32_t v) {
    v = (v | v << 12) & 0x000f000fu;
    v = (v | v << 6) & 0x03030303u;
    return (v | v << 3) & 0x11111111u;
}
CAIRN_HD inline std::uint32_t gathered_bits(std::uint32_t v) {
    v &= 0x11111111u;
    v = (v | v >> 3) & 0x03030303u;
    v = (v | v >> 6) & 0x000f000fu;
    return (v | v >> 12) & 0xffu;
}

/// Stores the bytes of the first `count` of 32 bits.
CAIRN_HD inline void store_bits(std::uint8_t* to, std::uint32_t bits, index_t count) {
    if (count >= 32 && aligned_as<std::uint32_t>(to)) {
        *reinterpret_cast<std::uint32_t*>(to) = bits;
        return;
    }
    for (int j = 0; j < 4 && 8 * j < count; ++j) to[j] = static_cast<std::uint8_t>(bits >> 8 * j);
}

/// A warp's copy of bytes out of shared memory to any address: whole words but at the ends.
CAIRN_HD inline void copy_bytes(int lane, const std::uint8_t* from, index_t bytes, std::uint8_t* to) {
    index_t head = static_cast<index_t>(-reinterpret_cast<std::uintptr_t>(to) % 4);
    if (head > bytes) head = bytes;
    const index_t words = (bytes - head) / 4, tail = head + 4 * words;
    if (lane < head) to[lane] = from[lane];
    for (index_t w = lane; w < words; w += warp_threads) {
        std::uint32_t word = 0;
        for (int j = 0; j < 4; ++j) word |= static_cast<std::uint32_t>(from[head + 4 * w + j]) << 8 * j;
        *reinterpret_cast<std::uint32_t*>(to + head + 4 * w) = word;
    }
    if (lane < bytes - tail) to[tail + lane] = from[tail + lane];
}

/// Runs a kernel whose warps take spans of n values, with `shared` bytes a warp.
template <GridDevice D, class Body>
void launch_spans(D, index_t n, index_t shared, const Body& body) {
    D::launch({.blocks = blocks_for<D>(n, span_threads, 4 * span_packets),
               .threads = span_threads,
               .shared = shared * span_warps},
              body);
}

}  // namespace grid

}  // namespace cairn
