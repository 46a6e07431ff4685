#pragma once
// Batch normalisation (Ioffe and Szegedy 2015, arXiv:1502.03167) of rows × channels, fused with "+ skip" and with ReLU
// or leaky ReLU.
//   statistics   mean_c = Σ x / n,   var_c = Σ (x - mean)² / n
//   apply        v = gamma (x - mean) invstd + beta [+ skip],   y = act(v),   bit = not (v ≤ 0)
//   sums         g = dy or act'(bit) dy,   dbeta = Σ g,   dgamma = Σ g (x - mean) invstd
//   gradient     dskip = g,   dx = gamma invstd (g - dbeta / n - (x - mean) invstd dgamma / n)
// Memory traffic per element of size s, bits being one eighth of a byte:
//   statistics  s read         apply     s [+ s] read, s + 1/8 written
//   sums       2s + 1/8 read   gradient  2s + 1/8 read, s [+ s] written
// The sign of v is kept as one bit, so that backward reads 1/8 byte instead of y. The pass that reduces goes backward
// and the next one forward: what does not fit the cache is found there by half.
// Variance: eight rows at a time in registers, their mean and their squares about that mean, then merged (Chan, Golub
// and LeVeque 1983), chunks merged in double in order. So each x is read once, and a mean far from zero costs no
// digits. A channel whose squares overflow S takes device/wide_moments.hpp. T stores, S computes: float for bfloat16.
// Tested against tests/oracle/norm.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/device/activation_kind.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/wide_moments.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn {

namespace detail {

/// Mean and sum of squares about it of a chunk of long rows, lane by lane.
template <class T, class S>
void chunk_moments(index_t rows, index_t period, const T* x, S* mean, S* squares) {
    using simd::load, simd::pack, simd::store;
    std::fill_n(mean, period, S{});
    std::fill_n(squares, period, S{});
    index_t seen = 0;
    for (; seen + 8 <= rows; seen += 8, x += 8 * period) {
        const pack<S> share(S(8) / static_cast<S>(seen + 8));
        const pack<S> weight(S(8) * static_cast<S>(seen) / static_cast<S>(seen + 8));
        for (index_t i = 0; i < period; i += simd::lanes<S>) {
            const pack<S> x0 = load(x + i), x1 = load(x + i + period), x2 = load(x + i + 2 * period),
                          x3 = load(x + i + 3 * period), x4 = load(x + i + 4 * period), x5 = load(x + i + 5 * period),
                          x6 = load(x + i + 6 * period), x7 = load(x + i + 7 * period);
            const pack<S> m = (((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7))) * pack<S>(S(0.125));
            const auto square = [&m](const pack<S>& v) { return (v - m) * (v - m); };
            const pack<S> q = ((square(x0) + square(x1)) + (square(x2) + square(x3))) +
                              ((square(x4) + square(x5)) + (square(x6) + square(x7)));
            const pack<S> old = load(mean + i), delta = m - old;
            store(mean + i, old + delta * share);
            store(squares + i, load(squares + i) + q + delta * delta * weight);
        }
    }
    for (; seen < rows; ++seen, x += period) {
        const pack<S> share(S(1) / static_cast<S>(seen + 1)), weight(static_cast<S>(seen) / static_cast<S>(seen + 1));
        for (index_t i = 0; i < period; i += simd::lanes<S>) {
            const pack<S> old = load(mean + i), delta = load(x + i) - old;
            store(mean + i, old + delta * share);
            store(squares + i, load(squares + i) + delta * delta * weight);
        }
    }
}

/// Running mean and squares of `width` channels in double, to which groups of equal size are added.
struct merged_moments {
    explicit merged_moments(index_t width) : mean(static_cast<std::size_t>(width)), squares(mean.size()) {}

    template <class Mean, class Squares>
    void add(double n, const Mean* group_mean, const Squares* group_squares) {
        const double share = n / (count + n), weight = n * count / (count + n);
        const auto width = static_cast<index_t>(mean.size());
        double *const m = mean.data(), *const q = squares.data();
#pragma omp simd
        for (index_t c = 0; c < width; ++c) {
            const double delta = static_cast<double>(group_mean[c]) - m[c];
            m[c] += delta * share;
            q[c] += (group_squares ? static_cast<double>(group_squares[c]) : 0.0) + delta * delta * weight;
        }
        count += n;
    }

