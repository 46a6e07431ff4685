#pragma once
// Reed–Solomon erasure code: k chunks of data and m parities, of which any m may be lost.
//   P_j = Σ_i g_ji · chunk_i,    j < m, i < k,    g_ji = 1/(j ⊕ (m + i))        each byte by itself, in GF(2⁸)
// Bytes are polynomials over {0, 1}: they add by XOR, and multiply modulo x⁸ + x⁴ + x³ + x² + 1 (0x11d), so that each
// but 0 has an inverse. Chunks that are lost are the unknowns of as many equations. The matrix g is Cauchy's: every
// square part of it has an inverse, so these equations can always be solved (not so those of Vandermonde's matrix).
// m = 1 is XOR, with g = 1: the parity of RAID-5.
// Sources: Blömer et al., "An XOR-based erasure-resilient coding scheme", ICSI TR-95-048; Plank and Ding, "Note:
// correction to the 1997 tutorial on Reed–Solomon coding", 2005.
// Tested against plain arithmetic with polynomials. The one file that includes ISA-L, which adds products of bytes with
// vector instructions (CAIRN_HAS_ISAL: 1 where its header is found, or as the build says); without it a table does.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#ifndef CAIRN_HAS_ISAL
#if __has_include(<isa-l/erasure_code.h>)
#define CAIRN_HAS_ISAL 1
#else
#define CAIRN_HAS_ISAL 0
#endif
#endif

#if CAIRN_HAS_ISAL
#include <isa-l/erasure_code.h>
#endif

namespace cairn {

/// a · b in GF(2⁸).
constexpr std::uint8_t gf_product(std::uint8_t a, std::uint8_t b) {
    unsigned product = 0, shifted = a;  // a · x^bit
    for (int bit = 0; bit < 8; ++bit) {
        if (b >> bit & 1) product ^= shifted;
        shifted = shifted << 1 ^ (shifted & 0x80 ? 0x11d : 0);
    }
    return static_cast<std::uint8_t>(product);
}

/// 1/a for a ≠ 0: a²⁵⁴, as a²⁵⁵ = 1.
constexpr std::uint8_t gf_inverse(std::uint8_t a) {
    std::uint8_t power = 1;
    for (int i = 0; i < 254; ++i) power = gf_product(power, a);
    return power;
}

/// g_ji: the factor of chunk i in parity j of m. Needs m + i < 256.
inline std::uint8_t parity_factor(int m, int j, int i) {
    require(0 <= j && j < m && 0 <= i && m + i < 256, "erasure code: parity ", j, " of ", m, " and chunk ", i,
            "; there are 256 chunks and parities at most");
    return m == 1 ? std::uint8_t{1} : gf_inverse(static_cast<std::uint8_t>(j ^ (m + i)));
}

namespace detail {

/// to ← to ⊕ from.
inline void add_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    using lanes = std::uint64_t __attribute__((vector_size(64)));
    for (; bytes >= sizeof(lanes); bytes -= sizeof(lanes), to += sizeof(lanes), from += sizeof(lanes)) {
        lanes a, b;
        std::memcpy(&a, to, sizeof a);
        std::memcpy(&b, from, sizeof b);
        a ^= b;
        std::memcpy(to, &a, sizeof a);
    }
    for (; bytes > 0; --bytes) *to++ ^= *from++;
}

/// to ← to ⊕ factor · from, by a table of all products with the factor.
inline void add_product_by_table(std::byte* to, std::uint8_t factor, const std::byte* from, std::size_t bytes) {
    std::array<std::byte, 256> product{};
    for (unsigned b = 0; b < 256; ++b) product[b] = std::byte{gf_product(factor, static_cast<std::uint8_t>(b))};
    for (std::size_t i = 0; i < bytes; ++i) to[i] ^= product[std::to_integer<std::size_t>(from[i])];
}

#if CAIRN_HAS_ISAL
inline void add_product_by_isal(std::byte* to, std::uint8_t factor, const std::byte* from, std::size_t bytes) {
    std::array<unsigned char, 32> tables{};
    ec_init_tables(1, 1, &factor, tables.data());
    constexpr std::size_t most = std::size_t{1} << 30;  // it takes an int
    for (std::size_t n; bytes > 0; bytes -= n, to += n, from += n) {
        n = std::min(bytes, most);
        auto* target = reinterpret_cast<unsigned char*>(to);
        auto* source = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(from));
        ec_encode_data_update(static_cast<int>(n), 1, 1, 0, tables.data(), source, &target);
    }
}
#endif

}  // namespace detail

