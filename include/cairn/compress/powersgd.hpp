#pragma once
// PowerSGD of rank r (Vogels et al., NeurIPS 2019): one step of subspace iteration a training step, started where the
// last one ended, with error feedback. For each matrix M = g + e of the bucket, over P ranks:
//   P = M Q            project;        all-reduce P (and all that is no matrix, in the same message)
//   P ← orthonormal columns of P
//   Q = Mᵀ P           back_project;   all-reduce Q;  Q ← Q / ranks
//   M̂ = P Qᵀ           reconstruct;    the mean;  e ← M − M̂
// Q is kept between steps: that is what makes one iteration enough. Columns of Q that became zero are drawn anew. All
// ranks draw the same, and compute the same bits from the same sums. Start it after some dense steps: the caller's
// choice.
//
// On the wire: all-reduces of p_size + dense_size and of q_size floats, r (rows + cols) a matrix. State: "q", and
// "residual",
// n floats. Scratch: P. Memory traffic: M is written once and read three times. Matrices, pieces and kernels:
// low_rank.hpp.

#include <cairn/compress/low_rank.hpp>

namespace cairn {

namespace detail {

/// What PowerSGD's variants do around the products.
class low_rank_state {
public:
    low_rank_state(const bucket_layout& layout, index_t n, int rank) : plan(layout, n, rank) {
        p = tensor<float>::zeros({plan.p_size + plan.dense_size}, memory_category::communication);
        q = tensor<float>::zeros({plan.q_size + plan.dense_size}, memory_category::communication);
        residual = tensor<float>::zeros({n}, memory_category::communication);
    }

    /// corrected = gradient + residual, and the dense values of it to `dense`.
    void start(const std::string& who, std::span<const float> gradient, std::span<float> corrected, float* dense,
               const encode_step& at) const {
        require(static_cast<index_t>(gradient.size()) == plan.n && corrected.size() == gradient.size(), who,
                ": a bucket of ", gradient.size(), " values and room for ", corrected.size(), ", expected ", plan.n);
        const float *const g = gradient.data(), *const e = residual.data();
        float* const x = corrected.data();
        const index_t bad = parallel_sum<index_t>(plan.n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
            for (index_t i = begin; i < end; ++i) x[i] = g[i] + e[i];
            return count_nonfinite(end - begin, x + begin);
        });
        if (bad) require_finite(who, corrected, at);
        for (const dense_run& d : plan.dense) std::copy_n(corrected.data() + d.offset, d.count, dense + d.at);
    }
    /// mean = dense / ranks where no matrix is.
    void finish_dense(const float* dense, int ranks, std::span<float> mean) const {
        const float scale = 1.0f / static_cast<float>(ranks);
        for (const dense_run& d : plan.dense)
            for (index_t i = 0; i < d.count; ++i)
                mean[static_cast<std::size_t>(d.offset + i)] = dense[d.at + i] * scale;
    }
    /// For all matrices, each a unit of work: f(matrix).
    template <class F>
    void for_each_matrix(F f) const {
        parallel_for(static_cast<index_t>(plan.matrices.size()), 1, [&](index_t begin, index_t end) {
            for (index_t k = begin; k < end; ++k) f(plan.matrices[static_cast<std::size_t>(k)]);
        });
    }

    low_rank_plan plan;
    tensor<float> p, q;      // all P, all Q: (r, rows) and (r, cols) each; room for the dense values behind them
    tensor<float> residual;  // (n)
};

}  // namespace detail

class powersgd {
public:
    struct config {
        int rank = 2;
    };
    /// For buckets of n values laid out as `layout`.
    powersgd(config c, const bucket_layout& layout, index_t n) : rank_(c.rank), s_(layout, n, c.rank) {}

    std::string name() const { return concat("powersgd", rank_); }
    const low_rank_plan& plan() const { return s_.plan; }
    /// Floats that the two all-reduces sum.
    index_t exchanged() const { return s_.plan.p_size + s_.plan.dense_size + s_.plan.q_size; }

    /// mean ≈ the mean of the gradients of all ranks; gradient may be mean. sum(std::span<float>) must replace its
    /// argument by the sum over all ranks, with the same bits on each. It is called twice. A NaN or Inf throws before
    /// the first call and leaves the state as it was: ranks must have agreed, with first_non_finite, that there is
    /// none.
    template <class Sum>
    void reduce(std::span<const float> gradient, std::span<float> mean, int ranks, const encode_step& at, Sum&& sum) {
        const low_rank_plan& plan = s_.plan;
        float *const p = s_.p.data(), *const q = s_.q.data(), *const dense = p + plan.p_size;
        s_.start(name(), gradient, mean, dense, at);
        const random_stream random = at.shared_random("powersgd");
        s_.for_each_matrix([&](const low_rank_matrix& m) { draw_zero_rows(m.rank, m.cols, q + m.q, random, m.q); });

        project(plan, mean.data(), q, p);
        sum(s_.p.span());
        s_.for_each_matrix([&](const low_rank_matrix& m) { orthonormalise(m.rank, m.rows, p + m.p); });
        back_project(plan, mean.data(), p, q);
        sum(s_.q.span().first(static_cast<std::size_t>(plan.q_size)));
        reconstruct(plan, p, q, 1.0f / static_cast<float>(ranks), mean.data(), s_.residual.data());
        s_.finish_dense(dense, ranks, mean);
    }

    void flush_residual(std::span<float> gradient) { flush_into(s_.residual, gradient); }
    std::vector<compressor_tensor> tensors() {
        std::vector<compressor_tensor> all;
        all.push_back({"q", s_.q.share()});
        all.push_back({"residual", s_.residual.share()});
        return all;
    }

private:
    int rank_;
    detail::low_rank_state s_;
};

}  // namespace cairn