    double count = 0;
    std::vector<double> mean, squares;
};

/// act(v) and, with KeepBits, its sign bits.
template <activation Act, bool KeepBits, class T>
[[gnu::always_inline]] inline simd::pack<T> activate(const simd::pack<T>& v, const simd::pack<T>& slope,
                                                     std::uint8_t* bits) {
    if constexpr (Act == activation::none) {
        return v;
    } else {
        const simd::mask<T> m = simd::not_less_equal(v, simd::pack<T>(T{}));
        if constexpr (KeepBits) simd::store_bits(bits, m);
        if constexpr (Act == activation::relu)
            return simd::keep(m, v);
        else
            return simd::select(m, v, slope * v);
    }
}

/// act'(bits) dy.
template <activation Act, class T>
[[gnu::always_inline]] inline simd::pack<T> masked(const simd::pack<T>& dy, const simd::pack<T>& slope,
                                                   const std::uint8_t* bits) {
    if constexpr (Act == activation::none)
        return dy;
    else if constexpr (Act == activation::relu)
        return simd::keep(simd::load_bits<T>(bits), dy);
    else
        return simd::select(simd::load_bits<T>(bits), dy, slope * dy);
}

/// Calls f with the activation as a compile-time constant. Throws on one that batch norm does not fuse.
template <class F>
void with_sign_activation(activation act, F&& f) {
    if (act == activation::none)
        f(std::integral_constant<activation, activation::none>{});
    else if (act == activation::relu)
        f(std::integral_constant<activation, activation::relu>{});
    else if (act == activation::leaky_relu)
        f(std::integral_constant<activation, activation::leaky_relu>{});
    else
        fail("batch norm: ", name_of(act), " cannot be fused; use none, relu or leaky_relu and a layer of its own");
}

/// Calls body(i, i modulo the period, count) for the packs of elements [begin, end), begin a multiple of the period.
template <class T, class Body>
[[gnu::always_inline]] inline void for_packs_of_rows(const folded_rows& l, index_t begin, index_t end, Body&& body) {
    for (index_t row = begin; row < end; row += l.period)
        simd::for_packs<T>(std::min(l.period, end - row), [&](index_t i, auto count) { body(row + i, i, count); });
}

/// Calls body(first, last) for ranges of elements that start at a long row, over all threads, the shorter row at the
/// end included.
template <class Body>
void for_long_rows(const folded_rows& l, Body&& body) {
    l.forward([&](index_t, index_t begin, index_t end) { body(begin * l.period, end * l.period); });
    if (l.rest && !on_phantom_rank()) body(l.count * l.period, l.count * l.period + l.rest);
}

}  // namespace detail

/// mean (channels) and var (channels, biased: divided by rows) of x (rows, channels); of float, a var that exceeds it
/// is infinite. 4 flops per element. rows ≥ 1.
template <class T, class S, class V>
void batch_statistics(cpu, index_t rows, index_t channels, const T* x, S* mean, V* var) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const kernel_call call("batch norm statistics", format_name<T>, 4 * n, n * sizeof(T), {rows, channels});
    const folded_rows l = folded_rows::of<S>(rows, channels);
    tensor<S> partial({2, l.chunks, l.period}, memory_category::workspace);
    S *const means = partial.data(), *const squares = means + l.chunks * l.period;
    l.backward([&](index_t chunk, index_t begin, index_t end) {
        detail::chunk_moments(end - begin, l.period, x + begin * l.period, means + chunk * l.period,
                              squares + chunk * l.period);
    });
    parallel_for(channels, 256, [&](index_t first, index_t last) {
        detail::merged_moments all(last - first);
        for (index_t group = 0; group < l.chunks * l.fold; ++group) {
            const index_t chunk = group / l.fold;
            const index_t size = std::min(l.count, (chunk + 1) * l.grain) - chunk * l.grain;
            all.add(static_cast<double>(size), means + group * channels + first, squares + group * channels + first);
        }
        for (index_t row = l.count * l.fold; row < rows; ++row)
            all.add(1, x + row * channels + first, static_cast<const S*>(nullptr));
        for (index_t c = first; c < last; ++c) {
            double m = all.mean[static_cast<std::size_t>(c - first)];
            double v = all.squares[static_cast<std::size_t>(c - first)] / static_cast<double>(rows);
            if (!std::isfinite(v)) [[unlikely]] {
                const detail::wide_moments wide = detail::wide_moments_of(rows, channels, x + c);
                m = wide.mean;
                v = wide.deviation * wide.deviation;
            }
            mean[c] = static_cast<S>(m);
            var[c] = static_cast<V>(v);
        }
    });
}

