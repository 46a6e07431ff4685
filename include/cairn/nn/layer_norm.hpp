#pragma once
// Layer normalisation over the last axis:  y = gamma (x - mean) / sqrt(var + eps) + beta,   mean and var of each row
// Saved: x, mean and 1/std of each row; between the halves of backward (dgamma, dbeta) alone. dx is written over dy.
// Kernels and formulas: device/cpu/layer_norm.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/activation_kind.hpp>
#include <cairn/device/cpu/layer_norm.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/norm_curvature.hpp>

namespace cairn {

/// Normalises each row of a tensor (…, features).
template <class T = float, Device D = cpu>
class layer_norm {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t features = 0;
        double eps = 1e-5;
    };

    explicit layer_norm(config c) : config_(c) {
        require(c.features > 0 && c.eps > 0, "layer_norm: ", c.features, " features and eps ", c.eps,
                " must be positive");
        gamma_.shape = beta_.shape = {c.features};
        gamma_.init.offset = 1;
        gamma_.decay = beta_.decay = false;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, gamma_);
        const shape s = output_shape(x.shape());
        const index_t rows = x.size() / config_.features;
        const T* const in = x.data();
        const S *const gamma = gamma_.value.data(), *const beta = beta_.value.data();
        const S eps = static_cast<S>(config_.eps);
        S* const none = nullptr;
        if (!p.training()) {
            tensor<T, D> y = x.unique() ? std::move(x) : tensor<T, D>(s);
            layer_norm_forward(D{}, rows, config_.features, in, gamma, beta, eps, y.data(), none, none);
            return y;
        }
        tensor<T, D> y(s);
        tensor<S, D> statistics({2, rows});  // mean, 1/std
        layer_norm_forward(D{}, rows, config_.features, in, gamma, beta, eps, y.data(), statistics.data(),
                           statistics.data() + rows);
        saved.put(input_slot, std::move(x));
        saved.put_exact(statistics_slot, std::move(statistics));
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = saved.take(input_slot);
        const tensor<S, D> statistics = saved.template take<S>(statistics_slot);
        require_shape(dy, x.shape(), "layer_norm: dy");
        const shape s = x.shape();
        const index_t rows = x.size() / config_.features;
        const T* const gradient = dy.data();
        tensor<S, D> sums({2, config_.features});  // dgamma, dbeta
        const S *const mean = statistics.data(), *const invstd = mean + rows;
        announce_norm(p.curvature, gamma_, beta_,
                      norm_rows<T, S, D>{.by = normalised_by::row,
                                         .channels = config_.features,
                                         .x = x,
                                         .dy = dy,
                                         .mean = mean,
                                         .invstd = invstd});
        tensor<T, D> dx;
        if (p.input_gradient) dx = dy.unique() ? std::move(dy) : tensor<T, D>(s);
        layer_norm_backward(D{}, rows, config_.features, gradient, x.data(), statistics.data(),
                            statistics.data() + rows, gamma_.value.data(), dx.data(), sums.data(),
                            sums.data() + config_.features);
        saved.put_exact(sums_slot, std::move(sums));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context&) {
        const tensor<S, D> sums = saved.template take<S>(sums_slot);
        const double n = double(config_.features);
        const kernel_call call("add gradients", format_name<S>, 2 * n, 6 * n * sizeof(S), {config_.features});
        for_each(D{}, config_.features, functors::add{}, gamma_.grad.data(), sums.data());
        for_each(D{}, config_.features, functors::add{}, beta_.grad.data(), sums.data() + config_.features);
    }

    layer_parameters<T, D> parameters() { return {{"weight", &gamma_}, {"bias", &beta_}}; }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 1 && in.back() == config_.features, describe(), " takes (..., ", config_.features,
                "), got ", in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), f = double(config_.features), size = sizeof(T);
        layer_cost c;
        c.forward = {7 * n, 2 * size * n};
        c.backward_input = {13 * n, 3 * size * n};
        c.backward_weight = {2 * f, 6 * sizeof(S) * f};
        c.parameters = 2 * config_.features;
        const index_t bytes = 2 * (in.size() / config_.features) * index_t(sizeof(S));
        c.saved_bytes = block_bytes(bytes);
        c.saves_input = true;
        c.in_place_backward = true;
        return c;
    }

    std::string describe() const { return concat("layer_norm ", config_.features); }

private:
    using S = weight_of<T>;  // of statistics and sums

    enum slot { input_slot, statistics_slot, sums_slot };

    config config_;
    layer_parameter<T, D> gamma_, beta_;
};

CAIRN_COMPILED_CLASS(layer_norm)

}  // namespace cairn
