#pragma once
// Batch normalisation over all axes but the last, with "+ skip" and an activation in the same pass
// (device/cpu/batch_norm.hpp):
//   training   y = act(gamma (x - mean) / sqrt(var + eps) + beta [+ skip]),   mean and var of this batch
//              running_mean, running_var ← (1 - momentum) running + momentum batch,   the variance divided by n - 1
//              there; a channel whose batch values are not finite leaves its running ones as they were
//   evaluate   the same with the running values, over x if it has no other owner
// If the batch is spread over processes (pass_context::group), n, mean and var are those of the whole batch: each
// process gives its (n, mean, Σ (x - mean)²), merged in order as in Chan, Golub and LeVeque; backward sums
// (dgamma, dbeta) likewise.
// Frozen (both parameters), it normalises by the running values in training too, which stay, and dx has no part by way
// of mean and variance.
// Saved: x, (mean, 1/std), one bit an element for an activation; between the halves of backward (dgamma, dbeta) alone.
// Memory: dx is written over dy; of a layer that adds, dskip over dy and dx over the saved x.

#include <cairn/core/compiled.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/nn/norm_curvature.hpp>
#include <cairn/nn/residual_layer.hpp>

namespace cairn {

namespace functors {

/// 1 / √(variance + eps).
template <class T>
struct inverse_deviation {
    double eps;
    CAIRN_HD void operator()(double variance, T& result) const {
        result = static_cast<T>(1 / std::sqrt(variance + eps));
    }
};

/// Running mean and variance move towards those of a batch; they stay where that would make one of them not finite.
template <class T>
struct follow_batch {
    T momentum, unbiased;
    CAIRN_HD void operator()(T mean, double var, T& running_mean, T& running_var) const {
        const T next_mean = running_mean + momentum * (mean - running_mean);
        const T next_var = running_var + momentum * (static_cast<T>(var) * unbiased - running_var);
        if (!std::isfinite(next_mean) || !std::isfinite(next_var)) return;
        running_mean = next_mean;
        running_var = next_var;
    }
};

}  // namespace functors

/// Normalises each channel of a channels-last tensor.
template <class T = float, Device D = cpu>
class batch_norm {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t channels = 0;
        activation act = activation::none;  // or relu, leaky_relu
        double eps = 1e-5;
        double momentum = 0.1;
        double slope = 0.01;       // of leaky_relu
        double initial_scale = 1;  // gamma; 0 makes a residual block start as its shortcut
        int parts = 1;  // processes that have a part of each sample: training needs a pass_context::group of them
    };

    explicit batch_norm(config c) : config_(c) {
        require(c.channels > 0, "batch_norm: ", c.channels, " channels; at least 1 is needed");
        require(c.act == activation::none || c.act == activation::relu || c.act == activation::leaky_relu,
                "batch_norm: activation ", name_of(c.act),
                " cannot be fused; use none, relu or leaky_relu and a layer of its own");
        require(c.eps > 0 && c.momentum >= 0 && c.momentum <= 1, "batch_norm: eps ", c.eps,
                " must be positive, momentum ", c.momentum, " in [0, 1]");
        gamma_.shape = beta_.shape = {c.channels};
        gamma_.init.offset = c.initial_scale;
        gamma_.decay = beta_.decay = false;
        running_mean_ = tensor<S, D>::zeros({c.channels}, memory_category::parameters);
        running_var_ = tensor<S, D>::filled({c.channels}, S{1}, memory_category::parameters);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return forward_residual(std::move(x), {}, saved, p);
    }

    /// y = act(batch norm of x + skip); an empty skip adds nothing.
    tensor<T, D> forward_residual(tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved,
                                  const pass_context& p) {
        require_memory(*this, gamma_);
        const shape s = output_shape(x.shape());
        if (!skip.empty())
            require(skip.shape() == s, describe(), ": cannot add a skip of shape ", skip.shape(), " to ", s);
        return p.training() ? train(std::move(x), std::move(skip), saved, p) : evaluate(std::move(x), std::move(skip));
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return gradients(std::move(dy), saved, p, false).first;
    }

    /// {dx, dskip}
    std::pair<tensor<T, D>, tensor<T, D>> backward_residual(tensor<T, D> dy, saved_tensors<T, D>& saved,
                                                            const pass_context& p) {
        return gradients(std::move(dy), saved, p, true);
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context&) {
        if (is_frozen()) return;
        const tensor<S, D> sums = saved.template take<S>(sums_slot);
        add(sums.data(), gamma_.grad);
        add(sums.data() + config_.channels, beta_.grad);
    }

