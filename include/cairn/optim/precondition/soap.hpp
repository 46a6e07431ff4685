#pragma once
// SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's matrices. For a gradient G as a matrix (first extent,
// all others):
//   G' = Q_Lᵀ G Q_R                 M ← β1 M + (1 − β1) G          V ← β2 V + (1 − β2) G'²
//   direction = Q_L [ √(1 − β2^t)/(1 − β1^t) (Q_Lᵀ M Q_R) ⊘ (√V + ε) ] Q_Rᵀ
//   then      L ← β2 L + (1 − β2) G Gᵀ,   R ← β2 R + (1 − β2) Gᵀ G,   and every `refresh_every` steps the bases:
//             columns sorted by Qᵀ L Q's diagonal, largest first (V's with them), then Q ← the orthonormal part of L Q
//             (one power step)
// The first step only starts L, R and the bases: its direction is zero. A side longer than `max_size` keeps its own
// basis; vectors get Adam's direction. The optimizer behind it is sgd without momentum: θ ← θ − η (direction + λ θ), η
// 3e-3.
// State: M, V, L, R, Q_L, Q_R.
// On a device other than the host (device/grid/matrix_preconditioner_kernels.hpp) only steps that start or refresh
// bases wait for it.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/cpu/matrix_preconditioner_kernels.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct soap_config {
    double beta1 = 0.95, beta2 = 0.95;
    double epsilon = 1e-8;
    std::int64_t refresh_every = 10;
    index_t max_size = 4096;
};

namespace functors {

/// mean ← β mean + (1 − β) x.
template <class T>
struct decayed_mean {
    T beta;
    CAIRN_HD void operator()(T& mean, const T& x) const { mean = beta * mean + (1 - beta) * x; }
};

/// The same of x².
template <class T>
struct decayed_mean_of_squares {
    T beta;
    CAIRN_HD void operator()(T& mean, const T& x) const { mean = beta * mean + (1 - beta) * x * x; }
};

/// d ← scale d / (√v + ε).
template <class T>
struct divided_by_root {
    T scale, epsilon;
    CAIRN_HD void operator()(T& d, const T& v) const { d = scale * d / (std::sqrt(v) + epsilon); }
};

}  // namespace functors

template <class T, Device D = cpu>
class soap final : public preconditioner<T, D> {
public:
    /// Shares the arena's memory. Throws on settings that make no sense.
    soap(arena<T, D>& weights, soap_config c) : weights_(&weights), config_(c) {
        require(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1, "soap: betas ", c.beta1, " and ", c.beta2,
                "; they must be in [0, 1)");
        require(c.epsilon > 0 && c.refresh_every >= 1 && c.max_size >= 1, "soap: epsilon ", c.epsilon,
                ", refreshed every ", c.refresh_every, " steps, sides up to ", c.max_size, "; all must be positive");
        for (const auto& named : weights.parameters()) {
            const std::string& name = named.name;
            parameter<T, D>* const p = named.p;
            const index_t rows = p->shape.rank() >= 2 ? std::max<index_t>(p->shape[0], 1) : 1,
                          columns = p->shape.size() / rows;
            const auto zeros = [](const shape& s) { return tensor<T, D>::zeros(s, memory_category::optimizer); };
            of_.push_back({name, p, zeros({rows, columns}), zeros({rows, columns}), {}, {}});
            const auto has_basis = [&](index_t n) { return p->shape.rank() >= 2 && n > 1 && n <= c.max_size; };
            if (has_basis(rows)) of_.back().left = {zeros({rows, rows}), zeros({rows, rows})};
            if (has_basis(columns)) of_.back().right = {zeros({columns, columns}), zeros({columns, columns})};
        }
    }

    void precondition(double, double) override {
        const trace_scope scope("soap", "step", "optimizer");
        require_finite_gradients("soap", *weights_);
        ++steps_;
        for (state& s : of_) step(s);
    }

    std::vector<named_tensor<T, D>> tensors() override {
        std::vector<named_tensor<T, D>> all;
        for (state& s : of_) {
            all.push_back({s.name + "/m", s.m.share()});
            all.push_back({s.name + "/v", s.v.share()});
            for (const auto& [b, name] : {std::pair{&s.left, "/l"}, {&s.right, "/r"}}) {
                if (b->q.empty()) continue;
                all.push_back({s.name + name, b->mean.share()});
                all.push_back({concat(s.name, name, "_basis"), b->q.share()});
            }
        }
        return all;
    }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return {{"steps", &steps_}}; }

