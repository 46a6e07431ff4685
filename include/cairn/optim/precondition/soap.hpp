#pragma once
// SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's matrices. For a gradient G as a matrix (first extent, all others):
//   G' = Q_Lᵀ G Q_R                 M ← β1 M + (1 − β1) G          V ← β2 V + (1 − β2) G'²
//   direction = Q_L [ √(1 − β2^t)/(1 − β1^t) (Q_Lᵀ M Q_R) ⊘ (√V + ε) ] Q_Rᵀ
//   then      L ← β2 L + (1 − β2) G Gᵀ,   R ← β2 R + (1 − β2) Gᵀ G,   and every `refresh_every` steps the bases:
//             columns sorted by Qᵀ L Q's diagonal, largest first (V's with them), then Q ← the orthonormal part of L Q (one power step)
// The first step only starts L, R and the bases: its direction is zero. A side longer than `max_size` keeps its own basis; vectors get
// Adam's direction. The optimizer behind it is sgd without momentum: θ ← θ − η (direction + λ θ), η 3e-3.
// State: M, V, L, R, Q_L, Q_R.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct soap_config {
    double beta1 = 0.95, beta2 = 0.95;
    double epsilon = 1e-8;
    std::int64_t refresh_every = 10;
    index max_size = 4096;
};

template <class T>
class soap final : public preconditioner<T> {
public:
    /// Shares the arena's memory. Throws on settings that make no sense.
    soap(arena<T>& weights, soap_config c) : config_(c) {
        require(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1, "soap: betas ", c.beta1, " and ", c.beta2,
                "; they must be in [0, 1)");
        require(c.epsilon > 0 && c.refresh_every >= 1 && c.max_size >= 1, "soap: epsilon ", c.epsilon,
                ", refreshed every ", c.refresh_every, " steps, sides up to ", c.max_size, "; all must be positive");
        for (const auto& named : weights.parameters()) {
            const std::string& name = named.name;
            parameter<T>* const p = named.p;
            const index rows = p->shape.rank() >= 2 ? std::max<index>(p->shape[0], 1) : 1,
                        columns = p->shape.size() / rows;
            const auto zeros = [](const shape& s) { return tensor<T>::zeros(s, category::optimizer); };
            of_.push_back({name, p, zeros({rows, columns}), zeros({rows, columns}), {}, {}});
            const auto has_basis = [&](index n) { return p->shape.rank() >= 2 && n > 1 && n <= c.max_size; };
            if (has_basis(rows)) of_.back().left = {zeros({rows, rows}), zeros({rows, rows})};
            if (has_basis(columns)) of_.back().right = {zeros({columns, columns}), zeros({columns, columns})};
        }
    }

    void precondition(double, double) override {
        const trace_scope scope("soap", "step", "optimizer");
        ++steps_;
        for (state& s : of_) step(s);
    }

    std::vector<named_tensor<T>> tensors() override {
        std::vector<named_tensor<T>> all;
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
        tensor<T> mean, q;  // (n, n): L or R, and its eigenvectors as columns; empty: the basis as it is
    };
    struct state {
        std::string name;
        parameter<T>* p;
        tensor<T> m, v;
        basis left, right;
    };

    /// Q_Lᵀ x Q_R, or Q_L x Q_Rᵀ back.
    static tensor<T> rotated(const state& s, const tensor<T>& x, bool back) {
        const index rows = x.extent(0), columns = x.extent(1);
        tensor<T> y = x.clone(category::workspace), room(x.shape(), category::workspace);
        if (!s.left.q.empty()) {
            gemm(cpu{}, !back, false, rows, columns, rows, T{1}, s.left.q.data(), rows, y.data(), columns, T{0},
                 room.data(), columns);
            std::swap(y, room);
        }
        if (!s.right.q.empty()) {
            gemm(cpu{}, false, back, rows, columns, columns, T{1}, y.data(), columns, s.right.q.data(), columns, T{0},
                 room.data(), columns);
            std::swap(y, room);
        }
        return y;
    }

