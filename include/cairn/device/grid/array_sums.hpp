#pragma once
// Sums of whole arrays on a grid device, in double: threads over strided elements, blocks in a tree, then one block
// over the blocks' results, so that they have the same bits every time. The result of a function that returns a number
// is waited for; the _into forms leave it in device memory. Every array is read once. Same names and meaning as
// device/cpu/reduce.hpp.

#include <cairn/device/grid/for_each.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace cairn {

namespace grid {

inline constexpr int reduce_threads = 256;
inline constexpr index_t reduce_blocks = 1024;  // at most; fixed, so that sums do not depend on the card

inline index_t reduce_blocks_for(index_t n) {
    return std::clamp<index_t>((n + 8 * reduce_threads - 1) / (8 * reduce_threads), 1, reduce_blocks);
}

/// The summed or compared values: one an element, from one or two arrays.
struct term_value {
    template <class T>
    CAIRN_HD double operator()(T x) const {
        return static_cast<double>(x);
    }
};
struct term_magnitude {
    template <class T>
    CAIRN_HD double operator()(T x) const {
        return x < 0 ? -static_cast<double>(x) : static_cast<double>(x);
    }
};
struct term_square {
    template <class T>
    CAIRN_HD double operator()(T x) const {
        return static_cast<double>(x) * static_cast<double>(x);
    }
};
struct term_product {
    template <class T>
    CAIRN_HD double operator()(T x, T y) const {
        return static_cast<double>(x) * static_cast<double>(y);
    }
};
struct term_equal {
    template <class T>
    CAIRN_HD double operator()(T x, T y) const {
        return x == y ? 1.0 : 0.0;
    }
};
struct term_nonfinite {
    template <class T>
    CAIRN_HD double operator()(T x) const {
        const double v = static_cast<double>(x);
        return v - v == 0 ? 0.0 : 1.0;
    }
};

inline constexpr index_t sum_scratch = reduce_threads / warp_threads * static_cast<index_t>(sizeof(double));

/// partial (K, blocks) = what f(i, sums) adds to its K sums for the block's i, i belonging to thread i mod all threads.
/// Where `only_if_finite` is not, f is not called.
template <int K, class F>
struct partial_sums_kernel {
    index_t n;
    F f;
    double* partial;
    const double* only_if_finite;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads(), end = finite_or_none(only_if_finite) ? n : 0;
        const auto ready = at_hand(f);
        double sums[K] = {};
        for (index_t i = b.block() * b.threads() + b.thread(); i < end; i += stride) ready(i, sums);
        for (int k = 0; k < K; ++k) {
            const double sum = block_sum(b, sums[k], b.template shared<double>());
            if (b.thread() == 0) partial[k * b.blocks() + b.block()] = sum;
        }
    }
};

/// Σ x[i], i in [0, n), by the threads of a block.
template <class Block>
CAIRN_HD double block_sum_of_row(Block& b, index_t n, const double* x) {
    double sum = 0;
    for (index_t i = b.thread(); i < n; i += b.threads()) sum += x[i];
    return block_sum(b, sum, b.template shared<double>());
}

/// out[block] = Σ of row `block` of partial (blocks, n).
struct sum_partials {
    index_t n;
    const double* partial;
    double* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const double sum = block_sum_of_row(b, n, partial + b.block() * n);
        if (b.thread() == 0) out[b.block()] = sum;
    }
};

/// *out = finish(Σ of row 0 of partial (2, n), Σ of row 1).
template <class Finish>
struct finish_partials {
    index_t n;
    const double* partial;
    Finish finish;
    double* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const double first = block_sum_of_row(b, n, partial), second = block_sum_of_row(b, n, partial + n);
        if (b.thread() == 0) *out = at_hand(finish)(first, second);
    }
};

/// (K, blocks) sums, by block, of what f(i, sums) adds for i in [0, n).
template <int K, GridDevice D, class F>
tensor<double, D> partial_sums(D, index_t n, const F& f, const double* only_if_finite = nullptr) {
    const index_t blocks = reduce_blocks_for(n);
    tensor<double, D> partial({K, blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = reduce_threads, .shared = sum_scratch},
              partial_sums_kernel<K, F>{n, f, partial.data(), only_if_finite});
    return partial;
}

