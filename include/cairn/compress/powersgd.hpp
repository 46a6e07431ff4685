#pragma once
// PowerSGD of rank r (Vogels et al., NeurIPS 2019): one step of subspace iteration a training step, started where the
// last one ended, with error feedback. For each matrix M = g + e of the bucket, over P ranks:
//   P = M Q            project;        all-reduce P (and all that is no matrix, in the same message)
//   P ← orthonormal columns of P
//   Q = Mᵀ P           back_project;   all-reduce Q;  Q ← Q / ranks
//   M̂ = P Qᵀ           reconstruct;    the mean;  e ← M − M̂
// Q is kept between steps, which makes one iteration enough. Columns of Q that became zero are drawn anew. All
// ranks draw the same, and compute the same bits from the same sums. Start it after some dense steps: the caller's
// choice.
//
// On the wire: all-reduces of p_size + dense_size and of q_size floats, r (rows + cols) a matrix. State: "q", and
// "residual", n floats. Scratch: P. Memory traffic: M is written once and read three times. Matrices: low_rank.hpp,
// kernels: device/low_rank.hpp.

#include <cairn/compress/low_rank.hpp>

namespace cairn {

struct powersgd_config {
    int rank = 2;
};

template <Device D = cpu>
class powersgd : public low_rank_state<D> {
public:
    using config = powersgd_config;
    /// For buckets of n values laid out as `layout`.
    powersgd(config c, const bucket_layout& layout, index_t n) : low_rank_state<D>(layout, n, c.rank), rank_(c.rank) {}

    std::string name() const { return concat("powersgd", rank_); }
    /// Floats that the two all-reduces sum.
    index_t exchanged() const {
        const low_rank_plan& plan = this->plan();
        return plan.p_size + plan.dense_size + plan.q_size;
    }

    /// total ≈ the sum of the gradients of all ranks; gradient may be total. sum(std::span<float>) must replace its
    /// argument by the sum over all ranks, with the same bits on each. It is called twice. On the host a NaN or Inf
    /// throws before the first call and leaves the state as it was: ranks must have agreed, with first_non_finite, that
    /// there is none.
    template <class Sum>
    void reduce(std::span<const float> gradient, std::span<float> total, int ranks, const encode_step& at, Sum&& sum) {
        using enum factor_side;
        this->start(name(), gradient, total, p, at);
        this->draw(q, at);
        this->multiply(p, total);
        sum(this->p_.span());
        this->make_orthonormal(p);
        this->multiply(q, total);
        sum(this->q_.span().first(static_cast<std::size_t>(this->plan().q_size)));
        this->finish(p, ranks, total);
    }

    std::vector<compressor_tensor_on<D>> tensors() {
        std::vector<compressor_tensor_on<D>> all;
        all.push_back({"q", this->q_.share()});
        all.push_back({"residual", this->residual_.share()});
        return all;
    }

private:
    int rank_;
};

}  // namespace cairn
