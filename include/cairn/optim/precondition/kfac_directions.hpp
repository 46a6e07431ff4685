#pragma once
// K-FAC's directions V = F⁻¹ ∇W of all layers in one buffer, and their length: KL clip, norm constraint or grafting
// (kfac.hpp).

#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/curvature.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/precondition/kfac_state.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace cairn {

template <class T, Device D>
class kfac_directions {
public:
    using block = kfac_layer<T, D>;
    explicit kfac_directions(kfac_state<T, D>& s) : s_(s) {}

    /// All layers are known.
    void start() {
        order_ = s_.roles->order_of_directions(s_.blocks);
        shortened_ = tensor<double, D>::zeros({1}, memory_category::optimizer);
    }

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
            else
                D::set_bytes(b.direction.data(), 0, b.direction.bytes());
        }
    }

    /// The gradients become directions of the right length. Nothing waits, unless the arena has a part of a model.
    void apply(double lr) {
        const trace_scope scope("clip", "", "kfac");
        std::vector<block*> ready;  // in path order, in which their products are added up
        for (block& b : s_.blocks)
            if (b.ready) ready.push_back(&b);
        std::ranges::sort(ready, {}, [](const block* b) { return b->weight->id; });
        const auto count = static_cast<index_t>(ready.size());
        const direction_limits to{s_.config.kl_clip, s_.config.norm_limit, lr, s_.config.length};
        tensor<double, D> products = tensor<double, D>::zeros({count, 3}, memory_category::workspace);
        for (index_t i = 0; to.measures() && i < count; ++i) {
            const block& b = *ready[static_cast<std::size_t>(i)];
            direction_products(D{}, layout_of(b), b.direction.data(), products.data() + 3 * i,
                               to.length == direction_length::unit);
        }
        const tensor<double, D> of_model = s_.over_model ? products_of_model(ready, products, to) : tensor<double, D>{};
        tensor<T, D> factors({count}, memory_category::workspace);
        direction_factors(D{}, count, products.data(), of_model.data(), to, factors.data(), shortened_.data());
        for (index_t i = 0; i < count; ++i) {
            block& b = *ready[static_cast<std::size_t>(i)];
            put_direction(D{}, layout_of(b), b.direction.data(), factors.data() + i);
            b.direction.reset();
        }
        directions_.reset();
    }

    /// Steps whose directions kl_clip or norm_limit made shorter. Waits for the device.
    std::int64_t shortened() const {
        return shortened_.empty() ? 0 : static_cast<std::int64_t>(host_side(shortened_)[0]);
    }

    /// Of all layers, in the order in which roles want them.
    std::span<T> all() { return directions_.span(); }

private:
    static gradient_layout<T> layout_of(const block& b) {
        return {.weight = b.weight->grad.data(),
                .bias = b.bias ? b.bias->grad.data() : nullptr,
                .in = b.in,
                .width = b.diagonal ? b.in / 2 : b.in - (b.bias ? 1 : 0),
                .rows = rows_of(b),
                .transposed = b.transposed};
    }

    // Whether ∇W lies in memory as V does.
    static bool in_place(const block& b) { return !b.diagonal && !b.transposed && !b.bias; }
    static index_t rows_of(const block& b) { return b.diagonal ? 1 : b.out * b.groups(); }

    // Σ ⟨V, ∇W⟩ and Σ ‖V‖² over all layers of the model, of which some are here. Collective; waits for the device.
    tensor<double, D> products_of_model(const std::vector<block*>& ready, const tensor<double, D>& products,
                                        const direction_limits& to) const {
        const tensor<double> here = host_side(products);
        tensor<double> sums = tensor<double>::zeros({2}, memory_category::workspace);
        const auto add_up = [&](index_t which) {
            std::vector<double> by_parameter(s_.parameters.size());
            for (std::size_t i = 0; i < ready.size(); ++i)
                by_parameter[static_cast<std::size_t>(ready[i]->weight->id)] =
                    here[3 * static_cast<index_t>(i) + which];
            sums[which] = sum_in_path_order(s_.over_model(std::move(by_parameter)));
        };
        if (to.clips()) add_up(0);
        if (to.limits_norm()) add_up(1);
        return device_side<D>(sums, memory_category::workspace);
    }

    void make_direction(block& b) {
        T* const v = b.direction.data();
        if (b.diagonal) {
            gather_gradient(D{}, layout_of(b), v);
            return scale_kronecker(D{}, 1, b.in, b.in, v, static_cast<const T*>(nullptr), b.a[0].inverse.values.data(),
                                   1, s_.config.damping, s_.config.form == kfac_form::eigen, v);
        }
        tensor<T, D> gathered;
        if (!in_place(b)) {
            gathered = tensor<T, D>({b.size()}, memory_category::workspace);
            gather_gradient(D{}, layout_of(b), gathered.data());
        }
        const T* const gradient = in_place(b) ? b.weight->grad.data() : gathered.data();
        const index_t size = b.out * b.in;
        for (std::size_t q = 0; q < b.a.size(); ++q) {
            const index_t at = static_cast<index_t>(q) * size;
            cairn::precondition(b.a[q].inverse, b.g[q].inverse, s_.config.form, s_.shared_positions(b),
                                s_.config.damping, b.out, b.in, gradient + at, v + at);
        }
    }

    kfac_state<T, D>& s_;
    std::vector<std::size_t> order_;
    tensor<T, D> directions_;
    tensor<double, D> shortened_;
};

}  // namespace cairn
