#pragma once
// Layer normalisation (Ba, Kiros and Hinton 2016, arXiv:1607.06450) of each row of rows × features:
//   mean = Σ x / n,  invstd = 1 / √(Σ (x - mean)² / n + eps),  x̂ = (x - mean) invstd,  y = gamma x̂ + beta
//   g = gamma dy,    dx = invstd (g - Σ g / n - x̂ Σ g x̂ / n),   dgamma = Σ_rows dy x̂,   dbeta = Σ_rows dy
// Memory traffic per element of size s: forward s read, s written; backward 2s read, s written: a row stays in the
// cache between its passes, and backward sums dgamma and dbeta on the way. T stores, S computes: float for bfloat16.
// A row whose squares overflow S takes device/wide_moments.hpp.
// Tested against tests/oracle/norm.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/wide_moments.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace cairn {

namespace detail {

/// Rows that a thread takes at a time; partial gradients of gamma and beta are kept for each such chunk.
inline index_t layer_norm_grain(index_t rows, index_t features) {
    return std::max<index_t>({1, (index_t{1} << 15) / std::max<index_t>(features, 1), (rows + 255) / 256});
}

/// Σ term(i) over packs of a row.
template <class T, class Term>
[[gnu::always_inline]] inline T row_sum(index_t n, Term&& term) {
    simd::pack<T> a(T{}), b(T{});
    index_t i = 0;
    for (; i + 2 * simd::lanes<T> <= n; i += 2 * simd::lanes<T>) {
        a += term(i, std::integral_constant<index_t, simd::lanes<T>>{});
        b += term(i + simd::lanes<T>, std::integral_constant<index_t, simd::lanes<T>>{});
    }
    simd::for_packs<T>(n - i, [&](index_t j, auto count) { a += term(i + j, count); });
    return simd::sum(a + b);
}

/// Σ d and Σ d² over a row, d = x - m.
template <class S>
struct deviation_sums {
    S sum = 0, squares = 0;
};
template <class S, class T>
[[gnu::always_inline]] inline deviation_sums<S> deviations(index_t n, const T* x, S m) {
    using simd::load, simd::pack;
    constexpr index_t lanes = simd::lanes<S>;
    constexpr std::integral_constant<index_t, lanes> whole;
    const pack<S> mean(m);
    pack<S> a(S{}), b(S{}), aa(S{}), bb(S{});
    index_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
        const pack<S> d = load(x + i, whole) - mean, e = load(x + i + lanes, whole) - mean;
        a += d;
        b += e;
        aa += d * d;
        bb += e * e;
    }
    for (; i + lanes <= n; i += lanes) {
        const pack<S> d = load(x + i, whole) - mean;
        a += d;
        aa += d * d;
    }
    deviation_sums<S> of{simd::sum(a + b), simd::sum(aa + bb)};
    for (; i < n; ++i) {  // not as a shorter pack, whose other lanes would count as 0 - m
        const S d = x[i] - m;
        of.sum += d;
        of.squares += d * d;
    }
    return of;
}

/// One row of the forward pass with the moments of its own; its invstd.
template <class T, class S>
[[gnu::noinline]] double normalise_wide_row(const wide_moments& of, index_t features, const T* x, const S* gamma,
                                            const S* beta, S eps, T* y) {
    const double inverse = of.inverse_deviation(static_cast<double>(eps));
    for (index_t i = 0; i < features; ++i)
        y[i] = static_cast<T>(static_cast<S>((static_cast<double>(x[i]) - of.mean) * inverse) * gamma[i] + beta[i]);
    return inverse;
}

}  // namespace detail