/// out (K), in device memory = Σ of what f(i, sums) adds to its K sums, for i in [0, n).
template <int K, GridDevice D, class F>
void sum_indices(D d, index_t n, const F& f, double* out) {
    const tensor<double, D> partial = partial_sums<K>(d, n, f);
    D::launch({.blocks = K, .threads = reduce_threads, .shared = sum_scratch},
              sum_partials{partial.extent(1), partial.data(), out});
}

template <class Term, class... T>
struct summed_term {
    Term term;
    std::tuple<const T*...> arrays;
    CAIRN_HD void operator()(index_t i, double (&sum)[1]) const {
        sum[0] += std::apply([&](const T*... x) { return term(x[i]...); }, arrays);
    }
};

template <GridDevice D, class Term, class... T>
void sum_into(D d, double* out, index_t n, Term term, const T*... arrays) {
    sum_indices<1>(d, n, summed_term<Term, T...>{term, {arrays...}}, out);
}

/// x[first] x[second] of each pair; every array is read once.
template <int Count, class T>
struct pair_terms {
    const T* x[4];
    pair_of_arrays pairs[Count];
    CAIRN_HD void operator()(index_t i, double (&sums)[Count]) const {
        double v[4];
        for (int k = 0; k < 4; ++k) v[k] = static_cast<double>(x[k][i]);
        for (int k = 0; k < Count; ++k) sums[k] += v[pairs[k].first] * v[pairs[k].second];
    }
};

/// The number that `into(double*)` leaves on the device.
template <GridDevice D, class Into>
double waited_for(D, Into into) {
    tensor<double, D> result({1}, memory_category::workspace);
    into(result.data());
    double value = 0;
    D::copy_to_host(&value, result.data(), sizeof value);
    return value;
}

}  // namespace grid

/// Σ x into *out (device memory).
template <class T, GridDevice D>
void sum_into(D d, index_t n, const T* x, double* out) {
    flop_counter::count(static_cast<double>(n), static_cast<double>(n) * sizeof(T));
    grid::sum_into(d, out, n, grid::term_value{}, x);
}

