#pragma once
// PowerSGD with one all-reduce a step, as its authors' library has it (github.com/epfml/powersgd): a step does one half
// of the iteration, and the next step the other. For each matrix M = g + e:
//   even steps:  Q ← orthonormal columns of Q;  P = M Q;   all-reduce P (with all that is no matrix);  P ← P / ranks
//   odd steps:   P ← orthonormal columns of P;  Q = Mᵀ P;  all-reduce Q (…);                           Q ← Q / ranks
//   M̂ = P Qᵀ, the mean;  e ← M − M̂
// Half the messages and about half the bytes of powersgd.hpp; the subspace follows the gradients more slowly.
// State: "p", "q" and "residual". Sides alternate by at.step; a skipped step does no harm. The rest as in powersgd.hpp.

#include <cairn/compress/powersgd.hpp>

namespace cairn {

template <Device D = cpu>
class powersgd_alternating : public low_rank_state<D> {
public:
    using config = powersgd_config;
    powersgd_alternating(config c, const bucket_layout& layout, index_t n)
        : low_rank_state<D>(layout, n, c.rank), rank_(c.rank) {}

    std::string name() const { return concat("powersgd", rank_, "_alternating"); }
    /// Floats that the all-reduce sums, in the step where it is more.
    index_t exchanged() const {
        const low_rank_plan& plan = this->plan();
        return std::max(plan.p_size, plan.q_size) + plan.dense_size;
    }

    /// As powersgd::reduce; sum is called once.
    template <class Sum>
    void reduce(std::span<const float> gradient, std::span<float> total, int ranks, const encode_step& at, Sum&& sum) {
        using enum factor_side;
        const bool even = at.step % 2 == 0;
        const factor_side in = even ? q : p, out = even ? p : q;
        this->start(name(), gradient, total, out, at);
        this->draw(in, at);
        this->make_orthonormal(in);
        this->multiply(out, total);
        sum((even ? this->p_ : this->q_).span());
        this->finish(out, ranks, total);
    }

    std::vector<compressor_tensor_on<D>> tensors() {
        std::vector<compressor_tensor_on<D>> all;
        all.push_back({"p", this->p_.share()});
        all.push_back({"q", this->q_.share()});
        all.push_back({"residual", this->residual_.share()});
        return all;
    }

private:
    int rank_;
};

}  // namespace cairn