/// y from x (rows, features), gamma and beta (features); y may be x. mean and invstd (rows) for backward, or null.
/// 7 flops per element.
template <class T, class S>
void layer_norm_forward(cpu, index_t rows, index_t features, const T* x, const S* gamma, const S* beta, S eps, T* y,
                        std::type_identity_t<S>* mean, std::type_identity_t<S>* invstd) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    const kernel_call call("layer norm forward", format_name<T>, 7 * n, 2 * n * sizeof(T), {rows, features});
    parallel_for(rows, detail::layer_norm_grain(rows, features), [=](index_t begin, index_t end) {
        using simd::load, simd::pack, simd::store;
        const S share = S(1) / static_cast<S>(features);
        for (index_t r = begin; r < end; ++r) {
            const T* const in = x + r * features;
            T* const out = y + r * features;
            const S rough =
                detail::row_sum<S>(features, [=](index_t i, auto count) { return load(in + i, count); }) * share;
            // The rough mean may be an ulp of x beside the mean, which is more than the deviations of a nearly constant
            // row. What deviations from it come to corrects it.
            const detail::deviation_sums<S> d = detail::deviations(features, in, rough);
            if (!std::isfinite(d.squares)) [[unlikely]] {
                const detail::wide_moments wide = detail::wide_moments_of(features, 1, in);
                const double inverse = detail::normalise_wide_row(wide, features, in, gamma, beta, eps, out);
                if (mean) mean[r] = static_cast<S>(wide.mean);
                if (invstd) invstd[r] = static_cast<S>(inverse);
                continue;
            }
            const S rest = d.sum * share, m = rough + rest;
            const S variance = std::max(S(0), d.squares * share - rest * rest);
            const S inverse = S(1) / std::sqrt(variance + eps);
            simd::for_packs<S>(features, [=](index_t i, auto count) {
                const pack<S> xhat = (load(in + i, count) - pack<S>(m)) * pack<S>(inverse);
                store(out + i, xhat * load(gamma + i, count) + load(beta + i, count), count);
            });
            if (mean) mean[r] = m;
            if (invstd) invstd[r] = inverse;
        }
    });
}

/// dx (rows, features), may be dy, or null where it is not read; dgamma, dbeta (features) are set, not added to.
/// `added` (rows, features), or null: a gradient that comes to dx another way. 13 flops per element, 14 with it.
template <class T, class S>
void layer_norm_backward(cpu, index_t rows, index_t features, const T* dy, const T* x, const S* mean, const S* invstd,
                         const S* gamma, T* dx, S* dgamma, S* dbeta, const std::type_identity_t<T>* added = nullptr) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    const kernel_call call("layer norm backward", format_name<T>, (added ? 14 : 13) * n,
                           (added ? 4 : 3) * n * sizeof(T), {rows, features, dx != nullptr, added != nullptr});
    const index_t grain = detail::layer_norm_grain(rows, features), chunks = (rows + grain - 1) / grain;
    tensor<S> partial({2, chunks, features}, memory_category::workspace);
    if (on_phantom_rank()) return;
    S* const sums = partial.data();
    parallel_chunks(rows, grain, [=](index_t chunk, index_t begin, index_t end) {
        using simd::load, simd::pack, simd::store;
        S *const pg = sums + chunk * features, *const pb = sums + (chunks + chunk) * features;
        std::fill_n(pg, features, S{});
        std::fill_n(pb, features, S{});
        const S share = S(1) / static_cast<S>(features);
        for (index_t r = begin; r < end; ++r) {
            const T *const g = dy + r * features, *const in = x + r * features;
            const pack<S> m(mean[r]), s(invstd[r]);
            pack<S> total(S{}), product(S{});  // Σ gamma dy, Σ gamma dy x̂; gamma dy is 0 in lanes beyond the row
            simd::for_packs<S>(features, [&](index_t i, auto count) {
                const pack<S> d = load(g + i, count), xhat = (load(in + i, count) - m) * s;
                const pack<S> scaled = d * load(gamma + i, count);
                total += scaled;
                product += scaled * xhat;
                store(pg + i, load(pg + i, count) + d * xhat, count);
                store(pb + i, load(pb + i, count) + d, count);
            });
            if (!dx) continue;
            T* const out = dx + r * features;
            const T* const more = added ? added + r * features : nullptr;
            const pack<S> a(simd::sum(total) * share), b(simd::sum(product) * share);
            simd::for_packs<S>(features, [=](index_t i, auto count) {
                const pack<S> xhat = (load(in + i, count) - m) * s;
                const pack<S> d = s * (load(g + i, count) * load(gamma + i, count) - a - xhat * b);
                store(out + i, more ? d + load(more + i, count) : d, count);
            });
        }
    });
    const auto merge = [&](const S* parts, S* out) {
        std::vector<double> total(static_cast<std::size_t>(features));
        detail::add_rows_in_double(chunks, features, features, parts, total.data());
        for (index_t c = 0; c < features; ++c) out[c] = static_cast<S>(total[static_cast<std::size_t>(c)]);
    };
    merge(sums, dgamma);
    merge(sums + chunks * features, dbeta);
}

}  // namespace cairn
