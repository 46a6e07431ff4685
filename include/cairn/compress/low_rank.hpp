#pragma once
// Common part of the two variants of PowerSGD: the matrices M (rows, cols) of a bucket, and the state around their
// products with two thin factors P (r, rows) and Q (r, cols), whose kernels are those of device/low_rank.hpp.
//
// A parameter of shape (out, …) is the matrix [out, rest]. It is compressed if that makes it smaller: (rows + cols) r <
// rows · cols; vectors, small matrices and gaps between parameters travel as they are.

#include <cairn/compress/compressor.hpp>
#include <cairn/device/cpu/low_rank.hpp>

#include <algorithm>
#include <utility>

namespace cairn {

/// Throws if parameters overlap, are out of order or outside n values.
inline low_rank_plan plan_low_rank(const bucket_layout& layout, index_t n, int rank) {
    require(rank >= 1, "powersgd: rank ", rank, ", expected at least 1");
    low_rank_plan plan{.matrices = {}, .dense = {}, .n = n};
    index_t at = 0, end = 0;
    const auto dense_to = [&](index_t to) {
        if (to > at) plan.dense.push_back({at, to - at, std::exchange(plan.dense_size, plan.dense_size + to - at)});
        at = to;
    };
    for (const bucket_slice& s : layout) {
        const index_t size = s.shape.size();
        require(s.offset >= end && s.offset + size <= n, "powersgd: ", s.name, ' ', s.shape, " at ", s.offset,
                " does not fit behind ", end, " in a bucket of ", n, " values");
        end = s.offset + size;
        if (s.shape.rank() < 2 || size == 0) continue;
        const index_t rows = s.shape[0], cols = size / rows, r = std::min({index_t{rank}, rows, cols});
        if ((rows + cols) * r >= rows * cols) continue;
        dense_to(s.offset);
        plan.matrices.push_back({s.offset, rows, cols, r, plan.p_size, plan.q_size});
        plan.p_size += r * rows;
        plan.q_size += r * cols;
        at = end;
    }
    dense_to(n);
    return plan;
}

/// Common part of PowerSGD's variants: their state, and the steps around the products.
template <Device D>
class low_rank_state {
public:
    using device = D;

    low_rank_state(const bucket_layout& layout, index_t n, int rank)
        : plan_(plan_low_rank(layout, n, rank)), tables_(plan_) {
        p_ = tensor<float, D>::zeros({plan_.p_size + plan_.dense_size}, memory_category::communication);
        q_ = tensor<float, D>::zeros({plan_.q_size + plan_.dense_size}, memory_category::communication);
        residual_ = tensor<float, D>::zeros({n}, memory_category::communication);
    }

    const low_rank_plan& plan() const { return plan_; }
    /// All memory is made by the constructor, which needs the layout.
    void prepare(index_t n) const {
        require(n == plan_.n, "powersgd: a bucket of ", n, " values after one of ", plan_.n,
                "; each bucket needs a compressor of its own");
    }
    void flush_residual(std::span<float> gradient) { flush_into(residual_, gradient); }

protected:
    /// total = gradient + residual, and the dense values of it behind the factors of `out`.
    void start(const std::string& who, std::span<const float> gradient, std::span<float> total, factor_side out,
               const encode_step& at) {
        require(static_cast<index_t>(gradient.size()) == plan_.n && total.size() == gradient.size(), who,
                ": a bucket of ", gradient.size(), " values and room for ", total.size(), ", expected ", plan_.n);
        if (!add_residual(D{}, plan_.n, gradient.data(), std::as_const(residual_).data(), total.data()))
            require_finite<D>(who, total, at);
        gather_dense(D{}, tables_, total.data(), dense(out));
    }
    void draw(factor_side side, const encode_step& at) {
        draw_zero_rows(D{}, tables_, side, at.shared_random("powersgd"), factors(side));
    }
    void make_orthonormal(factor_side side) { orthonormalise(D{}, tables_, side, factors(side)); }
    void multiply(factor_side into, std::span<const float> m) {
        if (into == factor_side::p)
            project(D{}, tables_, m.data(), q_.data(), p_.data());
        else
            back_project(D{}, tables_, m.data(), p_.data(), q_.data());
    }
    /// total = ranks · (the estimate of the mean), dense values from behind the factors of `out`.
    void finish(factor_side out, int ranks, std::span<float> total) {
        reconstruct(D{}, tables_, p_.data(), q_.data(), ranks, total.data(), residual_.data());
        scatter_dense(D{}, tables_, dense(out), ranks, total.data());
    }
    float* factors(factor_side side) { return (side == factor_side::p ? p_ : q_).data(); }
    float* dense(factor_side out) { return factors(out) + (out == factor_side::p ? plan_.p_size : plan_.q_size); }

    low_rank_plan plan_;
    low_rank_tables<D> tables_;
    tensor<float, D> p_, q_;     // all P, all Q: (r, rows) and (r, cols) each; room for the dense values behind them
    tensor<float, D> residual_;  // (n)
};

}  // namespace cairn
