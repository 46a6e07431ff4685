#pragma once
// Deep Gradient Compression (Lin, Han et al., ICLR 2018): sparse messages of accumulated velocity.
//   g ← g min(1, clip / (√P ‖g‖₂))          local clipping, before anything is accumulated
//   u ← m u + g                             momentum correction: momentum is applied before sparsification,
//   v ← v + u                                 so the optimizer must have none
//   send v where |v| ≥ τ                    τ: about the ratio · n largest, sampled (device/selection.hpp)
//   u, v ← 0 there                          momentum factor masking
//   ratio: 0.25, 0.0625, … in the first stages of warm-up, one quarter of the last each, down to the final one
//
// Wire format: sparse_message.hpp. State: u and v, n floats each ("velocity", "accumulated"). Memory traffic of encode:
// 6 reads and writes of 4 bytes a value. Σ sent + v follows from the velocities alone: with m = 0 it is Σ g (error
// feedback).

#include <cairn/compress/topk.hpp>

namespace cairn {

struct dgc_config {
    double ratio = 0.001;  // final share of the values that is sent, (0, 1]
    double momentum = 0.9;
    double clip = 0;                // on the norm of the mean gradient; 0: none
    int ranks = 1;                  // P of the clipping
    std::int64_t warmup_stage = 0;  // steps of each stage of warm-up (the paper: an epoch); 0: no warm-up
    sparse_value values = sparse_value::float32;
};

namespace functors {

/// u = m u + shrink g;  v += u, where shrink g is no longer than `allowed`; 0: any length is.
struct accumulate_velocity {
    float momentum;
    double allowed;
    const double* squares;  // ‖g‖², in the memory of the arrays
    float shrink = 1;

    CAIRN_HD accumulate_velocity at_hand() const {
        accumulate_velocity ready = *this;
        if (allowed > 0) {
            const double norm = std::sqrt(*squares);
            if (norm > allowed) ready.shrink = static_cast<float>(allowed / norm);
        }
        return ready;
    }
    CAIRN_HD void operator()(const float& g, float& u, float& v) const {
        u = momentum * u + shrink * g;
        v += u;
    }
};

}  // namespace functors

template <Device D = cpu, class Positions = positions_on<D>>
class dgc {
public:
    using device = D;
    using config = dgc_config;
    explicit dgc(config c = {}) : config_(c) {
        detail::check_sparse("dgc", {.ratio = c.ratio});
        require(c.momentum >= 0 && c.momentum < 1, "dgc: momentum ", c.momentum, " is not in [0, 1)");
        require(c.clip >= 0 && c.ranks >= 1 && c.warmup_stage >= 0, "dgc: clip ", c.clip, ", ranks ", c.ranks,
                ", stage of ", c.warmup_stage, " steps");
    }

    std::string name() const { return "dgc"; }
    compression_contract contract(index_t) const {
        return {.fixed_bytes = Positions::fixed_bytes && !samples && config_.warmup_stage == 0};
    }
    /// Bytes at the largest ratio of the warm-up.
    index_t max_bytes(index_t n) const { return sparse_message_max_bytes<Positions>(n, most(n), config_.values); }
    /// The share that is sent in a step.
    double ratio(std::int64_t step) const {
        if (config_.warmup_stage == 0) return config_.ratio;
        return std::max(config_.ratio, std::pow(0.25, static_cast<double>(1 + step / config_.warmup_stage)));
    }

    void prepare(index_t n) {
        detail::check_countable("dgc", n);
        prepare_zeros(velocity_, n, "dgc");
        prepare_zeros(accumulated_, n, "dgc");
        if (squares_.empty()) squares_ = tensor<double, D>::zeros({1}, memory_category::communication);
        chosen_.prepare(n, most(n));
    }

    void encode(std::span<const float> gradient, message<D>& out, const encode_step& at) {
        const auto n = static_cast<index_t>(gradient.size());
        prepare(n);
        const double allowed = config_.clip / std::sqrt(static_cast<double>(config_.ranks));
        if (allowed > 0) sum_of_squares_into(D{}, n, gradient.data(), squares_.data());
        if (allowed <= 0 || non_finite_at_hand(D{}, 1, squares_.data())) require_finite<D>("dgc", gradient, at);
        float *const u = velocity_.data(), *const v = accumulated_.data();
        const auto m = static_cast<float>(config_.momentum);
        for_each(D{}, n, functors::accumulate_velocity{m, allowed, squares_.data()}, gradient.data(), u, v);
        select_sampled(D{}, std::as_const(accumulated_).span(), detail::chosen_count(ratio(at.step), n), chosen_);
        encode_sparse<Positions>(chosen_, config_.values, out);
        zero_at_positions(D{}, chosen_, u);
        zero_at_positions(D{}, chosen_, v);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        fill_zero<D>(into);
        decode_sparse<Positions>(D{}, "dgc", bytes, 0, config_.values, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_sparse<Positions>(D{}, "dgc", bytes, 0, config_.values, into, add_scaled{scale});
    }

    /// What is accumulated carries momentum: no gradient to be sent dense.
    void flush_residual(std::span<float>) {}
    std::vector<compressor_tensor_on<D>> tensors() {
        if (velocity_.empty()) return {};
        std::vector<compressor_tensor_on<D>> all;
        all.push_back({"velocity", velocity_.share()});
        all.push_back({"accumulated", accumulated_.share()});
        return all;
    }

private:
    static constexpr bool samples = std::same_as<D, cpu>;  // a grid device finds exactly k: it knows the length
    index_t most(index_t n) const {
        const index_t k = detail::chosen_count(ratio(0), n);
        return samples ? std::min(n, static_cast<index_t>(1.3 * static_cast<double>(k))) : k;
    }

    config config_;
    tensor<float, D> velocity_, accumulated_;  // u, v: (n)
    tensor<double, D> squares_;                // (1) ‖g‖²
    selection<D> chosen_;
};

}  // namespace cairn