    layer_parameters<T, D> parameters() { return {{"weight", &gamma_}, {"bias", &beta_}}; }
    layer_buffers<T, D> buffers() { return {{"running_mean", &running_mean_}, {"running_var", &running_var_}}; }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 2 && in.back() == config_.channels, describe(), " takes (N, ..., ", config_.channels,
                "), got ", in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), c = double(config_.channels), size = sizeof(T);
        const double sign = has_sign() ? 1 : 0, bits = sign * n / 8;
        layer_cost cost;
        cost.forward = {(7 + sign) * n + 2 * c, 3 * size * n + bits + (sizeof(S) + 8.0) * c};
        cost.backward_input = {(9 + sign) * n, 5 * size * n + 2 * bits};
        cost.backward_weight = {2 * c, 6.0 * sizeof(S) * c};
        cost.parameters = 2 * config_.channels;
        cost.saved_bytes = block_bytes(2 * config_.channels * index_t(sizeof(S))) +
                           (has_sign() ? block_bytes(simd::mask_bytes<weight_of<T>>(in.size())) : 0);
        cost.saves_input = true;
        cost.in_place_backward = true;
        cost.masks_gradient = has_sign();
        return cost;
    }

    std::string describe() const {
        return concat("batch_norm ", config_.channels, has_sign() ? concat(" + ", name_of(config_.act)) : "");
    }

