#pragma once
// Muon (Jordan et al. 2024): momentum, then the nearest matrix with orthonormal rows or columns, by Newton and Schulz:
//   M ← μ M + G         B = G + μ M (nesterov) or M
//   X = B / ‖B‖_F;   five times  X ← a X + (b A + c A²) X,  A = X Xᵀ,   (a, b, c) = (3.4445, −4.7750, 2.0315)
//   direction = X √max(1, rows / columns)
// G: the gradient as a matrix (first extent, all others). The coefficients drive singular values into about [0.7, 1.2],
// not to 1.
// Vectors, and what `skip` names (embeddings, the last layer), get Adam's direction times `adam_lr_ratio` (β 0.9, 0.95;
// ε 1e-8).
// The optimizer behind it is sgd without momentum: θ ← θ − η (direction + λ θ).
// Five products of n² m a step. State: M (and Adam's second moment where Adam is used).
// On a device other than the host (device/grid/matrix_preconditioner_kernels.hpp) a step asks it nothing.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/matrix_preconditioner_kernels.hpp>
#include <cairn/device/cpu/symmetric.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace functors {

/// M ← μ M + G, G ← B.
template <class T>
struct muon_momentum {
    T mu;
    bool nesterov;
    CAIRN_HD void operator()(T& g, T& moment) const {
        moment = mu * moment + g;
        g = nesterov ? g + mu * moment : moment;
    }
};

/// G ← Adam's direction times the rule's learning rate.
template <class T>
struct adam_direction {
    adam_rule<T> rule;
    CAIRN_HD void operator()(T& g, T& first, T& second) const {
        T step{};
        rule(step, g, first, second);  // from 0: minus the direction
        g = -step;
    }
};

}  // namespace functors

/// X of the head of the file for a matrix b (rows, columns): nearly orthonormal rows, or columns if there are more
/// rows; times `scale`.
template <class T, Device D>
void nearly_orthogonal(index_t rows, index_t columns, const T* b, T scale, T* to, int iterations = 5) {
    const bool tall = rows > columns;  // the smaller Gram matrix
    const index_t n = std::min(rows, columns), m = std::max(rows, columns);
    const auto room = [](index_t height, index_t width) {
        return tensor<T, D>({height, width}, memory_category::workspace);
    };
    tensor<T, D> x = room(n, m), next = room(n, m), a = room(n, n), poly = room(n, n);
    normalised_matrix(D{}, n, m, tall, b, x.data());
    for (int i = 0; i < iterations; ++i) {
        gemm(D{}, false, true, n, n, m, T{1}, x.data(), m, x.data(), m, T{0}, a.data(), n);
        scaled_matrix(D{}, n, n, false, T(-4.7750), a.data(), poly.data());
        gemm(D{}, false, false, n, n, n, T(2.0315), a.data(), n, a.data(), n, T{1}, poly.data(), n);
        add_to_diagonal(D{}, n, n + 1, T(3.4445), poly.data());
        gemm(D{}, false, false, n, m, n, T{1}, poly.data(), n, x.data(), m, T{0}, next.data(), m);
        std::swap(x, next);
    }
    scaled_matrix(D{}, rows, columns, tall, scale, x.data(), to);
}

struct muon_config {
    double momentum = 0.95;
    bool nesterov = true;
    double adam_lr_ratio = 0.015;  // step of what gets Adam's direction, as a share of the learning rate
    std::vector<std::string> skip = {};
};

template <class T, Device D = cpu>
class muon final : public preconditioner<T, D> {
public:
    /// Shares the arena's memory. Throws on settings that make no sense.
    muon(arena<T, D>& weights, muon_config c) : weights_(&weights), config_(std::move(c)) {
        require(config_.momentum >= 0 && config_.momentum < 1, "muon: momentum ", config_.momentum,
                "; it must be in [0, 1)");
        require(config_.adam_lr_ratio >= 0, "muon: adam_lr_ratio ", config_.adam_lr_ratio, "; it must not be negative");
        for (const auto& named : weights.parameters()) {
            const std::string& name = named.name;
            parameter<T, D>* const p = named.p;
            bool matrix = p->shape.rank() >= 2;
            for (const std::string& part : config_.skip) matrix = matrix && name.find(part) == std::string::npos;
            const auto zeros = [&] { return tensor<T, D>::zeros(p->shape, memory_category::optimizer); };
            of_.push_back({name, p, zeros(), matrix ? tensor<T, D>{} : zeros()});
        }
    }

    void precondition(double, double) override {
        const trace_scope scope("muon", "step", "optimizer");
        require_finite_gradients("muon", *weights_);
        ++steps_;
        for (auto& [name, p, m, v] : of_) v.empty() ? orthogonalise(*p, m) : adam_direction(*p, m, v);
    }

    std::vector<named_tensor<T, D>> tensors() override {
        std::vector<named_tensor<T, D>> all;
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
        parameter<T, D>* p;
        tensor<T, D> m, v;  // v: only of Adam
    };

    void orthogonalise(parameter<T, D>& p, tensor<T, D>& m) const {
        const index_t rows = p.shape[0], columns = p.shape.size() / std::max<index_t>(rows, 1);
        if (p.shape.size() == 0) return;
        for_each(functors::muon_momentum<T>{static_cast<T>(config_.momentum), config_.nesterov}, p.grad, m);
        const double tall = std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns));
        nearly_orthogonal<T, D>(rows, columns, p.grad.data(), static_cast<T>(std::sqrt(tall)), p.grad.data());
    }

    void adam_direction(parameter<T, D>& p, tensor<T, D>& m, tensor<T, D>& v) const {
        const adam_rule<T> rule = adam{{.beta1 = 0.9, .beta2 = 0.95}}.template make_rule<T>(
            {.number = steps_, .lr = config_.adam_lr_ratio}, 0, 0);
        for_each(functors::adam_direction<T>{rule}, p.grad, m, v);
    }

    const arena<T, D>* weights_;
    muon_config config_;
    std::vector<state> of_;
    std::int64_t steps_ = 0;
};

}  // namespace cairn