    void step(state& s) const {
        if (s.m.size() == 0) return;
        const tensor<T> g = s.p->grad.reshaped(s.m.shape()).clone(category::workspace);
        tensor<T> direction = s.p->grad.reshaped(s.m.shape());
        if (steps_ == 1) {
            accumulate(s, g, T{0}, T{1});
            for (basis* b : {&s.left, &s.right})
                if (!b->q.empty()) start(*b);
            for_each([](T& d) { d = T{}; }, direction);
            return;
        }
        const T b1 = static_cast<T>(config_.beta1), b2 = static_cast<T>(config_.beta2);
        const tensor<T> turned = rotated(s, g, false);
        for_each([b1](T& m, const T& x) { m = b1 * m + (1 - b1) * x; }, s.m, g);
        for_each([b2](T& v, const T& x) { v = b2 * v + (1 - b2) * x * x; }, s.v, turned);
        tensor<T> step = rotated(s, s.m, false);
        const double t = static_cast<double>(steps_ - 1);  // updates, this one counted
        const T scale = static_cast<T>(std::sqrt(1 - std::pow(config_.beta2, t)) / (1 - std::pow(config_.beta1, t)));
        for_each([scale, e = static_cast<T>(config_.epsilon)](T& d, const T& v) { d = scale * d / (std::sqrt(v) + e); },
                 step, s.v);
        const tensor<T> back = rotated(s, step, true);
        for_each([](T& d, const T& x) { d = x; }, direction, back);
        accumulate(s, g, b2, 1 - b2);
        if ((steps_ - 1) % config_.refresh_every == 0) {
            if (!s.left.q.empty()) refresh(s.left, s.v, true);
            if (!s.right.q.empty()) refresh(s.right, s.v, false);
        }
    }

    static void accumulate(state& s, const tensor<T>& g, T keep, T add) {
        const index rows = g.extent(0), columns = g.extent(1);
        if (!s.left.q.empty())
            gemm(cpu{}, false, true, rows, rows, columns, add, g.data(), columns, g.data(), columns, keep,
                 s.left.mean.data(), rows);
        if (!s.right.q.empty())
            gemm(cpu{}, true, false, columns, columns, rows, add, g.data(), columns, g.data(), columns, keep,
                 s.right.mean.data(), columns);
    }

    // Eigenvectors, of the largest eigenvalue first.
    static void start(basis& b) {
        const index n = b.q.extent(0);
        const tensor<T> vectors = eigh(cpu{}, b.mean).vectors;
        for (index r = 0; r < n; ++r)
            for (index c = 0; c < n; ++c) b.q[r * n + c] = vectors[r * n + n - 1 - c];
    }

    static void refresh(basis& b, tensor<T>& v, bool rows) {
        const index n = b.q.extent(0);
        tensor<T> product({n, n}, category::workspace);
        gemm(cpu{}, false, false, n, n, n, T{1}, b.mean.data(), n, b.q.data(), n, T{0}, product.data(), n);
        std::vector<T> values(static_cast<std::size_t>(n));
        for (index r = 0; r < n; ++r)
            for (index c = 0; c < n; ++c) values[static_cast<std::size_t>(c)] += b.q[r * n + c] * product[r * n + c];
        std::vector<index> order(values.size());
        std::iota(order.begin(), order.end(), index{0});
        std::ranges::stable_sort(order, std::ranges::greater{},
                                 [&](index i) { return values[static_cast<std::size_t>(i)]; });
        const auto permute = [&](tensor<T>& t, index outer, index inner, index outer_step, index inner_step) {
            std::vector<T> line(order.size());
            for (index o = 0; o < outer; ++o) {
                for (index i = 0; i < inner; ++i)
                    line[static_cast<std::size_t>(i)] =
                        t[o * outer_step + order[static_cast<std::size_t>(i)] * inner_step];
                for (index i = 0; i < inner; ++i)
                    t[o * outer_step + i * inner_step] = line[static_cast<std::size_t>(i)];
            }
        };
        permute(product, n, n, n, 1);
        if (rows)
            permute(v, v.extent(1), n, 1, v.extent(1));
        else
            permute(v, v.extent(0), n, n, 1);
        const tensor<T> q = orthonormal_columns(cpu{}, product);
        std::copy_n(q.data(), q.size(), b.q.data());
    }

    soap_config config_;
    std::vector<state> of_;
    std::int64_t steps_ = 0;
};

}  // namespace cairn