private:
    struct basis {
        tensor<T, D> mean, q;  // (n, n): L or R, and its eigenvectors as columns; empty: the basis as it is
    };
    struct state {
        std::string name;
        parameter<T, D>* p;
        tensor<T, D> m, v;
        basis left, right;
    };

    /// Q_Lᵀ x Q_R, or Q_L x Q_Rᵀ back.
    static tensor<T, D> rotated(const state& s, const tensor<T, D>& x, bool back) {
        const index_t rows = x.extent(0), columns = x.extent(1);
        tensor<T, D> y = x.clone(memory_category::workspace), room(x.shape(), memory_category::workspace);
        if (!s.left.q.empty()) {
            gemm(D{}, !back, false, rows, columns, rows, T{1}, s.left.q.data(), rows, y.data(), columns, T{0},
                 room.data(), columns);
            std::swap(y, room);
        }
        if (!s.right.q.empty()) {
            gemm(D{}, false, back, rows, columns, columns, T{1}, y.data(), columns, s.right.q.data(), columns, T{0},
                 room.data(), columns);
            std::swap(y, room);
        }
        return y;
    }

    void step(state& s) const {
        if (s.m.size() == 0) return;
        const tensor<T, D> g = s.p->grad.reshaped(s.m.shape()).clone(memory_category::workspace);
        tensor<T, D> direction = s.p->grad.reshaped(s.m.shape());
        if (steps_ == 1) {
            accumulate(s, g, T{0}, T{1});
            for (basis* b : {&s.left, &s.right})
                if (!b->q.empty()) start(*b);
            for_each(functors::assign<T>{T{}}, direction);
            return;
        }
        const T b1 = static_cast<T>(config_.beta1), b2 = static_cast<T>(config_.beta2);
        const tensor<T, D> turned = rotated(s, g, false);
        for_each(functors::decayed_mean<T>{b1}, s.m, g);
        for_each(functors::decayed_mean_of_squares<T>{b2}, s.v, turned);
        tensor<T, D> step = rotated(s, s.m, false);
        const double t = static_cast<double>(steps_ - 1);  // updates, this one counted
        const T scale = static_cast<T>(std::sqrt(1 - std::pow(config_.beta2, t)) / (1 - std::pow(config_.beta1, t)));
        for_each(functors::divided_by_root<T>{scale, static_cast<T>(config_.epsilon)}, step, s.v);
        const tensor<T, D> back = rotated(s, step, true);
        copy(back, direction);
        accumulate(s, g, b2, 1 - b2);
        if ((steps_ - 1) % config_.refresh_every == 0) {
            if (!s.left.q.empty()) refresh(s.left, s.v, true);
            if (!s.right.q.empty()) refresh(s.right, s.v, false);
        }
    }

    static void accumulate(state& s, const tensor<T, D>& g, T keep, T add) {
        const index_t rows = g.extent(0), columns = g.extent(1);
        if (!s.left.q.empty())
            gemm(D{}, false, true, rows, rows, columns, add, g.data(), columns, g.data(), columns, keep,
                 s.left.mean.data(), rows);
        if (!s.right.q.empty())
            gemm(D{}, true, false, columns, columns, rows, add, g.data(), columns, g.data(), columns, keep,
                 s.right.mean.data(), columns);
    }

    // Eigenvectors, of the largest eigenvalue first.
    static void start(basis& b) { reversed_columns(D{}, b.q.extent(0), eigh(D{}, b.mean).vectors.data(), b.q.data()); }

    static void refresh(basis& b, tensor<T, D>& v, bool rows) {
        const index_t n = b.q.extent(0);
        tensor<T, D> product({n, n}, memory_category::workspace), sorted({n, n}, memory_category::workspace),
            moved(v.shape(), memory_category::workspace);
        tensor<std::int32_t, D> order({n}, memory_category::workspace);
        gemm(D{}, false, false, n, n, n, T{1}, b.mean.data(), n, b.q.data(), n, T{0}, product.data(), n);
        order_of_columns(D{}, n, b.q.data(), product.data(), order.data());
        reordered(D{}, n, n, false, order.data(), product.data(), sorted.data());
        reordered(D{}, v.extent(0), v.extent(1), rows, order.data(), v.data(), moved.data());
        copy(moved, v);
        copy(orthonormal_columns(D{}, sorted), b.q);
    }

    // Into the same memory: handles to it stay valid.
    static void copy(const tensor<T, D>& from, tensor<T, D>& to) {
        D::copy_within(to.data(), from.data(), from.bytes());
    }

    const arena<T, D>* weights_;
    soap_config config_;
    std::vector<state> of_;
    std::int64_t steps_ = 0;
};

}  // namespace cairn
