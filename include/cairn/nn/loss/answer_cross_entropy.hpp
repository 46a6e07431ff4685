#pragma once
// Binary cross-entropy of several questions a sample, some of whose answers are not known.
//   l = max(x, 0) − x t + log(1 + e^−|x|),  l' = σ(x) − t      of target t = 0 or 1, from the logit x;  0 where t < 0
// value = Σ l / (samples · questions): unknown answers count in the divisor, so that the mean over the parts of a batch
// is that of the batch. Tested against a plain loop, numerical gradients and logits of ± 10 000.

#include <cairn/nn/loss/elementwise.hpp>

#include <cmath>

namespace cairn {

namespace functors {

/// Loss of one answer and its gradient; none where the target is below 0.
template <class T>
struct answered {
    CAIRN_HD T operator()(T x, T t, T scale, T& gradient) const {
        const T small = std::exp(x > 0 ? -x : x);  // e^−|x|
        gradient = t < 0 ? T(0) : scale * ((x > 0 ? T(1) : small) / (1 + small) - t);
        return t < 0 ? T(0) : (x > 0 ? x : T(0)) - x * t + std::log1p(small);
    }
};

}  // namespace functors

/// Loss of answers. Logits and targets of equal shape (samples, questions); a target is 1, 0, or −1: not known.
struct answer_cross_entropy {
    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> logits, const tensor<T, D>& target) const {
        return elementwise_loss("answer_cross_entropy", std::move(logits), target, {}, functors::answered<T>{});
    }
};

}  // namespace cairn