/// y = act(gamma (x - mean) invstd + beta [+ skip]) over (rows, channels). `skip` may be null; y may be x or skip.
/// bits: simd::mask_bytes<S>(rows × channels) bytes for backward, or null. 3 flops per element, 1 for skip, 1 for an
/// activation.
template <class T, class S>
void batch_norm_apply(cpu, index_t rows, index_t channels, const T* x, const T* skip, const S* mean, const S* invstd,
                      const S* gamma, const S* beta, activation act, S slope, T* y, std::uint8_t* bits) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = act != activation::none;
    const kernel_call call("batch norm apply", format_name<T>, (3 + (skip ? 1 : 0) + (sign ? 1 : 0)) * n,
                           (skip ? 3 : 2) * n * sizeof(T) + (sign && bits ? n / 8 : 0),
                           {rows, channels, skip != nullptr, sign, bits != nullptr});
    const folded_rows l = folded_rows::of<S>(rows, channels);
    tensor<S> coefficients({3, l.period}, memory_category::workspace);
    S *const center = coefficients.data(), *const scale = center + l.period, *const shift = scale + l.period;
    l.repeat([&](index_t c) { return mean[c]; }, center);
    l.repeat([&](index_t c) { return gamma[c] * invstd[c]; }, scale);
    l.repeat([&](index_t c) { return beta[c]; }, shift);
    detail::with_sign_activation(act, [&](auto kind) {
        const auto run = [&](auto add, auto keep_bits) {
            detail::for_long_rows(l, [=, &l](index_t begin, index_t end) {
                const simd::pack<S> s(slope);
                detail::for_packs_of_rows<S>(l, begin, end, [=](index_t at, index_t i, auto count) {
                    simd::pack<S> v = (simd::load(x + at, count) - simd::load(center + i)) * simd::load(scale + i) +
                                      simd::load(shift + i);
                    if constexpr (add()) v += simd::load(skip + at, count);
                    simd::store(y + at,
                                detail::activate<kind(), keep_bits()>(v, s, keep_bits() ? bits + at / 8 : nullptr),
                                count);
                });
            });
        };
        using std::false_type, std::true_type;
        if (bits)
            skip ? run(true_type{}, true_type{}) : run(false_type{}, true_type{});
        else
            skip ? run(true_type{}, false_type{}) : run(false_type{}, false_type{});
    });
}

