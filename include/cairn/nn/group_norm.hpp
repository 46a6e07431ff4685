#pragma once
// Group normalisation (Wu and He 2018, arXiv:1803.08494), channels last:
//   y = gamma (x − mean) / √(var + eps) + beta,   mean and var of each sample and group of channels; gamma, beta of
//   each channel
// No statistics of a batch: the same in training and evaluation, for any batch. Saved: x, mean and 1/std of each sample
// and channel; between the halves of backward (dgamma, dbeta) alone. dx is written over dy.
// The passes over a sample are batch norm's (device/cpu/batch_norm.hpp), the steps between them device/group_norm.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/group_norm.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/norm_curvature.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace cairn {

/// Normalises each group of channels of each sample.
template <class T = float, Device D = cpu>
class group_norm {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t channels = 0, groups = 1;
        double eps = 1e-5;
    };

    explicit group_norm(config c) : config_(c) {
        require(c.channels > 0 && c.groups > 0 && c.channels % c.groups == 0 && c.eps > 0, "group_norm: ", c.channels,
                " channels in ", c.groups, " groups, eps ", c.eps, ": numbers must be positive and divide");
        gamma_.shape = beta_.shape = {c.channels};
        gamma_.init.offset = 1;
        gamma_.decay = beta_.decay = false;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, gamma_);
        const shape s = output_shape(x.shape());
        const group_norm_geometry g = geometry(s);
        const kernel_call call("group norm", format_name<T>, forward_flops(s), 3 * size_of(s),
                               {g.samples, g.rows, g.channels});
        tensor<S, D> statistics({2, g.samples, g.channels});  // mean, 1/std
        S *const mean = statistics.data(), *const invstd = mean + g.samples * g.channels;
        tensor<double, D> variances({g.samples, g.channels}, memory_category::workspace);
        const index_t each = g.rows * g.channels;
        for (index_t n = 0; n < g.samples; ++n)
            batch_statistics(D{}, g.rows, g.channels, x.data() + n * each, mean + n * g.channels,
                             variances.data() + n * g.channels);
        run(g.samples * g.groups(), merge_group_moments<S>{g, config_.eps, variances.data(), mean, invstd});
        const T* const in = x.data();
        tensor<T, D> y = !p.training() && x.unique() ? std::move(x) : tensor<T, D>(s);
        for (index_t n = 0; n < g.samples; ++n)
            batch_norm_apply(D{}, g.rows, g.channels, in + n * each, static_cast<const T*>(nullptr),
                             mean + n * g.channels, invstd + n * g.channels, gamma_.value.data(), beta_.value.data(),
                             activation::none, S{}, y.data() + n * each, nullptr);
        if (p.training()) {
            saved.put(input_slot, std::move(x));
            saved.put_exact(statistics_slot, std::move(statistics));
        }
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = saved.take(input_slot);
        const tensor<S, D> statistics = saved.template take<S>(statistics_slot);
        const shape s = x.shape();
        require_shape(dy, s, "group_norm: dy");
        const group_norm_geometry g = geometry(s);
        const index_t each = g.rows * g.channels, all = g.samples * g.channels;
        const S *const mean = statistics.data(), *const invstd = mean + all;
        tensor<S, D> sums({2, g.samples, g.channels}, memory_category::workspace),  // dgamma, dbeta of each sample
            totals({2, g.channels});
        {
            const kernel_call call("group norm sums", format_name<T>, sums_flops(s), 2 * size_of(s),
                                   {g.samples, g.rows, g.channels});
            for (index_t n = 0; n < g.samples; ++n)
                batch_norm_sums(D{}, g.rows, g.channels, dy.data() + n * each, nullptr, activation::none, S{},
                                x.data() + n * each, mean + n * g.channels, invstd + n * g.channels,
                                sums.data() + n * g.channels, sums.data() + all + n * g.channels);
            for (const index_t k : {0, 1})
                column_sums(D{}, g.samples, g.channels, sums.data() + k * all, totals.data() + k * g.channels, false);
        }
        announce_rows(p.curvature, dy, g, sums);
        tensor<T, D> dx;
        if (p.input_gradient) {
            const kernel_call call("group norm gradient", format_name<T>, gradient_flops(s), 3 * size_of(s),
                                   {g.samples, g.rows, g.channels});
            tensor<S, D> means({2, g.samples, g.channels}, memory_category::workspace);
            run(g.samples * g.groups(), average_group_sums<S>{g, gamma_.value.data(), sums.data(), sums.data() + all,
                                                              means.data(), means.data() + all});
            const T* const gradient = dy.data();
            dx = dy.unique() ? std::move(dy) : tensor<T, D>(s);
            run(g.samples * g.rows, group_norm_gradient<T, S>{g, x.data(), gradient, mean, invstd, gamma_.value.data(),
                                                              means.data(), means.data() + all, dx.data()});
        }
        saved.put_exact(sums_slot, std::move(totals));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context&) {
        const tensor<S, D> sums = saved.template take<S>(sums_slot);
        const double n = double(config_.channels);
        const kernel_call call("add gradients", format_name<S>, 2 * n, 6 * n * sizeof(S), {config_.channels});
        for_each(D{}, config_.channels, functors::add{}, gamma_.grad.data(), sums.data());
        for_each(D{}, config_.channels, functors::add{}, beta_.grad.data(), sums.data() + config_.channels);
    }

    layer_parameters<T, D> parameters() { return {{"weight", &gamma_}, {"bias", &beta_}}; }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 2 && in.back() == config_.channels, describe(), " takes (N, ..., ", config_.channels,
                "), got ", in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const double channels = double(config_.channels);
        layer_cost c;
        c.forward = {forward_flops(in), 3 * size_of(in)};
        c.backward_input = {sums_flops(in) + gradient_flops(in), 5 * size_of(in)};
        c.backward_weight = {2 * channels, 6 * sizeof(S) * channels};
        c.parameters = 2 * config_.channels;
        c.saved_bytes = block_bytes(2 * in[0] * config_.channels * index_t(sizeof(S)));
        c.saves_input = true;
        c.in_place_backward = true;
        return c;
    }

    std::string describe() const { return concat("group_norm ", config_.channels, " in ", config_.groups); }

