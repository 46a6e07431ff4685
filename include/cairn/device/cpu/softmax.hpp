#pragma once
// Softmax over the last axis and its fusion with cross-entropy, for rows of `classes` logits:
//   m = max x,  s = Σ exp(x - m),  p = exp(x - m) / s,  log-sum-exp = m + log s
//   target of a row with label y and smoothing ε:   t_k = (1 - ε) [k = y] + ε / classes
//   loss = Σ_k w_k t_k (m + log s - x_k),   d loss / d x_j = p_j Σ_k w_k t_k - w_j t_j   (w: class weights, or 1)
// (Szegedy et al. 2016, "Rethinking the Inception architecture", section 7, for the smoothing.)
// Bytes: logits read once, gradient written once; a row stays in the first-level cache between its passes.
// Tested against tests/oracle/softmax.hpp. A non-finite logit makes its row's results NaN: nothing is hidden.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/cpu/vector_math.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/ignore_index.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn {

namespace detail {

/// Rows that a thread takes at a time.
inline index_t softmax_grain(index_t classes) { return std::max<index_t>(1, 8192 / std::max<index_t>(classes, 1)); }

/// Largest element, NaN elements left out.
template <class T, class S = simd::arithmetic<T>>
S row_max(index_t n, const T* x) {
    constexpr index_t lanes = simd::lanes<S>;
    simd::pack<S> top(-std::numeric_limits<S>::infinity());
    index_t i = 0;
    for (; i + lanes <= n; i += lanes) top = simd::max(simd::load(x + i), top);
    S most = simd::fold(top, [](S a, S b) { return a > b ? a : b; });
    for (; i < n; ++i) most = std::max(most, S{x[i]});
    return most;
}

/// Σ a b.
template <class T>
simd::arithmetic<T> row_dot(index_t n, const T* a, const T* b) {
    using S = simd::arithmetic<T>;
    simd::pack<S> sums(S{});
    simd::for_packs<S>(n, [&](index_t i, auto count) { sums += simd::load(a + i, count) * simd::load(b + i, count); });
    return simd::sum(sums);
}

/// e[i] = exp(x[i] - m), unless e is null; returns their sum. Whole packs, also for the last elements: no exponential
/// is taken alone.
template <class T, class S>
S row_exp(index_t n, const T* x, S m, S* e) {
    simd::pack<S> sums(S{});
    simd::for_packs<S>(
        n, [&](index_t i, auto count) __attribute__((always_inline)) {
            simd::pack<S> v = simd::load(x + i, count);
            for (auto& part : v.part) part = vector_math::exp_nonpositive(part - m);
            S room[simd::lanes<S>];
            S* const to = e ? e + i : room;
            simd::store(to, v, count);
            sums += simd::load(to, count);
        });
    return simd::sum(sums);
}

}  // namespace detail

/// y = softmax of each row. y may be x.
template <class T>
void softmax_forward(cpu, index_t rows, index_t classes, const T* x, T* y) {
    using S = simd::arithmetic<T>;
    constexpr bool in_place = std::is_same_v<T, S>;  // else a row of exponentials is kept in S until it is divided
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    const kernel_call call("softmax forward", format_name<T>, 5 * n, 2 * n * sizeof(T), {rows, classes});
    thread_rooms<S> rooms(in_place ? 0 : classes);
    parallel_for(rows, detail::softmax_grain(classes), [&](index_t begin, index_t end) {
        S* const room = rooms.here();
        for (index_t r = begin; r < end; ++r) {
            T* const out = y + r * classes;
            S* e = room;
            if constexpr (in_place) e = out;
            const S m = detail::row_max(classes, x + r * classes);
            const S inverse = S(1) / detail::row_exp(classes, x + r * classes, m, e);
#pragma omp simd
            for (index_t k = 0; k < classes; ++k) out[k] = e[k] * inverse;
        }
    });
}

/// dx_j = y_j (dy_j - Σ_k dy_k y_k), from the softmax y. dx may be dy.
template <class T>
void softmax_backward(cpu, index_t rows, index_t classes, const T* y, const T* dy, T* dx) {
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    const kernel_call call("softmax backward", format_name<T>, 4 * n, 3 * n * sizeof(T), {rows, classes});
    parallel_for(rows, detail::softmax_grain(classes), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const T *const p = y + r * classes, *const g = dy + r * classes;
            T* const out = dx + r * classes;
            const simd::arithmetic<T> dot = detail::row_dot(classes, p, g);
#pragma omp simd
            for (index_t k = 0; k < classes; ++k) out[k] = p[k] * (g[k] - dot);
        }
    });
}

namespace detail {

/// One row of softmax_cross_entropy. weight(k) is the weight of class k, weights their sum.
template <class T, class Weight>
T cross_entropy_row(index_t classes, const T* x, index_t label, T smoothing, T scale, T* dlogits, T weights,
                    Weight weight) {
    const T share = smoothing / static_cast<T>(classes);
    const T m = row_max(classes, x);
    const T hit = (T(1) - smoothing) * weight(label);
    T loss = -hit * (x[label] - m), total = hit;  // total = Σ w t
    if (smoothing > 0) {
        T spread = 0;
#pragma omp simd reduction(+ : spread)
        for (index_t k = 0; k < classes; ++k) spread += weight(k) * (x[k] - m);
        loss -= share * spread;
        total += share * weights;
    }
    const T s = row_exp(classes, x, m, dlogits);
    if (dlogits) {
        const T factor = scale * total / s, spread = scale * share;
#pragma omp simd
        for (index_t k = 0; k < classes; ++k) dlogits[k] = dlogits[k] * factor - spread * weight(k);
        dlogits[label] -= scale * hit;
    }
    return loss + total * std::log(s);
}

inline void require_label(index_t label, index_t row, index_t classes) {
    require(label >= 0 && label < classes, "cross-entropy: label ", label, " of row ", row, " is not in [0, ", classes,
            ')');
}

}  // namespace detail

