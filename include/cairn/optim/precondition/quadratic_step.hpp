#pragma once
// The step of K-FAC with its own learning rate, momentum and damping (optim/precondition/quadratic_model.hpp), in a
// training run: products with the Gauss-Newton matrix F = Jᵀ H J of the batch, J of the outputs and H of the loss, by
// central differences:
//   u = J d ≈ (y(θ + εd) − y(θ − εd)) / 2ε        H u ≈ (∇L(y + ηu) − ∇L(y − ηu)) / 2η        d₁ᵀ F d₂ = ⟨u₁, H u₂⟩
// Four forwards a step, on every n-th sample of the batch (F needs few: Martens and Grosse take a quarter), and
// one of the whole batch when λ is checked. On a device all of it stays there but the few numbers that α, μ and λ are
// made of: the host waits four times a step.

#include <cairn/core/arena.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/quadratic_model.hpp>

#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

namespace functors {

/// θ = where it was + δ, δ = α d + μ (the δ before).
struct quadratic_move {
    float alpha, mu;
    CAIRN_HD void operator()(float& theta, const float& before, const float& d, float& delta) const {
        theta = before + (delta = alpha * d + mu * delta);
    }
};

/// θ = where it was + ε d.
struct moved_along {
    float epsilon;
    CAIRN_HD void operator()(float& theta, const float& before, const float& d) const { theta = before + epsilon * d; }
};

/// y + ηu and y − ηu, of two copies of y.
struct both_ways {
    float eta;
    CAIRN_HD void operator()(float& plus, float& minus, const float& along) const {
        plus += eta * along, minus -= eta * along;
    }
};

/// a = s (a − b).
struct scaled_difference {
    float s;
    CAIRN_HD void operator()(float& a, const float& b) const { a = s * (a - b); }
};

}  // namespace functors

template <Device D = cpu>
class quadratic_step {
public:
    quadratic_step(arena<float, D>& weights, kfac<float, D>& curvature, damping_rule damping)
        : weights_(weights),
          curvature_(curvature),
          damping_(damping),
          previous_(tensor<float, D>::zeros(weights.values().shape(), memory_category::optimizer)) {}

    /// The arena has some of a model's layers, see kfac::sum_over_model. A rank that has not the last of them has empty
    /// outputs.
    void sum_over_model(std::function<std::vector<double>(std::vector<double>)> over_model) {
        over_model_ = std::move(over_model);
    }

    /// Takes one step. The arena's gradients are those of the mean loss over `examples` samples of all ranks.
    ///   output(whole)    forward with the present weights on this rank's part of the batch, a share of `part`, or on
    ///                    those samples of it that F is taken of: their outputs before the step are y
    ///   loss(y, whole)   → {mean value, gradient over y}
    ///   sum(numbers)     adds up over the ranks
    /// The loss is at least 0. Returns the model's value: its predicted change.
    template <class Output, class Loss, class Sum>
    double take(double examples, double loss_before, double part, const tensor<float, D>& y, Output&& output,
                Loss&& loss, Sum&& sum) {
        tensor<float, D>&values = weights_.values(), &direction = weights_.grads();
        const tensor<float, D> gradient = direction.clone(memory_category::workspace);
        curvature_.set_damping(damping_.lambda);
        curvature_.precondition(examples, 0);  // the model decides how far, not the clip

        const inner_products in = inner_products_of(gradient, direction, previous_, values);
        const tensor<float, D> kept = values.clone(memory_category::workspace);
        const double size = std::sqrt(in.theta_theta);
        const tensor<float, D> u1 = moved(y, kept, size, direction, std::sqrt(in.d_d), output),
                               u2 = moved(y, kept, size, previous_, std::sqrt(in.p_p), output);
        const tensor<float, D> h1 = bent(y, u1, loss), h2 = bent(y, u2, loss);
        const double lambda = damping_.lambda;
        std::array<double, 3> curved = curvature_of(u1, h1, u2, h2);
        for (double& x : curved) x *= part;
        sum(std::span<double>(curved));
        const quadratic_model q{in.g_d, in.g_p, curved[0] + lambda * in.d_d, curved[1] + lambda * in.d_p,
                                curved[2] + lambda * in.p_p};
        const quadratic_model::step s = q.minimum_within(0.25 * loss_before);
        if (s.shortened) curvature_.step_is_shortened();
        for_each(functors::quadratic_move{static_cast<float>(s.alpha), static_cast<float>(s.mu)}, values, kept,
                 direction, previous_);
        const double expected = q.value(s);
        if (damping_.is_due(++steps_)) {
            std::array<double, 1> after{part > 0 ? part * loss(output(true), true).value : 0.0};  // 0: no samples here
            sum(std::span<double>(after));
            damping_.observe(after[0] - loss_before, expected);
        }
        return expected;
    }

