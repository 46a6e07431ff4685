#pragma once
// The step of K-FAC with its own learning rate, momentum and damping (optim/precondition/quadratic_model.hpp), in a training run:
// products with the Gauss-Newton matrix F = Jᵀ H J of the batch, J of the outputs and H of the loss, by central differences:
//   u = J d ≈ (y(θ + εd) − y(θ − εd)) / 2ε        H u ≈ (∇L(y + ηu) − ∇L(y − ηu)) / 2η        d₁ᵀ F d₂ = ⟨u₁, H u₂⟩
// Five forwards a step, on every so-manieth sample of the batch (F needs few: Martens and Grosse take a quarter), and one of the whole
// batch when λ is checked.

#include <cairn/core/arena.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/quadratic_model.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace cairn {

class quadratic_step {
public:
    quadratic_step(arena<float>& weights, kfac<float>& curvature, damping_rule damping)
        : weights_(weights),
          curvature_(curvature),
          damping_(damping),
          previous_(tensor<float>::zeros(weights.values().shape(), category::optimizer)) {}

    /// Takes one step. The arena's gradients are those of the mean loss over `examples` samples of all ranks. `output(whole)` runs forward
    /// with the weights as they are on this rank's part of the batch, a share of `part`, or on the samples of it that F is taken of;
    /// `loss(y, whole)` → {mean value, gradient over y}; `sum(numbers)` adds up over the ranks. Returns the model's value, what the loss
    /// should fall by.
    template <class Output, class Loss, class Sum>
    double take(double examples, double loss_before, double part, Output&& output, Loss&& loss, Sum&& sum) {
        tensor<float>&values = weights_.values(), &direction = weights_.grads();
        const tensor<float> gradient = direction.clone(category::workspace);
        curvature_.set_damping(damping_.lambda);
        curvature_.precondition(examples, 0);  // the model decides how far, not the clip
        for_each([](float& d) { d = -d; }, direction);

        const tensor<float> y = output(false);
        const tensor<float> kept = values.clone(category::workspace);
        const double size = norm(values);
        const tensor<float> u1 = moved(y, kept, size, direction, output), u2 = moved(y, kept, size, previous_, output);
        const tensor<float> h1 = bent(y, u1, loss), h2 = bent(y, u2, loss);
        const double lambda = damping_.lambda;
        const auto product = [](const tensor<float>& a, const tensor<float>& b) {
            return dot(cpu{}, a.size(), a.data(), b.data());
        };
        std::array<double, 3> curved{part * product(u1, h1), part * product(u1, h2), part * product(u2, h2)};
        sum(std::span<double>(curved));
        const quadratic_model q{product(gradient, direction), product(gradient, previous_),
                                curved[0] + lambda * product(direction, direction),
                                curved[1] + lambda * product(direction, previous_),
                                curved[2] + lambda * product(previous_, previous_)};
        const quadratic_model::step s = q.minimum();
        for_each([a = static_cast<float>(s.alpha), m = static_cast<float>(s.mu)](
                     float& theta, float& d, float& before) { theta += before = a * d + m * before; },
                 values, direction, previous_);
        const double expected = q.value(s);
        if (damping_.is_due(++steps_)) {
            std::array<double, 1> after{part * loss(output(true), true).value};
            sum(std::span<double>(after));
            damping_.observe(after[0] - loss_before, expected);
        }
        return expected;
    }

    // What a restored run needs.
    double& lambda() { return damping_.lambda; }
    std::int64_t& steps() { return steps_; }
    tensor<float>& previous() { return previous_; }

private:
    // u = J d at the weights `kept`, of norm `size`, that gave y.
    template <class Output>
    tensor<float> moved(const tensor<float>& y, const tensor<float>& kept, double size, const tensor<float>& d,
                        Output&& output) {
        const double length = norm(d);
        if (length == 0) return tensor<float>::zeros(y.shape());
        const float epsilon = static_cast<float>(3e-3 * size / length);
        tensor<float>& theta = weights_.values();
        const auto at = [&](float e) {
            for_each([e](float& t, const float& k, const float& along) { t = k + e * along; }, theta, kept, d);
            return output(false);
        };
        tensor<float> plus = at(epsilon);
        const tensor<float> minus = at(-epsilon);
        for_each([](float& t, const float& k) { t = k; }, theta, kept);
        for_each([s = 0.5f / epsilon](float& a, const float& b) { a = s * (a - b); }, plus, minus);
        return plus;
    }

    // H u.
    template <class Loss>
    static tensor<float> bent(const tensor<float>& y, const tensor<float>& u, Loss&& loss) {
        float most = 0;
        for (const float x : u.span()) most = std::max(most, std::abs(x));
        if (most == 0) return tensor<float>::zeros(y.shape());
        tensor<float> plus = y.clone(), minus = y.clone();
        const float eta = 0.05f / most;
        for_each([eta](float& p, float& m, const float& along) { p += eta * along, m -= eta * along; }, plus, minus, u);
        tensor<float> above = loss(std::move(plus), false).gradient;
        const tensor<float> below = loss(std::move(minus), false).gradient;
        for_each([s = 0.5f / eta](float& a, const float& b) { a = s * (a - b); }, above, below);
        return above;
    }

    arena<float>& weights_;
    kfac<float>& curvature_;
    damping_rule damping_;
    tensor<float> previous_;  // δ of the step before
    std::int64_t steps_ = 0;
};

}  // namespace cairn
