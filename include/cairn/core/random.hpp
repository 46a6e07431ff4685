#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11, "Parallel random numbers: as easy as 1, 2, 3").
// A number is a pure function of (seed, stream, step, index). Nothing is advanced, so recomputation, restart, another
// thread count and another device give the same numbers.
//   counter = (index low, index high, step, stream)   key = (seed low, seed high)
// Tested against the known-answer vectors of the authors' Random123.

#include <cairn/core/host_device.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace cairn {

/// Ten rounds of Philox4x32: 128 random bits from a counter and a key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return counter;
}

/// FNV-1a: a stable stream number from a name ("layer3/dropout").
constexpr std::uint32_t stream_of(std::string_view name) {
    std::uint32_t hash = 2166136261u;
    for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return hash;
}

/// The hash of the empty path, and of the whole model's outermost layer.
inline constexpr std::uint64_t root_path = 14695981039346656037u;

/// FNV-1a of 64 bits: the identity of a path in the whole model ("layer2/0/conv1/weight"). Two of 10,000 paths are
/// alike with a probability of 3e-12.
constexpr std::uint64_t path_hash(std::string_view text, std::uint64_t before = root_path) {
    for (char c : text) before = (before ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return before;
}

/// The hash of "parent/name" from that of "parent"; of "name" at the root.
constexpr std::uint64_t child_path(std::uint64_t parent, std::string_view name) {
    return path_hash(name, parent == root_path ? parent : path_hash("/", parent));
}

/// A sequence of random numbers, addressed by index. Copy it freely: it has no state.
struct random_stream {
    std::uint64_t seed = 0;
    std::uint32_t stream = 0;
    std::uint32_t step = 0;

    /// 128 random bits of block `block`.
    constexpr std::array<std::uint32_t, 4> bits4(std::uint64_t block) const {
        return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step, stream},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    }

    /// 32 random bits of number `i`.
    constexpr std::uint32_t bits(std::uint64_t i) const { return bits4(i / 4)[i % 4]; }

    /// Uniform in [0, 1), 24 bits: exact in float.
    constexpr float uniform(std::uint64_t i) const { return to_unit(bits(i)); }

    /// Uniform integer in [0, n), n ≥ 1, by the multiply-high map (bias below n / 2^64).
    constexpr std::uint64_t below(std::uint64_t n, std::uint64_t i) const {
        const auto b = bits4(i / 2);
        const std::uint64_t wide = i % 2 ? (std::uint64_t{b[3]} << 32 | b[2]) : (std::uint64_t{b[1]} << 32 | b[0]);
        __extension__ using uint128 = unsigned __int128;
        return static_cast<std::uint64_t>((uint128{wide} * n) >> 64);
    }

    /// Standard normal number `i`, by Box–Muller on the pair that it belongs to; finite, |x| < 6.7.
    CAIRN_HD double normal(std::uint64_t i) const {
        const auto b = bits4(i / 4);
        const std::size_t pair = i % 4 / 2 * 2;
        const double radius = std::sqrt(-2.0 * std::log((b[pair] + 1.0) * 0x1p-32));
        const double angle = 2.0 * std::numbers::pi * (b[pair + 1] * 0x1p-32);
        return i % 2 ? radius * std::sin(angle) : radius * std::cos(angle);
    }

    static constexpr float to_unit(std::uint32_t b) { return static_cast<float>(b >> 8) * 0x1p-24f; }
};

namespace detail {

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA'14): each bit of x changes half of the result's.
constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

}  // namespace detail

/// The random numbers that belong to one path of the whole model, one stream for each purpose ("initial values",
/// "forward"). The path enters the key with all of its 64 bits.
constexpr random_stream stream_of_path(std::uint64_t seed, std::uint64_t path, std::string_view purpose,
                                       std::uint32_t step = 0) {
    return {detail::mixed(seed + 0x9E3779B97F4A7C15u) ^ path, stream_of(purpose), step};
}

}  // namespace cairn