    // State for a restored run.
    double& lambda() { return damping_.lambda; }
    std::int64_t& steps() { return steps_; }
    tensor<float, D>& previous() { return previous_; }

private:
    // Of the gradient, the direction d, the step before p, and the weights.
    struct inner_products {
        double g_d = 0, g_p = 0, d_d = 0, d_p = 0, p_p = 0, theta_theta = 0;
    };
    // By parameter, and in the order of the whole model: the same bits on one rank and on stages.
    inner_products inner_products_of(const tensor<float, D>& gradient, const tensor<float, D>& direction,
                                     const tensor<float, D>& previous, const tensor<float, D>& values) const {
        const auto& parameters = weights_.parameters();
        tensor<double, D> of_parameters({std::ssize(parameters), 6}, memory_category::workspace);
        double* to = of_parameters.data();
        for (const auto& [name, p] : parameters) {
            const index_t at = p->value.data() - values.data();
            pair_products_into(D{}, p->shape.size(), gradient.data() + at, direction.data() + at, previous.data() + at,
                               values.data() + at, {{0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}, {3, 3}}, to);
            to += 6;
        }
        const tensor<double> sums = host_side(of_parameters);
        std::array<double, 6> all{};
        for (index_t k = 0; k < 6; ++k) {
            std::vector<double> mine;
            for (index_t i = k; i < sums.size(); i += 6) mine.push_back(sums[i]);
            all[static_cast<std::size_t>(k)] =
                sum_in_path_order(over_model_ ? over_model_(std::move(mine)) : std::move(mine));
        }
        return {all[0], all[1], all[2], all[3], all[4], all[5]};
    }

    // ⟨u₁, h₁⟩, ⟨u₁, h₂⟩ and ⟨u₂, h₂⟩.
    static std::array<double, 3> curvature_of(const tensor<float, D>& u1, const tensor<float, D>& h1,
                                              const tensor<float, D>& u2, const tensor<float, D>& h2) {
        tensor<double, D> sums({3}, memory_category::workspace);
        pair_products_into(D{}, u1.size(), u1.data(), h1.data(), u2.data(), h2.data(), {{0, 1}, {0, 3}, {2, 3}},
                           sums.data());
        const tensor<double> here = host_side(sums);
        return {here[0], here[1], here[2]};
    }

    // u = J d at the weights `kept`, of norm `size`, that gave y; d of norm `length`. Leaves other weights behind.
    template <class Output>
    tensor<float, D> moved(const tensor<float, D>& y, const tensor<float, D>& kept, double size,
                           const tensor<float, D>& d, double length, Output&& output) {
        if (length == 0) return tensor<float, D>::zeros(y.shape());
        const float epsilon = static_cast<float>(3e-3 * size / length);
        const auto at = [&](float e) {
            for_each(functors::moved_along{e}, weights_.values(), kept, d);
            return output(false);
        };
        tensor<float, D> plus = at(epsilon);
        const tensor<float, D> minus = at(-epsilon);
        for_each(functors::scaled_difference{0.5f / epsilon}, plus, minus);
        return plus;
    }

    // H u.
    template <class Loss>
    static tensor<float, D> bent(const tensor<float, D>& y, const tensor<float, D>& u, Loss&& loss) {
        const float most = max_abs(D{}, u.size(), u.data());
        if (most == 0) return tensor<float, D>::zeros(y.shape());
        tensor<float, D> plus = y.clone(), minus = y.clone();
        const float eta = 0.05f / most;
        for_each(functors::both_ways{eta}, plus, minus, u);
        tensor<float, D> above = loss(std::move(plus), false).gradient;
        const tensor<float, D> below = loss(std::move(minus), false).gradient;
        for_each(functors::scaled_difference{0.5f / eta}, above, below);
        return above;
    }

    arena<float, D>& weights_;
    kfac<float, D>& curvature_;
    damping_rule damping_;
    tensor<float, D> previous_;  // δ of the step before
    std::int64_t steps_ = 0;
    std::function<std::vector<double>(std::vector<double>)> over_model_;  // unset: the arena has the whole model
};

}  // namespace cairn
