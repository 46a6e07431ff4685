#pragma once
// Deep Gradient Compression (Lin, Han et al., ICLR 2018): sparse messages of accumulated velocity.
//   g ← g min(1, clip / (√P ‖g‖₂))          local clipping, before anything is accumulated
//   u ← m u + g                             momentum correction: momentum is applied before sparsification,
//   v ← v + u                                 so the optimizer must have none
//   send v where |v| ≥ τ                    τ: about the ratio · n largest, sampled (select.hpp)
//   u, v ← 0 there                          momentum factor masking
//   ratio: 0.25, 0.0625, … in the first stages of warm-up, one quarter of the last each, down to the final one
//
// Wire format: sparse_message.hpp. State: u and v, n floats each ("velocity", "accumulated"). Memory traffic of encode:
// 6 reads and writes of 4 bytes a value. Σ sent + v follows from the velocities alone: with m = 0 it is Σ g (error
// feedback).

#include <cairn/compress/topk.hpp>

namespace cairn {

class dgc {
public:
    struct config {
        double ratio = 0.001;  // final share of the values that is sent, (0, 1]
        double momentum = 0.9;
        double clip = 0;                // on the norm of the mean gradient; 0: none
        int ranks = 1;                  // P of the clipping
        std::int64_t warmup_stage = 0;  // steps of each stage of warm-up (the paper: an epoch); 0: no warm-up
        sparse_value values = sparse_value::float32;
    };
    dgc() : dgc(config{}) {}
    explicit dgc(config c) : config_(c) {
        detail::check_sparse("dgc", {.ratio = c.ratio});
        require(c.momentum >= 0 && c.momentum < 1, "dgc: momentum ", c.momentum, " is not in [0, 1)");
        require(c.clip >= 0 && c.ranks >= 1 && c.warmup_stage >= 0, "dgc: clip ", c.clip, ", ranks ", c.ranks,
                ", stage of ", c.warmup_stage, " steps");
    }

    std::string name() const { return "dgc"; }
    compression_contract contract(index_t) const { return {.fixed_bytes = false}; }
    /// Bytes at the largest ratio of the warm-up.
    index_t max_bytes(index_t n) const {
        const index_t k = detail::chosen_count(ratio(0), n);
        return sparse_message_max_bytes(n, std::min(n, static_cast<index_t>(1.3 * static_cast<double>(k))),
                                        config_.values);
    }
    /// The share that is sent in a step.
    double ratio(std::int64_t step) const {
        if (config_.warmup_stage == 0) return config_.ratio;
        return std::max(config_.ratio, std::pow(0.25, static_cast<double>(1 + step / config_.warmup_stage)));
    }

    void prepare(index_t n) {
        if (velocity_.empty()) {
            velocity_ = tensor<float>::zeros({n}, memory_category::communication);
            accumulated_ = tensor<float>::zeros({n}, memory_category::communication);
        }
        require(velocity_.size() == n, "dgc: a bucket of ", n, " values after one of ", velocity_.size(),
                "; each bucket needs a compressor of its own");
    }

    void encode(std::span<const float> gradient, message& out, const encode_step& at) {
        const index_t n = static_cast<index_t>(gradient.size());
        detail::check_countable(name(), n);
        prepare(n);
        const double norm = std::sqrt(sum_of_squares(cpu{}, n, gradient.data()));
        if (!std::isfinite(norm)) require_finite(name(), gradient, at);
        const double allowed = config_.clip / std::sqrt(static_cast<double>(config_.ranks));
        const auto shrink = static_cast<float>(config_.clip > 0 && norm > allowed ? allowed / norm : 1.0);
        const auto m = static_cast<float>(config_.momentum);
        const float* const g = gradient.data();
        float *const u = velocity_.data(), *const v = accumulated_.data();
        parallel_for(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
            for (index_t i = begin; i < end; ++i) {
                u[i] = m * u[i] + shrink * g[i];
                v[i] += u[i];
            }
        });
        select_sampled(accumulated_.span(), detail::chosen_count(ratio(at.step), n), chosen_);
        encode_sparse(chosen_.positions, chosen_.values, config_.values, out);
        for (const std::uint32_t p : chosen_.positions) u[p] = v[p] = 0;
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        fill_zero(into);
        decode_sparse("dgc", bytes, config_.values, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_sparse("dgc", bytes, config_.values, into, add_scaled{scale});
    }

    std::vector<compressor_tensor> tensors() {
        if (velocity_.empty()) return {};
        std::vector<compressor_tensor> all;
        all.push_back({"velocity", velocity_.share()});
        all.push_back({"accumulated", accumulated_.share()});
        return all;
    }

private:
    config config_;
    tensor<float> velocity_, accumulated_;  // u, v: (n)
    selection chosen_;
};

}  // namespace cairn
