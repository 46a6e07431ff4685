#pragma once
// Softmax and its cross-entropy by plain loops in long double: the definitions that the kernels are compared with.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

using reals = std::vector<long double>;

/// Softmax of one row, shifted by its maximum.
inline reals softmax(const reals& x) {
    long double largest = x[0], sum = 0;
    for (const long double v : x) largest = v > largest ? v : largest;
    reals p(x.size());
    for (std::size_t k = 0; k < x.size(); ++k) sum += p[k] = std::exp(x[k] - largest);
    for (long double& v : p) v /= sum;
    return p;
}

inline long double log_sum_exp(const reals& x) {
    long double largest = x[0], sum = 0;
    for (const long double v : x) largest = v > largest ? v : largest;
    for (const long double v : x) sum += std::exp(v - largest);
    return largest + std::log(sum);
}

/// dx_j = Σ_k dy_k dp_k / dx_j, by the Jacobian p_k ([k = j] - p_j): p_j (dy_j - Σ_k dy_k p_k).
inline reals softmax_gradient(const reals& p, const reals& dy) {
    long double sum = 0;
    for (std::size_t k = 0; k < p.size(); ++k) sum += dy[k] * p[k];
    reals dx(p.size());
    for (std::size_t j = 0; j < p.size(); ++j) dx[j] = p[j] * (dy[j] - sum);
    return dx;
}

/// Loss of one row with targets t_k = w_k ((1 - smoothing) [k = label] + smoothing / classes), w class weights, and its
/// gradient Σ_k t_k (p_j - [k = j]).
struct cross_entropy_result {
    long double loss = 0;
    reals gradient;
};
inline cross_entropy_result cross_entropy(const reals& x, std::size_t label, long double smoothing,
                                          const reals& weights) {
    const long double lse = log_sum_exp(x), share = smoothing / static_cast<long double>(x.size());
    const reals p = softmax(x);
    cross_entropy_result r{0, reals(x.size())};
    long double total = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
        const long double target = weights[k] * ((k == label ? 1 - smoothing : 0) + share);
        r.loss += target * (lse - x[k]);
        r.gradient[k] -= target;
        total += target;
    }
    for (std::size_t j = 0; j < x.size(); ++j) r.gradient[j] += total * p[j];
    return r;
}

}  // namespace oracle