private:
    using S = weight_of<T>;  // of statistics and sums

    enum slot { input_slot, statistics_slot, bits_slot, sums_slot };

    bool is_frozen() const { return gamma_.frozen && beta_.frozen; }
    bool has_sign() const { return config_.act != activation::none; }

    tensor<T, D> train(tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved, const pass_context& p) {
        const index_t channels = config_.channels, rows = x.size() / channels;
        require(config_.parts == 1 || p.repeated || is_frozen() || (p.group && p.group->size() % config_.parts == 0),
                describe(), ": samples are cut over ", config_.parts,
                " ranks, whose statistics are one; give the pass a batch group of them (group_over, "
                "parallel/replicas.hpp)");
        require(rows > 1 || p.group || is_frozen(), describe(), ": ", x.shape(), " has ", rows,
                " value per channel; the variance of a batch needs at least two");
        tensor<S, D> statistics({2, channels});  // mean, 1/std
        S *const mean = statistics.data(), *const invstd = mean + channels;
        if (is_frozen()) {
            D::copy_within(mean, running_mean_.data(), running_mean_.bytes());
            for_each(D{}, channels, functors::inverse_deviation<S>{config_.eps}, running_var_.data(), invstd);
        } else {
            tensor<double, D> var({channels}, memory_category::workspace);  // a float's square may exceed a float
            batch_statistics(D{}, rows, channels, x.data(), mean, var.data());
            const index_t all_rows = p.group ? merge_statistics(*p.group, rows, mean, var) : rows;
            if (!p.repeated) update_running(all_rows, mean, var.data());
            for_each(D{}, channels, functors::inverse_deviation<S>{config_.eps}, var.data(), invstd);
        }

        tensor<std::uint8_t, D> bits;
        if (has_sign()) bits = tensor<std::uint8_t, D>({simd::mask_bytes<weight_of<T>>(x.size())});
        const shape s = x.shape();
        const T* const added = skip.data();
        tensor<T, D> y = skip.unique() ? std::move(skip) : tensor<T, D>(s);
        batch_norm_apply(D{}, rows, channels, x.data(), added, mean, invstd, gamma_.value.data(), beta_.value.data(),
                         config_.act, static_cast<S>(config_.slope), y.data(), bits.data());
        saved.put(input_slot, std::move(x));
        saved.put_exact(statistics_slot, std::move(statistics));
        if (has_sign()) saved.put(bits_slot, std::move(bits));
        return y;
    }

    tensor<T, D> evaluate(tensor<T, D> x, tensor<T, D> skip) const {
        const index_t channels = config_.channels, rows = x.size() / channels;
        tensor<S, D> invstd({channels}, memory_category::workspace);
        for_each(D{}, channels, functors::inverse_deviation<S>{config_.eps}, running_var_.data(), invstd.data());
        const T *const in = x.data(), *const added = skip.data();
        const shape s = x.shape();
        tensor<T, D> y = x.unique() ? std::move(x) : skip.unique() ? std::move(skip) : tensor<T, D>(s);
        batch_norm_apply(D{}, rows, channels, in, added, running_mean_.data(), invstd.data(), gamma_.value.data(),
                         beta_.value.data(), config_.act, static_cast<S>(config_.slope), y.data(), nullptr);
        return y;
    }

    /// {dx, dskip}, the latter only `with_skip`.
    std::pair<tensor<T, D>, tensor<T, D>> gradients(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p,
                                                    bool with_skip) {
        tensor<T, D> x = saved.take(input_slot);
        const tensor<S, D> statistics = saved.template take<S>(statistics_slot);
        const tensor<std::uint8_t, D> bits =
            has_sign() ? saved.template take<std::uint8_t>(bits_slot) : tensor<std::uint8_t, D>{};
        require_shape(dy, x.shape(), "batch_norm: dy");
        const index_t channels = config_.channels, rows = x.size() / channels;
        const S *const mean = statistics.data(), *const invstd = mean + channels, slope = static_cast<S>(config_.slope);
        tensor<S, D> sums = is_frozen() ? tensor<S, D>::zeros({2, channels}, memory_category::workspace)
                                        : tensor<S, D>({2, channels});  // dgamma, dbeta
        if (!is_frozen()) {
            batch_norm_sums(D{}, rows, channels, dy.data(), bits.data(), config_.act, slope, x.data(), mean, invstd,
                            sums.data(), sums.data() + channels);
            announce_norm(p.curvature, gamma_, beta_,
                          norm_rows<T, S, D>{.channels = channels,
                                             .x = x,
                                             .dy = dy,
                                             .mean = mean,
                                             .invstd = invstd,
                                             .bits = bits.empty() ? nullptr : bits.data(),
                                             .act = config_.act,
                                             .slope = slope});
        }

        tensor<T, D> dx, dskip;
        if (p.input_gradient || with_skip) {
            const shape s = x.shape();
            const T *const values = x.data(), *const gradient = dy.data();
            const bool masks = with_skip && has_sign();  // without an activation, dskip is dy itself
            if (with_skip) dskip = !masks || dy.unique() ? std::move(dy) : tensor<T, D>(s);
            dx = dy.unique() ? std::move(dy) : x.unique() ? std::move(x) : tensor<T, D>(s);
            const tensor<S, D> whole = p.group && !is_frozen() ? sums_over(*p.group, rows, sums) : sums.share();
            batch_norm_gradient(D{}, rows, channels, gradient, bits.data(), config_.act, slope, values, mean, invstd,
                                gamma_.value.data(), whole.data(), whole.data() + channels, dx.data(),
                                masks ? dskip.data() : nullptr);
        }
        if (!is_frozen()) saved.put_exact(sums_slot, std::move(sums));
        return {std::move(dx), std::move(dskip)};
    }

    // Mean and variance (divided by rows) of this process's rows become those of all. Returns how many rows these are.
    index_t merge_statistics(batch_group& group, index_t rows, S* mean, tensor<double, D>& var) const {
        const index_t channels = config_.channels;
        const auto width = static_cast<std::size_t>(2 * channels + 1);
        std::vector<double> mine(width), all(width * static_cast<std::size_t>(group.size()));
        tensor<S> means = tensor<S, D>::view(mean, {channels}).on_host(memory_category::workspace);
        tensor<double> vars = var.on_host(memory_category::workspace);
        mine[0] = double(rows);
        for (index_t c = 0; c < channels && !on_phantom_rank(); ++c) {
            mine[static_cast<std::size_t>(1 + c)] = double(means[c]);
            mine[static_cast<std::size_t>(1 + channels + c)] = vars[c] * double(rows);
        }
        group.gather(mine, all);
        detail::merged_moments merged(channels);
        for (const double* one = all.data(); one != all.data() + all.size(); one += width)
            if (one[0] > 0) merged.add(one[0], one + 1, one + 1 + channels);
        require(merged.count > 1, describe(),
                ": one value per channel on all processes together; a variance needs two");
        for (index_t c = 0; c < channels && !on_phantom_rank(); ++c) {
            means[c] = static_cast<S>(merged.mean[static_cast<std::size_t>(c)]);
            vars[c] = merged.squares[static_cast<std::size_t>(c)] / merged.count;
        }
        D::copy_to_device(mean, means.data(), means.bytes());
        D::copy_to_device(var.data(), vars.data(), vars.bytes());
        return static_cast<index_t>(merged.count);
    }

    // (dgamma, dbeta) of the whole batch, times rows here / rows of all: the gradient divides by the rows here.
    tensor<S, D> sums_over(batch_group& group, index_t rows, const tensor<S, D>& sums) const {
        const auto width = static_cast<std::size_t>(sums.size() + 1);
        std::vector<double> mine(width), all(width * static_cast<std::size_t>(group.size()));
        tensor<S> here = sums.on_host(memory_category::workspace);
        mine[0] = double(rows);
        for (index_t i = 0; i < here.size() && !on_phantom_rank(); ++i)
            mine[static_cast<std::size_t>(i + 1)] = double(here[i]);
        group.gather(mine, all);
        std::vector<double> total(width);
        for (std::size_t i = 0; i < all.size(); ++i) total[i % width] += all[i];
        for (index_t i = 0; i < here.size() && !on_phantom_rank(); ++i)
            here[i] = static_cast<S>(total[static_cast<std::size_t>(i + 1)] * double(rows) / total[0]);
        return tensor<S, D>::copy_of(here, memory_category::workspace);
    }

    // var: of this batch, divided by rows.
    void update_running(index_t rows, const S* mean, const double* var) {
        const S m = static_cast<S>(config_.momentum), unbiased = static_cast<S>(double(rows) / double(rows - 1));
        // Not counted: a repeated forward does without.
        const kernel_call call("running statistics", format_name<S>, 0, 0, {config_.channels});
        for_each(D{}, config_.channels, functors::follow_batch<S>{m, unbiased}, mean, var, running_mean_.data(),
                 running_var_.data());
    }

    void add(const S* sums, tensor<S, D>& grad) {
        const double c = double(config_.channels);
        const kernel_call call("add gradient", format_name<S>, c, 3 * c * sizeof(S), {config_.channels});
        for_each(D{}, config_.channels, functors::add{}, grad.data(), sums);
    }

    config config_;
    layer_parameter<T, D> gamma_, beta_;
    tensor<S, D> running_mean_, running_var_;
};

CAIRN_COMPILED_CLASS(batch_norm)

}  // namespace cairn