/// dgamma and dbeta (channels) from dy, x (rows, channels) and the bits of forward (null without activation).
/// 4 flops per element, 1 for an activation.
template <class T, class S>
void batch_norm_sums(cpu, index_t rows, index_t channels, const T* dy, const std::uint8_t* bits, activation act,
                     S slope, const T* x, const S* mean, const S* invstd, S* dgamma, S* dbeta) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = act != activation::none;
    const kernel_call call("batch norm sums", format_name<T>, (sign ? 5 : 4) * n,
                           2 * n * sizeof(T) + (sign ? n / 8 : 0), {rows, channels, sign});
    const folded_rows l = folded_rows::of<S>(rows, channels);
    const index_t groups = l.chunks + (l.rest ? 1 : 0);  // the shorter row is a group of its own
    tensor<S> workspace({2 * groups + 1, l.period}, memory_category::workspace);
    S *const center = workspace.data(), *const sums = center + l.period, *const products = sums + groups * l.period;
    l.repeat([&](index_t c) { return mean[c]; }, center);
    detail::with_sign_activation(act, [&](auto kind) {
        const auto add_rows = [=, period = l.period](auto count_rows, index_t at, S* sum, S* product, auto&& count_at) {
            const simd::pack<S> s(slope);
            for (index_t i = 0; i < period; i += simd::lanes<S>) {
                const auto count = count_at(i);
                if (count <= 0) break;
                simd::pack<S> a(S{}), b(S{});
                const simd::pack<S> m = simd::load(center + i);
                for (index_t r = 0; r < count_rows(); ++r) {
                    const index_t e = at + i + r * period;
                    const simd::pack<S> g = detail::masked<kind()>(simd::load(dy + e, count), s,
                                                                   kind() == activation::none ? nullptr : bits + e / 8);
                    a += g;
                    b += g * (simd::load(x + e, count) - m);
                }
                simd::store(sum + i, simd::load(sum + i) + a);
                simd::store(product + i, simd::load(product + i) + b);
            }
        };
        const auto whole = [](index_t) { return std::integral_constant<index_t, simd::lanes<S>>{}; };
        l.backward([&](index_t chunk, index_t begin, index_t end) {
            S *const sum = sums + chunk * l.period, *const product = products + chunk * l.period;
            std::fill_n(sum, l.period, S{});
            std::fill_n(product, l.period, S{});
            index_t r = begin;
            for (; r + 8 <= end; r += 8)
                add_rows(std::integral_constant<index_t, 8>{}, r * l.period, sum, product, whole);
            for (; r < end; ++r) add_rows(std::integral_constant<index_t, 1>{}, r * l.period, sum, product, whole);
        });
        if (l.rest && !on_phantom_rank()) {
            S *const sum = sums + l.chunks * l.period, *const product = products + l.chunks * l.period;
            std::fill_n(sum, l.period, S{});
            std::fill_n(product, l.period, S{});
            add_rows(std::integral_constant<index_t, 1>{}, l.count * l.period, sum, product,
                     [rest = l.rest](index_t i) { return std::min<index_t>(simd::lanes<S>, rest - i); });
        }
    });
    parallel_for(channels, 256, [&](index_t first, index_t last) {
        const auto merge = [&](const S* partial, S* out, auto&& scale) {
            std::vector<double> total(static_cast<std::size_t>(last - first));
            detail::add_rows_in_double(groups * l.fold, channels, last - first, partial + first, total.data());
            for (index_t c = first; c < last; ++c)
                out[c] = static_cast<S>(total[static_cast<std::size_t>(c - first)] * scale(c));
        };
        merge(sums, dbeta, [](index_t) { return 1.0; });
        merge(products, dgamma, [&](index_t c) { return static_cast<double>(invstd[c]); });
    });
}

/// dx = gamma invstd (g - dbeta / n - (x - mean) invstd dgamma / n) and, unless null, dskip = g, over (rows, channels).
/// dx and dskip may each be dy or x, not the same. 5 flops per element.
template <class T, class S>
void batch_norm_gradient(cpu, index_t rows, index_t channels, const T* dy, const std::uint8_t* bits, activation act,
                         S slope, const T* x, const S* mean, const S* invstd, const S* gamma, const S* dgamma,
                         const S* dbeta, T* dx, T* dskip) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = act != activation::none;
    const kernel_call call("batch norm gradient", format_name<T>, 5 * n,
                           (dskip ? 4 : 3) * n * sizeof(T) + (sign ? n / 8 : 0),
                           {rows, channels, dskip != nullptr, sign});
    const folded_rows l = folded_rows::of<S>(rows, channels);
    // dx = a (g + c0 + (x - mean) b): of a large deviation, a b would be 0.
    tensor<S> coefficients({4, l.period}, memory_category::workspace);
    S *const center = coefficients.data(), *const a = center + l.period, *const b = a + l.period,
             *const c0 = b + l.period;
    const S share = S(1) / static_cast<S>(rows);
    l.repeat([&](index_t c) { return mean[c]; }, center);
    l.repeat([&](index_t c) { return gamma[c] * invstd[c]; }, a);
    l.repeat([&](index_t c) { return -invstd[c] * dgamma[c] * share; }, b);
    l.repeat([&](index_t c) { return -dbeta[c] * share; }, c0);
    detail::with_sign_activation(act, [&](auto kind) {
        const auto run = [&](auto with_skip) {
            detail::for_long_rows(l, [=, &l](index_t begin, index_t end) {
                const simd::pack<S> s(slope);
                detail::for_packs_of_rows<S>(l, begin, end, [=](index_t at, index_t i, auto count) {
                    const simd::pack<S> g = detail::masked<kind()>(
                        simd::load(dy + at, count), s, kind() == activation::none ? nullptr : bits + at / 8);
                    const simd::pack<S> v = ((simd::load(x + at, count) - simd::load(center + i)) * simd::load(b + i) +
                                             (g + simd::load(c0 + i))) *
                                            simd::load(a + i);
                    simd::store(dx + at, v, count);
                    if constexpr (with_skip()) simd::store(dskip + at, g, count);
                });
            });
        };
        dskip ? run(std::true_type{}) : run(std::false_type{});
    });
}

}  // namespace cairn
