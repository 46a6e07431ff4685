#pragma once
// The step of K-FAC with its own learning rate, momentum and damping (optim/precondition/quadratic_model.hpp), in a training run:
// products with the Gauss-Newton matrix F = Jᵀ H J of the batch, J of the outputs and H of the loss, by central differences:
//   u = J d ≈ (y(θ + εd) − y(θ − εd)) / 2ε        H u ≈ (∇L(y + ηu) − ∇L(y − ηu)) / 2η        d₁ᵀ F d₂ = ⟨u₁, H u₂⟩
// Five forwards a step, and one more when λ is checked.

#include <cairn/core/arena.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/quadratic_model.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace cairn {

class quadratic_step {
public:
    quadratic_step(arena<float>& weights, kfac<float>& curvature, damping_rule damping)
        : weights_(weights),
          curvature_(curvature),
          damping_(damping),
          previous_(tensor<float>::zeros(weights.values().shape(), category::optimizer)) {}

    /// Takes one step. The arena's gradients are those of the mean loss over `examples` samples; `output()` runs forward on the same
    /// batch with the weights as they are; `loss(y)` → {value, gradient over y}. Returns the model's value, what the loss should fall by.
    template <class Output, class Loss>
    double take(double examples, double loss_before, Output&& output, Loss&& loss) {
        tensor<float>&values = weights_.values(), &direction = weights_.grads();
        const tensor<float> gradient = direction.clone(category::workspace);
        curvature_.set_damping(damping_.lambda);
        curvature_.precondition(examples, 0);  // the model decides how far, not the clip
        for_each([](float& d) { d = -d; }, direction);

        const tensor<float> y = output();
        const tensor<float> u1 = moved(y, direction, output), u2 = moved(y, previous_, output);
        const tensor<float> h1 = bent(y, u1, loss), h2 = bent(y, u2, loss);
        const double lambda = damping_.lambda;
        const auto product = [](const tensor<float>& a, const tensor<float>& b) {
            return dot(cpu{}, a.size(), a.data(), b.data());
        };
        const quadratic_model q{product(gradient, direction), product(gradient, previous_),
                                product(u1, h1) + lambda * product(direction, direction),
                                product(u1, h2) + lambda * product(direction, previous_),
                                product(u2, h2) + lambda * product(previous_, previous_)};
        const quadratic_model::step s = q.minimum();
        for_each([a = static_cast<float>(s.alpha), m = static_cast<float>(s.mu)](
                     float& theta, float& d, float& before) { theta += before = a * d + m * before; },
                 values, direction, previous_);
        const double expected = q.value(s);
        if (damping_.is_due(++steps_)) damping_.observe(loss(output()).value - loss_before, expected);
        return expected;
    }

    // What a restored run needs.
    double& lambda() { return damping_.lambda; }
    std::int64_t& steps() { return steps_; }
    tensor<float>& previous() { return previous_; }

private:
    // u = J d at the weights that gave y.
    template <class Output>
    tensor<float> moved(const tensor<float>& y, const tensor<float>& d, Output&& output) {
        const double length = norm(d), size = norm(weights_.values());
        if (length == 0) return tensor<float>::zeros(y.shape());
        const float epsilon = static_cast<float>(3e-3 * size / length);
        const tensor<float> kept = weights_.values().clone(category::workspace);
        tensor<float>& theta = weights_.values();
        const auto at = [&](float e) {
            for_each([e](float& t, const float& k, const float& along) { t = k + e * along; }, theta, kept, d);
            return output();
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
        tensor<float> above = loss(std::move(plus)).gradient;
        const tensor<float> below = loss(std::move(minus)).gradient;
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
