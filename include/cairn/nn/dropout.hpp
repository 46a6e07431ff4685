#pragma once
// Dropout: in training each element is zero with probability `rate`, else divided by 1 - rate; in evaluation the
// identity. Saved: nothing. Backward draws the mask again from (seed, step, path, sample of the whole batch, element),
// see device/cpu/dropout.hpp: the mask does not depend on the number of ranks and micro-batches. Ranks that share
// samples say where their elements lie (parallel/spatial/dropout.hpp, parallel/tensor/sequence_layers.hpp).

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/dropout.hpp>
#include <cairn/nn/layer.hpp>

#include <functional>
#include <utility>

namespace cairn {

/// Places of a tensor's elements in the whole batch: calls run(first, at, n) for n elements, from number `at` of the
/// tensor on, that are the whole batch's from number `first` on.
using element_runs = std::function<void(const shape& here, const pass_context& p,
                                        const std::function<void(index_t first, index_t at, index_t n)>& run)>;

/// Any shape; in place if the input has no other owner.
template <class T = float, Device D = cpu>
class dropout : public layer_without_parameters<T, D> {
public:
    /// `places`: unset where samples are whole.
    explicit dropout(double rate = 0.5, element_runs places = {}) : rate_(rate), places_(std::move(places)) {
        require(rate >= 0 && rate < 1, "dropout: rate ", rate, " is not in [0, 1)");
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>&, const pass_context& p) {
        return p.training() ? apply(std::move(x), p) : std::move(x);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>&, const pass_context& p) {
        return p.input_gradient ? apply(std::move(dy), p) : tensor<T, D>{};
    }

    shape output_shape(const shape& in) const { return in; }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), size = sizeof(T);
        layer_cost c;
        c.forward = c.backward_input = {n, 2 * size * n};
        c.in_place_forward = c.in_place_backward = true;
        return c;
    }

    std::string describe() const { return concat("dropout ", rate_); }

private:
    tensor<T, D> apply(tensor<T, D> x, const pass_context& p) const {
        const T* const in = x.data();
        const shape s = x.shape();
        tensor<T, D> y = x.unique() ? std::move(x) : tensor<T, D>(s);
        const auto run = [&](index_t first, index_t at, index_t n) {
            dropout_apply(D{}, n, rate_, p.random.stream(), in + at, y.data() + at, first, p.random.step_at);
        };
        if (places_)
            places_(s, p, run);
        else
            run(s.front() ? p.random.first_sample * (s.size() / s.front()) : 0, 0, s.size());
        return y;
    }

    double rate_;

protected:
    element_runs places_;
};

CAIRN_COMPILED_CLASS(dropout)

}  // namespace cairn