/// Of rows whose label is not `ignore_index`, Σ_i class_weights[label_i], or their number where class_weights is null,
/// into *out: what a mean is divided by. Throws on a label out of range, naming row and label, and unless the sum is
/// above 0. On a phantom rank all labels count.
template <class T>
void label_weights_into(cpu, index_t rows, index_t classes, const std::int32_t* labels, const T* class_weights,
                        double* out, std::int32_t ignore_index = nothing_ignored) {
    const double n = static_cast<double>(rows);
    const kernel_call call("label weights", format_name<T>, n, n * (sizeof(std::int32_t) + sizeof(T)), {rows});
    *out = n;
    if (on_phantom_rank()) return;
    *out = 0;
    for (index_t r = 0; r < rows; ++r) {
        if (is_ignored(labels[r], ignore_index)) continue;
        detail::require_label(labels[r], r, classes);
        *out += class_weights ? static_cast<double>(class_weights[labels[r]]) : 1.0;
    }
    require(*out > 0, "cross-entropy: of ", rows, " rows ",
            class_weights ? "the class weights of the labels sum to 0 or less"
                          : "none has a label that counts: nothing can be learnt or tested");
}

/// Cross-entropy of softmax(logits) with integer labels, and its gradient.
/// logits (rows, classes); labels (rows) in [0, classes); loss_per_row (rows), not scaled;
/// dlogits (rows, classes) = scale × d loss_per_row / d logits, may be logits itself, or null where only the loss is
/// wanted. smoothing in [0, 1]; class_weights (classes) or null; divisor: what `scale` is divided by, or null. A row
/// with label `ignore_index` has loss and gradient 0. Throws on a label out of range, naming row and label.
template <class T>
void softmax_cross_entropy(cpu, index_t rows, index_t classes, const T* logits, const std::int32_t* labels, T smoothing,
                           T* loss_per_row, T* dlogits, T scale, const T* class_weights = nullptr,
                           const double* divisor = nullptr, std::int32_t ignore_index = nothing_ignored) {
    require(smoothing >= 0 && smoothing <= 1, "cross-entropy: label smoothing ", smoothing, " is not in [0, 1]");
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    const kernel_call call(dlogits ? "cross-entropy and gradient" : "cross-entropy", format_name<T>,
                           (dlogits ? 6 : 4) * n, (dlogits ? 2 : 1) * n * sizeof(T), {rows, classes});
    if (on_phantom_rank()) return;
    if (divisor) scale = static_cast<T>(static_cast<double>(scale) / *divisor);
    T weights = static_cast<T>(classes);
    if (class_weights) {
        weights = 0;
        for (index_t k = 0; k < classes; ++k) weights += class_weights[k];
    }
    parallel_for(rows, detail::softmax_grain(classes), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const index_t label = labels[r];
            const T* const x = logits + r * classes;
            T* const g = dlogits ? dlogits + r * classes : nullptr;
            if (is_ignored(labels[r], ignore_index)) {
                loss_per_row[r] = 0;
                if (g) std::fill_n(g, classes, T{});
                continue;
            }
            detail::require_label(label, r, classes);
            const auto row = [&](auto weight) {
                return detail::cross_entropy_row(classes, x, label, smoothing, scale, g, weights, weight);
            };
            loss_per_row[r] =
                class_weights ? row([=](index_t k) { return class_weights[k]; }) : row([](index_t) { return T(1); });
        }
    });
}

namespace detail {

template <class T>
[[noreturn, gnu::cold]] void throw_outside_unit(index_t columns, index_t from, const T* target) {
    while (target[from] >= 0 && target[from] <= 1) ++from;
    fail("binary_cross_entropy: target ", target[from], " of sample ", from / columns, ", output ", from % columns,
         " is not in [0, 1]");
}

}  // namespace detail

/// *sum = Σ −t log σ(x) − (1 − t) log(1 − σ(x)) of logits x and targets t (rows, columns), gradient = scale (σ(x) − t),
/// which may be x. Throws on a target outside [0, 1]. One logarithm serves a piece: Σ log(1 + u_i) = log Π (1 + u_i),
/// u = exp(−|x|): 1 + u ≤ 2, and 512 of them fit a double.
template <class T>
void logistic_cross_entropy(cpu, index_t rows, index_t columns, const T* x, const T* t, T scale, T* gradient,
                            double* sum) {
    constexpr index_t piece = 512;
    const index_t n = rows * columns;
    const kernel_call call("logistic cross-entropy", format_name<T>, 8.0 * static_cast<double>(n),
                           3.0 * static_cast<double>(n) * sizeof(T), {n});
    *sum = parallel_sum<double>(n, 8 * piece, [&](index_t begin, index_t end) {
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
                gradient[i] = scale * (sigma - t[i]);
            }
            if (outside) detail::throw_outside_unit(columns, from, t);
            part += straight + std::log(product);
        }
        return part;
    });
}

}  // namespace cairn
