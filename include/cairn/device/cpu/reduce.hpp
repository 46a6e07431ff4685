#pragma once
// Reductions: sums, norms, extremes and counts over an array, sums down the columns of a matrix, the largest of each
// row. Every array is read once. Sums run in double, in lanes within chunks of fixed size and over the chunks in order,
// so that they have the same bits on any number of threads. Tested against long double loops.

#include <cairn/core/for_each.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/range.hpp>
#include <cairn/device/cpu/folded_rows.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

namespace cairn {

namespace detail {

inline constexpr index_t reduce_grain = index_t{1} << 16;

using simd::double_packs;

/// Sixteen elements at p as doubles.
[[gnu::always_inline]] inline double_packs load_doubles(const float* p) { return simd::widen(simd::load(p)); }
[[gnu::always_inline]] inline double_packs load_doubles(const double* p) { return {simd::load(p), simd::load(p + 8)}; }

/// Σ term(x0[i], x1[i], …) over [begin, end), in double.
template <class Term, class... T>
double sum_of_run(index_t begin, index_t end, Term term, const T*... x) {
    using simd::pack;
    pack<double> a(0), b(0), c(0), d(0);
    index_t i = begin;
    for (; i + 32 <= end; i += 32) {
        const auto add = [&](index_t at, pack<double>& low, pack<double>& high) {
            [&](const auto&... v) {
                low += term(v.low...);
                high += term(v.high...);
            }(load_doubles(x + at)...);
        };
        add(i, a, b);
        add(i + 16, c, d);
    }
    double rest = 0;
    for (; i < end; ++i) rest += term(static_cast<double>(x[i])...);
    return simd::sum((a + b) + (c + d)) + rest;
}

/// The same over [0, n), by all threads.
template <class Term, class... T>
double sum_of(index_t n, Term term, const T*... x) {
    return parallel_sum<double>(n, reduce_grain,
                                [&](index_t begin, index_t end) { return sum_of_run(begin, end, term, x...); });
}

/// The announcement of one pass over n numbers of T, `flops` operations and `read` numbers for each.
template <class T>
kernel_call pass_call(const char* kind, index_t n, double flops, double read = 1) {
    return kernel_call(kind, format_name<T>, flops * static_cast<double>(n), read * static_cast<double>(n) * sizeof(T),
                       {n});
}

/// *to = value, unless a phantom rank has its numbers there.
template <class T>
void put_result(T* to, std::type_identity_t<T> value) {
    if (!phantom_range::holds(to)) *to = value;
}

inline constexpr auto squared = [](const auto& v) { return v * v; };

}  // namespace detail

/// Σ x.
template <class T>
double sum(cpu, index_t n, const T* x) {
    const kernel_call call = detail::pass_call<T>("sum", n, 1);
    return detail::sum_of(
        n, [](const auto& v) { return v; }, x);
}

/// Σ x², the square of the Euclidean norm. Squares are formed in double: no overflow for float.
template <class T>
double sum_of_squares(cpu, index_t n, const T* x) {
    const kernel_call call = detail::pass_call<T>("sum of squares", n, 2);
    return detail::sum_of(n, detail::squared, x);
}

/// Elements of a piece in sums by parts.
constexpr index_t piece_of_parts(cpu) { return detail::reduce_grain; }

/// Σ x² of each part of an array, with the bits of sum_of_squares() of that part by itself. `pieces` and `first` are
/// those of parts_in_pieces; n: elements of all parts.
template <class T>
void sums_of_squares_into(cpu, index_t n, const tensor<range>& pieces, const tensor<index_t>& first, const T* x,
                          tensor<double>& of_part) {
    const kernel_call call("sums of squares of parts", format_name<T>, 2.0 * static_cast<double>(n),
                           static_cast<double>(n) * sizeof(T), {n, pieces.size(), of_part.size()});
    if (on_phantom_rank()) return;
    std::vector<double> of_piece(static_cast<std::size_t>(pieces.size()));
    parallel_tasks(pieces.size(), [&](index_t i) {
        of_piece[static_cast<std::size_t>(i)] =
            detail::sum_of_run(pieces[i].begin, pieces[i].end(), detail::squared, x);
    });
    for (index_t p = 0; p < of_part.size(); ++p)
        of_part[p] = std::accumulate(of_piece.begin() + first[p], of_piece.begin() + first[p + 1], 0.0);
}

/// The same, to *out: the form that devices have without waiting.
template <class T>
void sum_of_squares_into(cpu d, index_t n, const T* x, double* out) {
    detail::put_result(out, sum_of_squares(d, n, x));
}

template <class T>
void sum_into(cpu d, index_t n, const T* x, double* out) {
    detail::put_result(out, sum(d, n, x));
}

/// How many x are equal to y, into *out.
template <class T>
void count_equal_into(cpu, index_t n, const T* x, const T* y, double* out) {
    const kernel_call call = detail::pass_call<T>("count of equals", n, 1, 2);
    const auto count = parallel_sum<index_t>(n, detail::reduce_grain, [&](index_t begin, index_t end) {
        index_t equal = 0;
        for (index_t i = begin; i < end; ++i) equal += x[i] == y[i];
        return equal;
    });
    detail::put_result(out, static_cast<double>(count));
}

/// Σ x y.
template <class T>
double dot(cpu, index_t n, const T* x, const T* y) {
    const kernel_call call = detail::pass_call<T>("dot", n, 2, 2);
    return detail::sum_of(
        n, [](const auto& v, const auto& w) { return v * w; }, x, y);
}

/// sums[k] = Σ of the product of pair k of four arrays of n numbers.
template <int Count, class T>
void pair_products_into(cpu, index_t n, const T* a, const T* b, const T* c, const T* e,
                        const pair_of_arrays (&pairs)[Count], double* sums) {
    using products = sums_of<Count>;
    const kernel_call call("products of pairs", format_name<T>, 2.0 * Count * static_cast<double>(n),
                           4.0 * static_cast<double>(n) * sizeof(T), {n, Count});
    const T* const x[] = {a, b, c, e};
    const products all = parallel_sum<products>(n, detail::reduce_grain, [&](index_t begin, index_t end) {
        products part;
        simd::pack<double> low[Count], high[Count];
        for (int k = 0; k < Count; ++k) low[k] = high[k] = simd::pack<double>(0);
        index_t i = begin;
        for (; i + 16 <= end; i += 16) {
            const detail::double_packs v[] = {detail::load_doubles(x[0] + i), detail::load_doubles(x[1] + i),
                                              detail::load_doubles(x[2] + i), detail::load_doubles(x[3] + i)};
            for (int k = 0; k < Count; ++k) {
                low[k] += v[pairs[k].first].low * v[pairs[k].second].low;
                high[k] += v[pairs[k].first].high * v[pairs[k].second].high;
            }
        }
        for (int k = 0; k < Count; ++k) part.at[k] = simd::sum(low[k] + high[k]);
        for (; i < end; ++i)
            for (int k = 0; k < Count; ++k)
                part.at[k] += static_cast<double>(x[pairs[k].first][i]) * static_cast<double>(x[pairs[k].second][i]);
        return part;
    });
    cpu::copy_within(sums, all.at, sizeof all.at);
}

namespace detail {

inline void put_pair(double* to, const sum_pair& sums) {
    put_result(to, sums.first);
    put_result(to + 1, sums.second);
}

// Out of the lambda below: inside it, compilers miss that the loop can be vectorised.
template <class F, class... Elements>
sum_pair sum_run(index_t n, F f, Elements*... arrays) {
    double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (index_t i = 0; i < n; ++i) f(first, second, arrays[i]...);
    return {first, second};
}

}  // namespace detail

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums. Each
/// array moves once.
template <class F, class... Elements>
sum_pair sum_each(cpu, index_t n, F f, Elements*... arrays) {
    constexpr index_t bytes = (index_t{0} + ... + index_t{sizeof(Elements)});  // of an element of each
    const kernel_call call(detail::functor_name<F>::value, "any", static_cast<double>(n) * (sizeof...(Elements) + 2),
                           static_cast<double>(n) * bytes, {n, bytes});
    constexpr index_t grain = 1 << 14;
    return parallel_sum<sum_pair>(
        n, grain, [&](index_t begin, index_t end) { return detail::sum_run(end - begin, f, (arrays + begin)...); });
}

/// The same, to out[0] and out[1].
template <class F, class... Elements>
void sum_each_into(cpu d, index_t n, F f, double* out, Elements*... arrays) {
    detail::put_pair(out, sum_each(d, n, f, arrays...));
}

/// The same with f(first, second, w, a[i], b[i], …) for the elements of matrices (rows, columns), w = of_row[i /
/// columns] of_column[i mod columns]; null: 1.
template <class W, class F, class... Elements>
void sum_each_weighted_into(cpu, index_t rows, index_t columns, const W* of_row, const W* of_column, F f, double* out,
                            Elements*... arrays) {
    constexpr index_t bytes = (index_t{0} + ... + index_t{sizeof(Elements)});  // of an element of each
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call(detail::functor_name<F>::value, "any", n * (sizeof...(Elements) + 3), n * bytes,
                           {rows, columns, bytes});
    const index_t grain = 1 + 4096 / std::max<index_t>(columns, 1);
    const sum_pair sums = parallel_sum<sum_pair>(rows, grain, [&](index_t begin, index_t end) {
        sum_pair part;
        for (index_t row = begin; row < end; ++row)
            for (index_t c = 0; c < columns; ++c) {
                const W w = (of_row ? of_row[row] : W(1)) * (of_column ? of_column[c] : W(1));
                f(part.first, part.second, w, arrays[row * columns + c]...);
            }
        return part;
    });
    detail::put_pair(out, sums);
}

namespace detail {

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// Largest bit pattern of |x|. Patterns of magnitudes are ordered as integers, NaN above infinity.
template <class T>
bits_of<T> largest_magnitude(index_t n, const T* x) {
    constexpr bits_of<T> magnitude = ~bits_of<T>{} >> 1;
    bits_of<T> m = 0;
#pragma omp simd reduction(max : m)
    for (index_t i = 0; i < n; ++i) {
        const bits_of<T> b = std::bit_cast<bits_of<T>>(x[i]) & magnitude;
        m = b > m ? b : m;
    }
    return m;
}

/// How many sums x[0][i] + x[1][i] + … are NaN or infinite.
template <class T, class... Others>
index_t count_nonfinite(index_t n, const T* x, const Others*... others) {
    const bits_of<T> exponent = std::bit_cast<bits_of<T>>(std::numeric_limits<T>::infinity());
    bits_of<T> found = 0;  // at most reduce_grain
#pragma omp simd reduction(+ : found)
    for (index_t i = 0; i < n; ++i)
        found += (std::bit_cast<bits_of<T>>((x[i] + ... + others[i])) & exponent) == exponent ? 1u : 0u;
    return static_cast<index_t>(found);
}

}  // namespace detail

/// max |x|, 0 of nothing; NaN if any element is NaN.
template <class T>
T max_abs(cpu, index_t n, const T* x) {
    using bits = detail::bits_of<T>;
    const kernel_call call = detail::pass_call<T>("largest magnitude", n, 1);
    return std::bit_cast<T>(parallel_fold(
        n, detail::reduce_grain, bits{},
        [&](index_t begin, index_t end) { return detail::largest_magnitude(end - begin, x + begin); },
        [](bits& largest, bits other) { largest = std::max(largest, other); }));
}

/// How many elements are NaN or infinite.
template <class T>
index_t count_nonfinite(cpu, index_t n, const T* x) {
    const kernel_call call = detail::pass_call<T>("count of non-finite", n, 0);
    return parallel_sum<index_t>(n, detail::reduce_grain, [&](index_t begin, index_t end) {
        return detail::count_nonfinite(end - begin, x + begin);
    });
}

/// The first x[i], or sum x[i] + y[i] + …, that is NaN or infinite, as far as the host knows without waiting for the
/// device: of a grid device it knows nothing.
template <class T, class... Others>
std::optional<element_of<T>> non_finite_at_hand(cpu, index_t n, const T* x, const Others*... others) {
    const kernel_call call = detail::pass_call<T>("search for non-finite", n, sizeof...(Others), 1 + sizeof...(Others));
    const index_t bad = parallel_sum<index_t>(n, detail::reduce_grain, [&](index_t begin, index_t end) {
        return detail::count_nonfinite(end - begin, x + begin, (others + begin)...);
    });
    if (bad == 0) return std::nullopt;
    index_t i = 0;
    while (std::isfinite((x[i] + ... + others[i]))) ++i;
    return element_of<T>{i, (x[i] + ... + others[i])};
}

namespace detail {

/// acc[i] += Σ_r x[r, i] over rows of `width` elements, eight rows at a time.
template <class T, class S>
void add_rows(index_t rows, index_t w, const T* x, S* acc) {
    for (; rows >= 8; rows -= 8, x += 8 * w) {
#pragma omp simd
        for (index_t i = 0; i < w; ++i)
            acc[i] += ((x[i] + x[i + w]) + (x[i + 2 * w] + x[i + 3 * w])) +
                      ((x[i + 4 * w] + x[i + 5 * w]) + (x[i + 6 * w] + x[i + 7 * w]));
    }
    for (; rows > 0; --rows, x += w) {
#pragma omp simd
        for (index_t i = 0; i < w; ++i) acc[i] += x[i];
    }
}

/// total[c] += Σ_r x[r, c] in double.
template <class T>
void add_rows_in_double(index_t rows, index_t stride, index_t width, const T* x, double* total) {
    for (; rows > 0; --rows, x += stride) {
#pragma omp simd
        for (index_t c = 0; c < width; ++c) total[c] += static_cast<double>(x[c]);
    }
}

}  // namespace detail

/// out[c] = Σ_r x[r, c], or += with `accumulate`: the gradient of a bias. Sums of up to 256 KiB run in S (float for
/// bfloat16), eight rows at a time, the rest in double.
template <class T, class S>
void column_sums(cpu, index_t rows, index_t columns, const T* x, S* out, bool accumulate) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("column sums", format_name<T>, n, n * sizeof(T), {rows, columns});
    const folded_rows l = folded_rows::of<S>(rows, columns);
    tensor<S> partial({l.chunks, l.period}, memory_category::workspace);
    parallel_chunks(l.count, l.grain, [&](index_t chunk, index_t begin, index_t end) {
        S* const acc = partial.data() + chunk * l.period;
        std::fill_n(acc, l.period, S{});
        detail::add_rows(end - begin, l.period, x + begin * l.period, acc);
    });
    parallel_for(columns, 1024, [&](index_t first, index_t last) {
        std::vector<double> total(static_cast<std::size_t>(last - first));
        detail::add_rows_in_double(l.chunks * l.fold, columns, last - first, partial.data() + first, total.data());
        if (l.rest)
            detail::add_rows_in_double(l.rest / columns, columns, last - first, x + l.count * l.period + first,
                                       total.data());
        for (index_t c = first; c < last; ++c) {
            const S value = static_cast<S>(total[static_cast<std::size_t>(c - first)]);
            out[c] = accumulate ? out[c] + value : value;
        }
    });
}

/// out[r] = column of the largest element of row r, the first one of equals; a NaN counts as the largest.
template <class T>
void argmax_rows(cpu, index_t rows, index_t columns, const T* x, std::int32_t* out) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("argmax of rows", format_name<T>, n, n * sizeof(T), {rows, columns});
    parallel_for(rows, std::max<index_t>(1, 8192 / std::max<index_t>(columns, 1)), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const T* const row = x + r * columns;
            using S = simd::arithmetic<T>;
            S largest = -std::numeric_limits<S>::infinity();
            int nans = 0;
#pragma omp simd reduction(max : largest) reduction(+ : nans)
            for (index_t c = 0; c < columns; ++c) {
                const S v = row[c];
                largest = v > largest ? v : largest;
                nans += v != v;
            }
            index_t best = 0;
            while (best < columns - 1 && !(nans ? row[best] != row[best] : row[best] == largest)) ++best;
            out[r] = static_cast<std::int32_t>(best);
        }
    });
}

}  // namespace cairn