/// How many x are equal to y, into *out (device memory).
template <class T, GridDevice D>
void count_equal_into(D d, index_t n, const T* x, const T* y, double* out) {
    flop_counter::count(static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    grid::sum_into(d, out, n, grid::term_equal{}, x, y);
}

/// Σ x² into *out (device memory).
template <class T, GridDevice D>
void sum_of_squares_into(D d, index_t n, const T* x, double* out) {
    flop_counter::count(2.0 * static_cast<double>(n), static_cast<double>(n) * sizeof(T));
    grid::sum_into(d, out, n, grid::term_square{}, x);
}

/// Σ x.
template <class T, GridDevice D>
double sum(D d, index_t n, const T* x) {
    return grid::waited_for(d, [&](double* out) { sum_into(d, n, x, out); });
}

/// Σ x². Squares are formed in double: no overflow for float.
template <class T, GridDevice D>
double sum_of_squares(D d, index_t n, const T* x) {
    return grid::waited_for(d, [&](double* out) { sum_of_squares_into(d, n, x, out); });
}

/// Σ x y.
template <class T, GridDevice D>
double dot(D d, index_t n, const T* x, const T* y) {
    flop_counter::count(2.0 * static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    return grid::waited_for(d, [&](double* out) { grid::sum_into(d, out, n, grid::term_product{}, x, y); });
}

/// sums[k] = Σ of the product of pair k of four arrays of n numbers, in device memory.
template <int Count, class T, GridDevice D>
void pair_products_into(D d, index_t n, const T* a, const T* b, const T* c, const T* e,
                        const pair_of_arrays (&pairs)[Count], double* sums) {
    flop_counter::count(2.0 * Count * static_cast<double>(n), 4.0 * static_cast<double>(n) * sizeof(T));
    grid::pair_terms<Count, T> terms{{a, b, c, e}, {}};
    for (int k = 0; k < Count; ++k) terms.pairs[k] = pairs[k];
    grid::sum_indices<Count>(d, n, terms, sums);
}

/// Nothing: the host knows no number of the device without waiting for it (device/cpu/reduce.hpp).
template <class T, GridDevice D, class... Others>
std::optional<element_of<T>> non_finite_at_hand(D, index_t, const T*, const Others*...) {
    return std::nullopt;
}

/// How many elements are NaN or infinite.
template <class T, GridDevice D>
index_t count_nonfinite(D d, index_t n, const T* x) {
    flop_counter::count(0, static_cast<double>(n) * sizeof(T));
    return static_cast<index_t>(
        grid::waited_for(d, [&](double* out) { grid::sum_into(d, out, n, grid::term_nonfinite{}, x); }));
}

namespace grid {

/// What f(first, second, a[i], b[i], …) adds to its first two arguments; f may change the elements.
template <class F, class... E>
struct summed_each {
    F f;
    std::tuple<E*...> arrays;
    CAIRN_HD auto at_hand() const { return summed_each<decltype(cairn::at_hand(f)), E...>{cairn::at_hand(f), arrays}; }
    CAIRN_HD void operator()(index_t i, double (&sums)[2]) const {
        std::apply([&](E*... x) { f(sums[0], sums[1], x[i]...); }, arrays);
    }
};

}  // namespace grid

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums, out[0]
/// and out[1] in device memory.
template <GridDevice D, class F, class... Elements>
void sum_each_into(D d, index_t n, F f, double* out, Elements*... arrays) {
    grid::sum_indices<2>(d, n, grid::summed_each<F, Elements...>{f, {arrays...}}, out);
}

namespace grid {

/// What f(first, second, w, a[i], b[i], …) adds to its first two arguments, w the weight of row i / columns times that
/// of column i mod columns.
template <class F, class W, class... E>
struct summed_weighted {
    index_t columns;
    const W *of_row, *of_column;  // null: 1
    F f;
    std::tuple<E*...> arrays;
    CAIRN_HD void operator()(index_t i, double (&sums)[2]) const {
        const index_t row = quotient(i, columns);
        const W w = (of_row ? of_row[row] : W(1)) * (of_column ? of_column[i - row * columns] : W(1));
        std::apply([&](E*... x) { f(sums[0], sums[1], w, x[i]...); }, arrays);
    }
};

}  // namespace grid

/// The same with f(first, second, w, a[i], b[i], …) for the elements of matrices (rows, columns), w = of_row[i /
/// columns] of_column[i mod columns]; null: 1.
template <GridDevice D, class W, class F, class... Elements>
void sum_each_weighted_into(D d, index_t rows, index_t columns, const W* of_row, const W* of_column, F f, double* out,
                            Elements*... arrays) {
    grid::sum_indices<2>(d, rows * columns,
                         grid::summed_weighted<F, W, Elements...>{columns, of_row, of_column, f, {arrays...}}, out);
}

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums.
/// finish(first, second) goes into *out (device memory). Where `number`, which the device has computed, is not finite,
/// f is not called; null: always.
template <GridDevice D, class F, class Finish, class... Elements>
void sum_each_into(D d, const double* number, index_t n, F f, Finish finish, double* out, Elements*... arrays) {
    const auto partial = grid::partial_sums<2>(d, n, grid::summed_each<F, Elements...>{f, {arrays...}}, number);
    D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::finish_partials<Finish>{partial.extent(1), partial.data(), finish, out});
}

namespace grid {

/// partial[block] = largest |x|; −1 where there is a NaN.
template <class T>
struct max_blocks {
    index_t n;
    const T* x;
    double* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        double most = 0, broken = 0;
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const double v = static_cast<double>(x[i]), size = v < 0 ? -v : v;
            if (v != v) broken = 1;
            most = size > most ? size : most;
        }
        most = block_max(b, most, b.template shared<double>());
        broken = block_max(b, broken, b.template shared<double>());
        if (b.thread() == 0) partial[b.block()] = broken > 0 ? -1 : most;
    }
};

}  // namespace grid

/// max |x|, 0 of nothing; NaN if any element is NaN.
template <class T, GridDevice D>
T max_abs(D, index_t n, const T* x) {
    flop_counter::count(static_cast<double>(n), static_cast<double>(n) * sizeof(T));
    const index_t blocks = grid::reduce_blocks_for(n);
    tensor<double, D> partial({blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::max_blocks<T>{n, x, partial.data()});
    std::vector<double> all(static_cast<std::size_t>(blocks));
    D::copy_to_host(all.data(), partial.data(), blocks * index_t{sizeof(double)});
    double most = 0;
    for (double v : all) {
        if (v < 0) return static_cast<T>(std::nan(""));
        most = std::max(most, v);
    }
    return static_cast<T>(most);
}

}  // namespace cairn
