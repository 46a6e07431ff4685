#pragma once
// K-FAC's directions V = F⁻¹ ∇W of all layers in one buffer, and their length: KL clip, norm constraint or grafting
// (kfac.hpp).

#include <cairn/core/trace.hpp>
#include <cairn/device/gradient_layout.hpp>
#include <cairn/optim/precondition/kfac_state.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

template <class T, Device D>
class kfac_directions {
public:
    using block = kfac_layer<T, D>;
    explicit kfac_directions(kfac_state<T, D>& s) : s_(s) {}

    /// All layers are known.
    void start() { order_ = s_.roles->order_of_directions(s_.blocks); }

    /// Of the layers whose directions are made on this rank; zeros for the others.
    void make() {
        const trace_scope scope("precondition", "", "kfac");
        index_t total = 0;
        for (const std::size_t i : order_) total += s_.blocks[i].size();
        if (directions_.size() != total) directions_ = tensor<T, D>({total}, memory_category::workspace);
        index_t at = 0;
        for (const std::size_t i : order_) {
            block& b = s_.blocks[i];
            b.direction = directions_.slice(at, {b.size()});
            at += b.size();
            if (b.ready && s_.roles->preconditions(i))
                make_direction(b);
            else if constexpr (on_host)
                std::fill_n(b.direction.data(), b.direction.size(), T{});
            else
                D::set_bytes(b.direction.data(), 0, b.direction.bytes());
        }
    }

    /// The gradients become directions of the right length.
    void apply(double lr) {
        const trace_scope scope("clip", "", "kfac");
        if constexpr (on_host)
            apply_on_host(lr);
        else
            apply_on_device(lr);
        directions_.reset();
    }

    /// Of all layers, in the order in which roles want them.
    std::span<T> all() { return directions_.span(); }

private:
    static constexpr bool on_host = std::same_as<D, cpu>;

    static gradient_layout<T> layout_of(const block& b) {
        return {.weight = b.weight->grad.data(),
                .bias = b.bias ? b.bias->grad.data() : nullptr,
                .in = b.in,
                .width = b.diagonal ? b.in / 2 : b.in - (b.bias ? 1 : 0),
                .rows = rows_of(b),
                .transposed = b.transposed};
    }

    /// Numbers of the gradient at equal distances, and where the first one lies in V, the next ones behind it.
    struct run {
        index_t at;
        T* gradient;
        index_t step, count;
    };
    // f(run) over rows [first, last) of a block's ∇W and ∇b as (groups · out, in).
    template <class F>
    static void each_run(const block& b, index_t first, index_t last, F&& f) {
        T *const dw = b.weight->grad.data(), *const db = b.bias ? b.bias->grad.data() : nullptr;
        if (b.diagonal) {
            const index_t channels = b.in / 2;
            f(run{0, dw, 1, channels});
            f(run{channels, db, 1, channels});
            return;
        }
        if (in_place(b)) return f(run{first * b.in, dw + first * b.in, 1, (last - first) * b.in});
        const index_t width = b.in - (b.bias ? 1 : 0);
        for (index_t r = first; r < last; ++r) {
            f(b.transposed ? run{r * b.in, dw + r, b.out, width} : run{r * b.in, dw + r * width, 1, width});
            if (db) f(run{r * b.in + width, db + r, 1, 1});
        }
    }
    // Whether ∇W lies in memory as V does.
    static bool in_place(const block& b) { return !b.diagonal && !b.transposed && !b.bias; }
    static index_t rows_of(const block& b) { return b.diagonal ? 1 : b.out * b.groups(); }
    static index_t grain(const block& b) { return std::max<index_t>(1, 16384 / b.in); }
    template <class F>
    static void each_run(const block& b, F&& f) {
        parallel_for(rows_of(b), grain(b), [&](index_t first, index_t last) { each_run(b, first, last, f); });
    }

    struct products {
        double vg = 0, vv = 0, gg = 0;
        products& operator+=(const products& o) {
            vg += o.vg, vv += o.vv, gg += o.gg;
            return *this;
        }
    };
    static products products_of(const block& b) {
        return parallel_sum<products>(rows_of(b), grain(b), [&](index_t first, index_t last) {
            products p;
            each_run(b, first, last, [&p, all = b.direction.data()](const run& r) {
                const T *const v = all + r.at, *const g = r.gradient;
                double vg = 0, vv = 0, gg = 0;
#pragma omp simd reduction(+ : vg, vv, gg)
                for (index_t i = 0; i < r.count; ++i) {
                    const double d = static_cast<double>(v[i]), e = static_cast<double>(g[i * r.step]);
                    vg += d * e, vv += d * d, gg += e * e;
                }
                p += {vg, vv, gg};
            });
            return p;
        });
    }

