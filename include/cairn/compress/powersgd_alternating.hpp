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

class powersgd_alternating {
public:
    using config = powersgd::config;
    powersgd_alternating(config c, const bucket_layout& layout, index_t n) : rank_(c.rank), s_(layout, n, c.rank) {}

    std::string name() const { return concat("powersgd", rank_, "_alternating"); }
    const low_rank_plan& plan() const { return s_.plan; }
    /// Floats that the all-reduce sums, in the step where it is more.
    index_t exchanged() const { return std::max(s_.plan.p_size, s_.plan.q_size) + s_.plan.dense_size; }

    /// As powersgd::reduce; sum is called once.
    template <class Sum>
    void reduce(std::span<const float> gradient, std::span<float> mean, int ranks, const encode_step& at, Sum&& sum) {
        const low_rank_plan& plan = s_.plan;
        const bool even = at.step % 2 == 0;
        tensor<float>& out = even ? s_.p : s_.q;
        float *const p = s_.p.data(), *const q = s_.q.data();
        float* const dense = out.data() + (even ? plan.p_size : plan.q_size);
        s_.start(name(), gradient, mean, dense, at);
        const random_stream random = at.shared_random("powersgd");
        s_.for_each_matrix([&](const low_rank_matrix& m) {
            const index_t length = even ? m.cols : m.rows, first = even ? m.q : m.p;
            float* const in = (even ? q : p) + first;
            draw_zero_rows(m.rank, length, in, random, first);
            orthonormalise(m.rank, length, in);
        });

        if (even)
            project(plan, mean.data(), q, p);
        else
            back_project(plan, mean.data(), p, q);
        sum(out.span());
        const float scale = 1.0f / static_cast<float>(ranks);
        reconstruct(plan, p, q, scale, mean.data(), s_.residual.data());
        s_.finish_dense(dense, ranks, mean);
    }

    void flush_residual(std::span<float> gradient) { flush_into(s_.residual, gradient); }
    std::vector<compressor_tensor> tensors() {
        std::vector<compressor_tensor> all;
        all.push_back({"p", s_.p.share()});
        all.push_back({"q", s_.q.share()});
        all.push_back({"residual", s_.residual.share()});
        return all;
    }

private:
    int rank_;
    detail::low_rank_state s_;
};

}  // namespace cairn