/// to ← to ⊕ factor · from, for the bytes that both have; the rest of `to` stays, as if `from` went on with zeros.
/// The two do not overlap.
inline void add_product(std::span<std::byte> to, std::uint8_t factor, std::span<const std::byte> from) {
    const std::size_t bytes = std::min(to.size(), from.size());
    if (factor == 1) return detail::add_bytes(to.data(), from.data(), bytes);
    if (factor == 0) return;
#if CAIRN_HAS_ISAL
    detail::add_product_by_isal(to.data(), factor, from.data(), bytes);
#else
    detail::add_product_by_table(to.data(), factor, from.data(), bytes);
#endif
}

/// How one lost chunk follows from what is left: chunk = Σ_i of_chunk[i] · chunk_i ⊕ Σ_j of_parity[j] · P_j.
struct lost_chunk {
    int chunk = 0;
    std::vector<std::uint8_t> of_chunk, of_parity;  // 0 for those that are lost or not needed
};

namespace detail {

/// The inverse of an n × n matrix, row after row, by Gauss and Jordan. Throws where there is none.
inline std::vector<std::uint8_t> gf_inverse_matrix(std::vector<std::uint8_t> a, std::size_t n) {
    std::vector<std::uint8_t> inverse(n * n, 0);
    for (std::size_t d = 0; d < n; ++d) inverse[d * n + d] = 1;
    const auto add_row = [n](std::vector<std::uint8_t>& of, std::size_t to, std::uint8_t factor, std::size_t from) {
        for (std::size_t c = 0; c < n; ++c) of[to * n + c] ^= gf_product(factor, of[from * n + c]);
    };
    for (std::size_t d = 0; d < n; ++d) {
        std::size_t row = d;
        while (row < n && a[row * n + d] == 0) ++row;
        require(row < n, "erasure code: a matrix without an inverse");
        // Make a[d, d] one, by adding a multiple of a row in which it is not zero, then clear the rest of its column.
        const std::uint8_t factor =
            gf_product(gf_inverse(a[row * n + d]), row == d ? a[row * n + d] ^ 1 : std::uint8_t{1});
        add_row(inverse, d, factor, row), add_row(a, d, factor, row);
        for (std::size_t other = 0; other < n; ++other) {
            if (other == d) continue;
            const std::uint8_t there = a[other * n + d];
            add_row(inverse, other, there, d), add_row(a, other, there, d);
        }
    }
    return inverse;
}

}  // namespace detail

/// The lost ones of k chunks from the rest and from parities of m, of which those with has_parity[j] are there.
/// Throws where fewer parities are there than chunks are lost.
inline std::vector<lost_chunk> solve_lost_chunks(int k, const std::vector<int>& lost,
                                                 const std::vector<bool>& has_parity) {
    const int m = static_cast<int>(has_parity.size());
    std::vector<int> used;  // equations
    for (int j = 0; j < m && used.size() < lost.size(); ++j)
        if (has_parity[static_cast<std::size_t>(j)]) used.push_back(j);
    require(used.size() == lost.size(), "erasure code: ", lost.size(), " chunks are lost and only ", used.size(),
            " parities are left");
    const std::size_t n = lost.size();
    std::vector<std::uint8_t> of_lost;  // Σ_lost g · chunk = P ⊕ Σ_left g · chunk
    for (const int j : used)
        for (const int i : lost) of_lost.push_back(parity_factor(m, j, i));
    const std::vector<std::uint8_t> inverse = detail::gf_inverse_matrix(of_lost, n);

    std::vector<lost_chunk> all;
    for (std::size_t row = 0; row < n; ++row) {
        lost_chunk one{lost[row], std::vector<std::uint8_t>(static_cast<std::size_t>(k), 0),
                       std::vector<std::uint8_t>(static_cast<std::size_t>(m), 0)};
        for (std::size_t equation = 0; equation < n; ++equation) {
            const std::uint8_t factor = inverse[row * n + equation];
            one.of_parity[static_cast<std::size_t>(used[equation])] = factor;
            for (int i = 0; i < k; ++i)
                if (std::find(lost.begin(), lost.end(), i) == lost.end())
                    one.of_chunk[static_cast<std::size_t>(i)] ^=
                        gf_product(factor, parity_factor(m, used[equation], i));
        }
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace cairn