    // ∇W and ∇b as V has them.
    static void gather(const block& b, T* to) {
        if constexpr (on_host)
            each_run(b, [to](const run& r) {
                for (index_t i = 0; i < r.count; ++i) to[r.at + i] = r.gradient[i * r.step];
            });
        else
            gather_gradient(D{}, layout_of(b), to);
    }

    void make_direction(block& b) {
        T* const v = b.direction.data();
        [[maybe_unused]] const T damping = static_cast<T>(s_.config.damping);
        if (b.diagonal) {
            gather(b, v);
            const bool inverse = s_.config.form == kfac_form::inverse;
            const T* const d = b.a[0].inverse.values.data();
            if constexpr (on_host)
                for (index_t i = 0; i < b.in; ++i) v[i] *= inverse ? d[i] : T{1} / (d[i] + damping);
            else
                scale_kronecker(D{}, 1, b.in, b.in, v, static_cast<const T*>(nullptr), d, 1, s_.config.damping,
                                !inverse, v);
            return;
        }
        tensor<T, D> gathered;
        if (!in_place(b)) gather(b, (gathered = tensor<T, D>({b.size()}, memory_category::workspace)).data());
        const T* const gradient = in_place(b) ? b.weight->grad.data() : gathered.data();
        const index_t size = b.out * b.in;
        for (std::size_t q = 0; q < b.a.size(); ++q) {
            const index_t at = static_cast<index_t>(q) * size;
            cairn::precondition(b.a[q].inverse, b.g[q].inverse, s_.config.form, s_.shared_positions(b),
                                s_.config.damping, b.out, b.in, gradient + at, v + at);
        }
    }

    void apply_on_host(double lr) {
        double square = 0, decrease = 0;  // ‖V‖² and Σ ⟨V, ∇W⟩ of the whole model, before clipping
        std::vector<double> vv(s_.parameters.size()), vg(s_.parameters.size());  // by weight
        std::vector<double> graft(s_.blocks.size(), 1);
        const bool measured = measures_directions(lr);
        for (std::size_t i = 0; measured && i < s_.blocks.size(); ++i) {
            const block& b = s_.blocks[i];
            if (!b.ready) continue;
            const products p = products_of(b);
            const auto at = static_cast<std::size_t>(b.weight->id);
            vg[at] = p.vg;
            vv[at] = p.vv;
            graft[i] = p.vv > 0 ? std::sqrt(p.gg / p.vv) : 1;
        }
        if (s_.config.kl_clip > 0 && lr > 0) decrease = s_.sum_of_model(std::move(vg));
        if (s_.config.norm_limit > 0 && lr > 0) square = s_.sum_of_model(std::move(vv));
        double scale = 1;
        if (s_.config.kl_clip > 0 && lr > 0 && decrease > 0)
            scale = std::min(scale, std::sqrt(s_.config.kl_clip / (lr * lr * decrease)));
        if (s_.config.norm_limit > 0 && lr > 0 && square > 0)
            scale = std::min(scale, s_.config.norm_limit / (lr * std::sqrt(square)));
        for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
            block& b = s_.blocks[i];
            if (!b.ready) continue;
            const T factor = static_cast<T>(s_.config.graft ? graft[i] : scale);
            each_run(b, [factor, v = b.direction.data()](const run& r) {
                for (index_t k = 0; k < r.count; ++k) r.gradient[k * r.step] = factor * v[r.at + k];
            });
            b.direction.reset();
        }
    }

    bool measures_directions(double lr) const {
        return s_.config.graft || (lr > 0 && (s_.config.kl_clip > 0 || s_.config.norm_limit > 0));
    }

    // The same without bringing a number to the host. A template, so that a kfac of the host can be compiled once,
    // whole.
    template <class Where = D>
    void apply_on_device(double lr) {
        std::vector<block*> ready;
        for (block& b : s_.blocks)
            if (b.ready) ready.push_back(&b);
        const auto count = static_cast<index_t>(ready.size());
        if (count == 0) return;
        tensor<double, D> measured = tensor<double, D>::zeros({count, 3}, memory_category::workspace);
        tensor<T, D> factors({count}, memory_category::workspace);
        for (index_t i = 0; measures_directions(lr) && i < count; ++i) {
            const block& b = *ready[static_cast<std::size_t>(i)];
            direction_products(Where{}, layout_of(b), b.direction.data(), measured.data() + 3 * i);
        }
        direction_factors(Where{}, count, measured.data(), s_.config.kl_clip, s_.config.norm_limit, lr, s_.config.graft,
                          factors.data());
        for (index_t i = 0; i < count; ++i) {
            block& b = *ready[static_cast<std::size_t>(i)];
            put_direction(Where{}, layout_of(b), b.direction.data(), factors.data() + i);
            b.direction.reset();
        }
    }

    kfac_state<T, D>& s_;
    std::vector<std::size_t> order_;
    tensor<T, D> directions_;
};

}  // namespace cairn
