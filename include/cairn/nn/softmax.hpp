#pragma once
// Softmax over the last axis as a layer; saved: y. In front of cross-entropy use the fused loss instead
// (nn/loss/cross_entropy.hpp).

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/nn/layer.hpp>

namespace cairn {

/// y = softmax of each row of (…, classes).
template <class T = float, Device D = cpu>
class softmax : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape s = output_shape(x.shape());
        const T* const in = x.data();
        tensor<T, D> y = x.unique() ? std::move(x) : tensor<T, D>(s);
        softmax_forward(D{}, rows(s), s.back(), in, y.data());
        if (p.training()) saved.put(0, y.share());
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> y = saved.take(0);
        require_shape(dy, y.shape(), "softmax: dy");
        if (!p.input_gradient) return {};
        const shape s = dy.shape();
        const T* const gradient = dy.data();
        tensor<T, D> dx = dy.unique() ? std::move(dy) : tensor<T, D>(s);
        softmax_backward(D{}, rows(s), s.back(), y.data(), gradient, dx.data());
        return dx;
    }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 1 && in.back() > 0, "softmax takes (..., classes), got ", in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), size = sizeof(T);
        layer_cost c;
        c.forward = {5 * n, 2 * size * n};
        c.backward_input = {4 * n, 3 * size * n};
        c.saves_output = true;
        c.in_place_forward = c.in_place_backward = true;
        return c;
    }

    std::string describe() const { return "softmax"; }

private:
    static index_t rows(const shape& s) { return s.size() / s.back(); }
};

CAIRN_COMPILED_CLASS(softmax)

}  // namespace cairn
