#pragma once
// Muon (Jordan et al. 2024): momentum, then the nearest matrix with orthonormal rows or columns, by Newton and Schulz:
//   M ← μ M + G         B = G + μ M (nesterov) or M
//   X = B / ‖B‖_F;   five times  X ← a X + (b A + c A²) X,  A = X Xᵀ,   (a, b, c) = (3.4445, −4.7750, 2.0315)
//   direction = X √max(1, rows / columns)
// G: the gradient as a matrix (first extent, all others). The coefficients drive singular values into about [0.7, 1.2], not to 1.
// Vectors, and what `skip` names (embeddings, the last layer), get Adam's direction times `rest` (β 0.9, 0.95; ε 1e-8).
// The optimizer behind it is sgd without momentum: θ ← θ − η (direction + λ θ).
// Five products of n² m a step. State: M (and Adam's second moment where Adam is used).

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// X of the head of the file for a matrix b (rows, columns): nearly orthonormal rows, or columns if there are more rows.
template <class T>
tensor<T> nearly_orthogonal(const tensor<T>& b, int iterations = 5) {
    const index rows = b.extent(0), columns = b.extent(1);
    const bool tall = rows > columns;  // the smaller Gram matrix
    const index n = std::min(rows, columns), m = std::max(rows, columns);
    tensor<T> x({n, m}, category::workspace), a({n, n}, category::workspace), poly({n, n}, category::workspace),
        next({n, m}, category::workspace);
    const T scale = static_cast<T>(1 / (std::sqrt(dot(cpu{}, b.size(), b.data(), b.data())) + 1e-7));
    for (index r = 0; r < n; ++r)
        for (index c = 0; c < m; ++c) x[r * m + c] = scale * (tall ? b[c * columns + r] : b[r * columns + c]);
    for (int i = 0; i < iterations; ++i) {
        gemm(cpu{}, false, true, n, n, m, T{1}, x.data(), m, x.data(), m, T{0}, a.data(), n);
        for (index k = 0; k < a.size(); ++k) poly[k] = T(-4.7750) * a[k];
        gemm(cpu{}, false, false, n, n, n, T(2.0315), a.data(), n, a.data(), n, T{1}, poly.data(), n);
        for (index k = 0; k < n; ++k) poly[k * n + k] += T(3.4445);
        gemm(cpu{}, false, false, n, m, n, T{1}, poly.data(), n, x.data(), m, T{0}, next.data(), m);
        std::swap(x, next);
    }
    if (!tall) return x;
    tensor<T> transposed({rows, columns}, category::workspace);
    for (index r = 0; r < rows; ++r)
        for (index c = 0; c < columns; ++c) transposed[r * columns + c] = x[c * m + r];
    return transposed;
}

struct muon_config {
    double momentum = 0.95;
    bool nesterov = true;
    double rest = 0.015;  // step of what gets Adam's direction, as a share of the learning rate
    std::vector<std::string> skip = {};
};

template <class T>
class muon final : public preconditioner<T> {
public:
    /// Shares the arena's memory. Throws on settings that make no sense.
    muon(arena<T>& weights, muon_config c) : config_(std::move(c)) {
        require(config_.momentum >= 0 && config_.momentum < 1, "muon: momentum ", config_.momentum,
                "; it must be in [0, 1)");
        require(config_.rest >= 0, "muon: rest ", config_.rest, "; it must not be negative");
        for (const auto& named : weights.parameters()) {
            const std::string& name = named.name;
            parameter<T>* const p = named.p;
            bool matrix = p->shape.rank() >= 2;
            for (const std::string& part : config_.skip) matrix = matrix && name.find(part) == std::string::npos;
            const auto zeros = [&] { return tensor<T>::zeros(p->shape, category::optimizer); };
            of_.push_back({name, p, zeros(), matrix ? tensor<T>{} : zeros()});
        }
    }

    void precondition(double, double) override {
        const trace_scope scope("muon", "step", "optimizer");
        ++steps_;
        for (auto& [name, p, m, v] : of_) v.empty() ? orthogonalise(*p, m) : adam_direction(*p, m, v);
    }

    std::vector<named_tensor<T>> tensors() override {
        std::vector<named_tensor<T>> all;
        for (auto& [name, p, m, v] : of_) {
            all.push_back({"momentum/" + name, m.share()});
            if (!v.empty()) all.push_back({"square/" + name, v.share()});
        }
        return all;
    }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return {{"steps", &steps_}}; }

private:
    struct state {
        std::string name;
        parameter<T>* p;
        tensor<T> m, v;  // v: only of Adam
    };

    void orthogonalise(parameter<T>& p, tensor<T>& m) const {
        const index rows = p.shape[0], columns = p.shape.size() / std::max<index>(rows, 1);
        if (p.shape.size() == 0) return;
        const T mu = static_cast<T>(config_.momentum);
        for_each(
            [=, nesterov = config_.nesterov](T& g, T& moment) {
                moment = mu * moment + g;
                g = nesterov ? g + mu * moment : moment;
            },
            p.grad, m);
        const tensor<T> x = nearly_orthogonal(p.grad.reshaped({rows, columns})).reshaped(p.shape);
        const double tall = std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns));
        for_each([s = static_cast<T>(std::sqrt(tall))](T& g, const T& d) { g = s * d; }, p.grad, x);
    }

    void adam_direction(parameter<T>& p, tensor<T>& m, tensor<T>& v) const {
        const adam_rule<T> rule =
            adam{{.beta1 = 0.9, .beta2 = 0.95}}.template make_rule<T>({.number = steps_, .lr = config_.rest}, 0, 0);
        for_each(
            [rule](T& g, T& first, T& second) {
                T step{};
                rule(step, g, first, second);  // from 0: minus the direction
                g = -step;
            },
            p.grad, m, v);
    }

    muon_config config_;
    std::vector<state> of_;
    std::int64_t steps_ = 0;
};

}  // namespace cairn
