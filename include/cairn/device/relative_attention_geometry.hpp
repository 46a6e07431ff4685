#pragma once
// The shape of attention with relative positions and a memory (Dai et al. 2019, Transformer-XL, section 3.3), shared by
// every device. A segment of L positions attends to K = M + L keys: M of the memory, then itself.
//
//   s[n, h, i, j] = scale (qu[n, i, h, :] · k[n, j, h, :] + qv[n, i, h, :] · r[j + L − 1 − i, h, :]), begin ≤ j ≤ M + i
//   y[n, i, h, :] = Σ_j softmax_j(s[n, h, i, :]) v[n, j, h, :]
//
// The caller has added the biases: qu = q + u and qv = q + v, so that the two products hold the paper's four terms
// (a) q·k, (b) q·r, (c) u·k, (d) v·r. Row c of r is the key of distance K − 1 − c: key j is M + i − j before row i,
// which is row j + L − 1 − i. That is the paper's relative shift (appendix B): of the L × K products qv rᵀ, row i
// moves by L − 1 − i places, and no key of a pair of positions is ever made.
// qu, qv and y are (batch, L, heads, head_dim); k and v lie side by side, (batch, K, 2, heads, head_dim); r is (K,
// heads, head_dim). The first `begin` keys do not exist yet: the memory fills from its end.

#include <cairn/core/error.hpp>
#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>

namespace cairn {

/// See the top of the file.
struct relative_attention_geometry {
    index_t batch = 1, length = 1;  // L
    index_t memory = 0, begin = 0;  // M; keys that nothing attends to
    index_t heads = 1, head_dim = 1;

    [[nodiscard]] CAIRN_HD index_t keys() const { return memory + length; }
    [[nodiscard]] CAIRN_HD index_t width() const { return heads * head_dim; }
    [[nodiscard]] double factor() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
    /// Row of r for row i and key 0; key j has that of j further on.
    [[nodiscard]] CAIRN_HD index_t shift(index_t i) const { return length - 1 - i; }

    /// Elements of qu, k (v is width() further on) and r.
    [[nodiscard]] CAIRN_HD index_t row(index_t n, index_t i, index_t h) const {
        return ((n * length + i) * heads + h) * head_dim;
    }
    [[nodiscard]] CAIRN_HD index_t key(index_t n, index_t j, index_t h) const {
        return (n * keys() + j) * 2 * width() + h * head_dim;
    }
    [[nodiscard]] CAIRN_HD index_t place(index_t c, index_t h) const { return c * width() + h * head_dim; }

    /// Pairs of a row and a key when the memory is full.
    [[nodiscard]] double pairs() const {
        const double rows = static_cast<double>(length);
        return static_cast<double>(batch * heads) * rows * (static_cast<double>(memory) + (rows + 1) / 2);
    }
    // Forward makes three products, backward eight, three of them again.
    [[nodiscard]] double forward_flops() const { return (6.0 * static_cast<double>(head_dim) + 6) * pairs(); }
    [[nodiscard]] double backward_flops() const { return (16.0 * static_cast<double>(head_dim) + 6) * pairs(); }
    // qu, qv, y; k and v; r; a logarithm a row. In backward their gradients, too; that of r for each sequence.
    [[nodiscard]] double forward_bytes(double of_value, double of_sum) const {
        const double w = static_cast<double>(width()), l = static_cast<double>(batch * length),
                     k = static_cast<double>(batch * keys());
        return of_value * w * (3 * l + 2 * k + static_cast<double>(keys())) + of_sum * l * static_cast<double>(heads);
    }
    [[nodiscard]] double backward_bytes(double of_value, double of_sum) const {
        const double w = static_cast<double>(width()), l = static_cast<double>(batch * length),
                     k = static_cast<double>(batch * keys());
        return of_value * w * (6 * l + 5 * k + static_cast<double>(keys())) + of_sum * l * static_cast<double>(heads);
    }

    /// Throws on sizes that make no attention.
    void check() const {
        require(batch >= 0 && length >= 0 && heads > 0 && head_dim > 0, "relative attention: batch ", batch,
                ", length ", length, ", ", heads, " heads of ", head_dim, "; heads and their size must be positive");
        require(memory >= 0 && begin >= 0 && begin <= memory, "relative attention: a memory of ", memory,
                " positions, of which ", begin, " are empty");
    }
};

}  // namespace cairn
