#pragma once
// Binary cross-entropy of sigmoid(x) with targets t in [0, 1], from the logits x.
//   l = −t log σ(x) − (1 − t) log(1 − σ(x)) = max(x, 0) − x t + log(1 + e^−|x|),   l' = σ(x) − t
// No overflow for any finite x. Mean over all elements.
// The logarithms of a piece are taken at once, Σ log(1 + u_i) = log Π (1 + u_i): 1 + u ≤ 2, and 512 of them fit a
// double. Tested against a plain loop, numerical gradients and logits of ± 10 000.

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/vector_math.hpp>
#include <cairn/nn/loss/elementwise.hpp>

#include <cmath>
#include <limits>

namespace cairn {

namespace functors {

/// One element, for other devices than the host: NaN for a target outside [0, 1].
struct logistic_loss {
    template <class T>
    CAIRN_HD T operator()(T x, T t, T scale, T& gradient) const {
        const T u = std::exp(x < 0 ? x : -x), larger = T(1) / (1 + u), sigma = x < 0 ? u * larger : larger;
        gradient = scale * (sigma - t);
        const T loss = (x > 0 ? x : T(0)) - x * t + std::log1p(u);
        return t >= 0 && t <= 1 ? loss : std::numeric_limits<T>::quiet_NaN();
    }
};

}  // namespace functors

/// Loss of independent yes-or-no outputs and of autoencoders on [0, 1]. Prediction and target of equal shape (samples,
/// outputs…).
struct binary_cross_entropy {
    /// Throws when shapes differ and on a target outside [0, 1]; on a GPU such a target makes the value NaN.
    template <class T, Device D>
        requires(!std::same_as<D, cpu>)
    loss_result<T, D>
    operator()(tensor<T, D> logits, const tensor<T, D>& target) const {
        return elementwise_loss("binary_cross_entropy", std::move(logits), target, {}, functors::logistic_loss{});
    }

    template <class T>
    loss_result<T, cpu> operator()(tensor<T, cpu> logits, const tensor<T, cpu>& target) const {
        require(logits.size() > 0, "binary_cross_entropy: prediction of shape ", logits.shape(), " has no elements");
        require(logits.shape() == target.shape(), "binary_cross_entropy: prediction has shape ", logits.shape(),
                ", target ", target.shape());
        tensor<T, cpu> gradient = gradient_over(logits);
        const T *const x = logits.data(), *const t = target.data();
        T* const g = gradient.data();
        const double mean = 1.0 / static_cast<double>(logits.size());
        const T scale = static_cast<T>(mean);

        constexpr index_t piece = 512;
        const double sum = parallel_sum<double>(logits.size(), 8 * piece, [&](index_t begin, index_t end) {
            double part = 0;
            for (index_t from = begin; from < end; from += piece) {
                const index_t until = std::min(end, from + piece);
                double straight = 0, product = 1;
                int outside = 0;
#pragma omp simd reduction(+ : straight, outside) reduction(* : product)
                for (index_t i = from; i < until; ++i) {
                    const T a = std::abs(x[i]), u = vector_math::exp(-a);
                    const T larger = T(1) / (1 + u), sigma = x[i] < 0 ? u * larger : larger;
                    outside += !(t[i] >= 0 && t[i] <= 1);
                    straight += static_cast<double>((x[i] > 0 ? x[i] : T(0)) - x[i] * t[i]);
                    product *= 1 + static_cast<double>(u);
                    g[i] = scale * (sigma - t[i]);
                }
                if (outside) throw_outside(target, from);
                part += straight + std::log(product);
            }
            return part;
        });
        flop_counter::count(8.0 * static_cast<double>(logits.size()), 3.0 * static_cast<double>(logits.bytes()));
        return {sum * mean, std::move(gradient)};
    }

private:
    template <class T>
    [[noreturn]] static void throw_outside(const tensor<T, cpu>& target, index_t from) {
        while (target[from] >= 0 && target[from] <= 1) ++from;
        const index_t columns = target.size() / target.extent(0);
        fail("binary_cross_entropy: target ", target[from], " of sample ", from / columns, ", output ", from % columns,
             " is not in [0, 1]");
    }
};

}  // namespace cairn