private:
    using S = weight_of<T>;  // of statistics and sums

    enum slot { input_slot, statistics_slot, sums_slot };

    static double size_of(const shape& in) { return sizeof(T) * double(in.size()); }
    static double forward_flops(const shape& in) { return 7 * double(in.size()); }
    static double sums_flops(const shape& in) { return 4 * double(in.size()); }
    static double gradient_flops(const shape& in) { return 7 * double(in.size()); }

    template <class F>
    static void run(index_t n, const F& f) {
        if (!on_phantom_rank()) for_indices(D{}, n, f);
    }

    group_norm_geometry geometry(const shape& in) const {
        return {in[0], in.size() / std::max<index_t>(1, in[0] * config_.channels), config_.channels,
                config_.channels / config_.groups};
    }

    // The sums of a sample are its gradients of scale and shift.
    void announce_rows(curvature_listener* to, const tensor<T, D>& dy, const group_norm_geometry& g,
                       const tensor<S, D>& sums) const {
        if (!to || gamma_.id < 0) return;
        if constexpr (std::floating_point<T>)
            if (to->wants(gamma_.id, rows_kind::norm_output))
                to->take(curvature_samples<T>{.kind = rows_kind::norm_output,
                                              .weight = gamma_.id,
                                              .examples = g.samples * g.rows,
                                              .in = 1,
                                              .out = g.channels,
                                              .dy = dy.data(),
                                              .in_backward = true});
        if (g.samples == 0 || !to->wants(gamma_.id, rows_kind::norm)) return;
        announce(to, curvature_samples<S>{.kind = rows_kind::norm,
                                          .weight = gamma_.id,
                                          .bias = beta_.id,
                                          .examples = g.samples,
                                          .in = g.channels,
                                          .out = g.channels,
                                          .x = sums.data(),
                                          .dy = sums.data() + g.samples * g.channels,
                                          .in_backward = true});
    }

    config config_;
    layer_parameter<T, D> gamma_, beta_;
};

CAIRN_COMPILED_CLASS(group_norm)

}  // namespace cairn
