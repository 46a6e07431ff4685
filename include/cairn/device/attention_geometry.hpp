#pragma once
// The shape of scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), shared by every device.
//
//   s[n, h, i, j] = scale · Σ_c q[n, i, h, c] k[n, j, h, c]        for the keys j that row i attends to
//   y[n, i, h, c] = Σ_j softmax_j(s[n, h, i, :]) v[n, j, h, c]
//
// q, k and v are (batch, length, heads, head_dim), positions `stride` elements apart, so that they may be three parts
// of one projection; y is dense. Row i attends to the keys j < lengths[n], under a causal mask to those with j ≤ i.
// Rows beyond lengths[n] attend to nothing: y is 0.
// With dropout a weight of y is 0 with that probability and else divided by 1 − dropout; the softmax is that of all
// keys. The mask is not stored: weight (n, h, i, j) follows from Philox bits of (seed, stream, step, place), computed
// again in backward and the same on every device,
//   word i mod 4 of Philox block (((first + n) heads + h) ⌈length / 4⌉ + ⌊i / 4⌋) · 16 ⌈length / 16⌉ + j
//   kept if word ≥ dropout 2^32
// where `first` is the place of sequence 0 in the whole batch, and heads are counted in the whole layer where some of
// them are here: any number of ranks and micro-batches draws what one draws. Four rows share a block, so that no rank
// draws more bits than it needs.

#include <cairn/core/error.hpp>
#include <cairn/core/host_device.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// See the top of the file.
struct attention_geometry {
    index_t batch = 1, length = 1, heads = 1, head_dim = 1;
    bool causal = false;
    double scale = 0;    ///< 0: 1 / √head_dim
    index_t stride = 0;  ///< elements from one position of q, k and v to the next; 0: heads · head_dim
    const std::int32_t* lengths = nullptr;  ///< (batch), on the device, each in [0, length]; null: all positions count
    double dropout = 0;                     ///< probability that a weight is dropped, in [0, 1)
    random_stream random{};                 ///< of the mask: the same in forward and backward
    /// on the device, holds random.step when the work runs; null: it is part of it
    const std::uint32_t* step = nullptr;
    index_t first = 0;                      ///< sequences of the whole batch before these
    index_t all_heads = 0, first_head = 0;  ///< the heads are those from first_head on of all_heads; 0: they are all

    [[nodiscard]] index_t width() const { return heads * head_dim; }
    [[nodiscard]] index_t position() const { return stride ? stride : width(); }
    [[nodiscard]] double factor() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim)); }
    [[nodiscard]] std::uint32_t threshold() const { return static_cast<std::uint32_t>(dropout * 0x1p32); }
    [[nodiscard]] double kept_factor() const { return 1 / (1 - dropout); }
    /// The Philox block of key j for rows i to i + 3 of head `of` = n heads + h; i is a multiple of 4.
    [[nodiscard]] CAIRN_HD std::uint64_t mask_block(index_t of, index_t i, index_t j) const {
        const index_t head =
            all_heads ? (first + of / heads) * all_heads + first_head + of % heads : first * heads + of;
        return static_cast<std::uint64_t>((head * ((length + 3) / 4) + i / 4) * ((length + 15) / 16 * 16) + j);
    }
    [[nodiscard]] double rows() const {
        return static_cast<double>(batch) * static_cast<double>(length) * static_cast<double>(heads);
    }

    /// Pairs of a row and a key it attends to when all positions count.
    [[nodiscard]] double pairs() const {
        const double n = static_cast<double>(length);
        return static_cast<double>(batch * heads) * (causal ? n * (n + 1) / 2 : n * n);
    }
    // A pair costs 4 head_dim operations in the two products of forward and 5 in the softmax; 10 head_dim in backward,
    // one product made again.
    [[nodiscard]] double forward_flops() const { return (4.0 * static_cast<double>(head_dim) + 5) * pairs(); }
    [[nodiscard]] double backward_flops() const {
        return (10.0 * static_cast<double>(head_dim) + 5) * pairs() + 2.0 * static_cast<double>(head_dim) * rows();
    }
    // q, k, v, y and a logarithm a row; in backward q, k, v, y, dy, dq, dk, dv and the logarithms.
    [[nodiscard]] double forward_bytes(double of_value, double of_sum) const {
        return rows() * (4 * static_cast<double>(head_dim) * of_value + of_sum);
    }
    [[nodiscard]] double backward_bytes(double of_value, double of_sum) const {
        return rows() * (8 * static_cast<double>(head_dim) * of_value + of_sum);
    }

    /// Throws on sizes that make no attention.
    void check() const {
        require(batch >= 0 && length >= 0 && heads > 0 && head_dim > 0, "attention: batch ", batch, ", length ", length,
                ", ", heads, " heads of ", head_dim, "; heads and their size must be positive");
        require(stride == 0 || stride >= width(), "attention: positions ", stride, " elements apart, but one has ",
                heads, " x ", head_dim);
        require(std::isfinite(scale), "attention: scale ", scale);
        require(first_head >= 0 && (all_heads == 0 ? first_head == 0 : first_head + heads <= all_heads),
                "attention: ", heads, " heads from ", first_head, " on of ", all_heads, "; they must be among them");
        require(dropout >= 0 && dropout < 1, "attention: dropout ", dropout, " is not in [0, 1)");
    }
};

}  // namespace cairn
