#pragma once
// Reductions on a grid device. Sums of a whole array run in double: threads over strided elements, blocks in a tree,
// then one block over the blocks' results, so that they have the same bits every time. The result of a function that
// returns a number is waited for; the _into forms leave it in device memory. Every array is read once. Same names and
// meaning as device/cpu/reduce.hpp.

#include <cairn/device/cuda/for_each.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

inline constexpr int reduce_threads = 256;
inline constexpr index_t reduce_blocks = 1024;  // at most; fixed, so that sums do not depend on the card

inline index_t reduce_blocks_for(index_t n) {
    return std::clamp<index_t>((n + 8 * reduce_threads - 1) / (8 * reduce_threads), 1, reduce_blocks);
}

/// What is summed or compared: one value an element, from one or two arrays.
struct term_value {
    template <class T>
    CAIRN_HD double operator()(T x) const {
        return static_cast<double>(x);
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

/// partial[block] = Σ term(x[i] …) of the block's elements, element i belonging to thread i mod all threads.
template <class Term, class... T>
struct sum_blocks {
    index_t n;
    Term term;
    double* partial;
    std::tuple<const T*...> arrays;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        double sum = 0;
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            sum += std::apply([&](const T*... x) { return term(x[i]...); }, arrays);
        sum = block_sum(b, sum, b.template shared<double>());
        if (b.thread() == 0) partial[b.block()] = sum;
    }
};

/// out[block] = Σ of row `block` of partial (blocks, n).
struct sum_partials {
    index_t n;
    const double* partial;
    double* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double sum = 0;
        for (index_t i = b.thread(); i < n; i += b.threads()) sum += partial[b.block() * n + i];
        sum = block_sum(b, sum, b.template shared<double>());
        if (b.thread() == 0) out[b.block()] = sum;
    }
};

inline constexpr index_t sum_scratch = reduce_threads / warp_threads * static_cast<index_t>(sizeof(double));

template <GridDevice D, class Term, class... T>
void sum_into(D, double* out, index_t n, Term term, const T*... arrays) {
    const index_t blocks = reduce_blocks_for(n);
    tensor<double, D> partial({blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = reduce_threads, .shared = sum_scratch},
              sum_blocks<Term, T...>{n, term, partial.data(), {arrays...}});
    D::launch({.blocks = 1, .threads = reduce_threads, .shared = sum_scratch},
              sum_partials{blocks, partial.data(), out});
}

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

namespace grid {

/// *out = finish(Σ of row 0 of partial (Rows, n), Σ of row 1, …).
template <int Rows, class Finish>
struct finish_partials {
    index_t n;
    const double* partial;
    Finish finish;
    double* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double sums[2] = {};
        for (int row = 0; row < Rows; ++row) {
            for (index_t i = b.thread(); i < n; i += b.threads()) sums[row] += partial[row * n + i];
            sums[row] = block_sum(b, sums[row], b.template shared<double>());
        }
        if (b.thread() != 0) return;
        const auto ready = at_hand(finish);
        if constexpr (Rows == 1)
            *out = ready(sums[0]);
        else
            *out = ready(sums[0], sums[1]);
    }
};

struct square_root {
    CAIRN_HD double operator()(double x) const { return std::sqrt(x); }
};

}  // namespace grid

/// ‖x‖₂ into *out (device memory).
template <class T, GridDevice D>
void norm_into(D, index_t n, const T* x, double* out) {
    flop_counter::count(2.0 * static_cast<double>(n), static_cast<double>(n) * sizeof(T));
    const index_t blocks = grid::reduce_blocks_for(n);
    tensor<double, D> partial({blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_blocks<grid::term_square, T>{n, {}, partial.data(), {x}});
    D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::finish_partials<1, grid::square_root>{blocks, partial.data(), {}, out});
}

/// Σ x y.
template <class T, GridDevice D>
double dot(D d, index_t n, const T* x, const T* y) {
    flop_counter::count(2.0 * static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    return grid::waited_for(d, [&](double* out) { grid::sum_into(d, out, n, grid::term_product{}, x, y); });
}

namespace grid {

/// Which of up to four arrays are multiplied.
struct pair_of_arrays {
    int first, second;
};

/// partial (Count, blocks) = this block's part of Σ x[first] x[second] for each pair; every array is read once.
template <int Count, class T>
struct pair_products_kernel {
    index_t n;
    const T* x[4];
    pair_of_arrays pairs[Count];
    double* partial;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double sums[Count] = {};
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            double v[4];
            for (int k = 0; k < 4; ++k) v[k] = static_cast<double>(x[k][i]);
            for (int k = 0; k < Count; ++k) sums[k] += v[pairs[k].first] * v[pairs[k].second];
        }
        for (int k = 0; k < Count; ++k) {
            const double sum = block_sum(b, sums[k], b.template shared<double>());
            if (b.thread() == 0) partial[k * b.blocks() + b.block()] = sum;
        }
    }
};

}  // namespace grid

/// sums[k] = Σ of the product of pair k of four arrays of n numbers. Waited for, once.
template <int Count, class T, GridDevice D>
void pair_products(D, index_t n, const T* a, const T* b, const T* c, const T* d,
                   const grid::pair_of_arrays (&pairs)[Count], double (&sums)[Count]) {
    flop_counter::count(2.0 * Count * static_cast<double>(n), 4.0 * static_cast<double>(n) * sizeof(T));
    const index_t blocks = grid::reduce_blocks_for(n);
    tensor<double, D> partial({Count, blocks}, memory_category::workspace), result({Count}, memory_category::workspace);
    grid::pair_products_kernel<Count, T> body{n, {a, b, c, d}, {}, partial.data()};
    for (int k = 0; k < Count; ++k) body.pairs[k] = pairs[k];
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch}, body);
    D::launch({.blocks = Count, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_partials{blocks, partial.data(), result.data()});
    D::copy_to_host(sums, result.data(), result.bytes());
}

/// How many elements are NaN or infinite.
template <class T, GridDevice D>
index_t count_nonfinite(D d, index_t n, const T* x) {
    flop_counter::count(0, static_cast<double>(n) * sizeof(T));
    return static_cast<index_t>(
        grid::waited_for(d, [&](double* out) { grid::sum_into(d, out, n, grid::term_nonfinite{}, x); }));
}

namespace grid {

/// partial (2, blocks) = Σ of what f adds to its first two arguments; f may change the elements. Where `only_if_finite`
/// is not, f is not called.
template <class F, class... E>
struct sum_each_blocks {
    index_t n;
    F f;
    double* partial;
    std::tuple<E*...> arrays;
    const double* only_if_finite;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads(), end = finite_or_none(only_if_finite) ? n : 0;
        const auto ready = at_hand(f);
        double first = 0, second = 0;
        for (index_t i = b.block() * b.threads() + b.thread(); i < end; i += stride)
            std::apply([&](E*... x) { ready(first, second, x[i]...); }, arrays);
        first = block_sum(b, first, b.template shared<double>());
        second = block_sum(b, second, b.template shared<double>());
        if (b.thread() != 0) return;
        partial[b.block()] = first;
        partial[b.blocks() + b.block()] = second;
    }
};

}  // namespace grid

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums, out[0]
/// and out[1] in device memory.
template <GridDevice D, class F, class... Elements>
void sum_each_into(D, index_t n, F f, double* out, Elements*... arrays) {
    const index_t blocks = grid::reduce_blocks_for(n);
    tensor<double, D> partial({2, blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_each_blocks<F, Elements...>{n, f, partial.data(), {arrays...}, nullptr});
    D::launch({.blocks = 2, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_partials{blocks, partial.data(), out});
}

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums.
/// finish(first, second) goes into *out (device memory). Where `number`, which the device has computed, is not finite,
/// f is not called; null: always.
template <GridDevice D, class F, class Finish, class... Elements>
void sum_each_into(D, const double* number, index_t n, F f, Finish finish, double* out, Elements*... arrays) {
    const index_t blocks = grid::reduce_blocks_for(n);
    tensor<double, D> partial({2, blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_each_blocks<F, Elements...>{n, f, partial.data(), {arrays...}, number});
    D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::finish_partials<2, Finish>{blocks, partial.data(), finish, out});
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

namespace grid {

/// partial[part, c] = Σ over the rows of this part of x[r, c], or of its square, in the type that sums run in; a block
/// has `across` neighbouring columns and threads / across rows at a time. Rows begin `stride` elements apart.
template <class T, class Sum, bool Square = false>
struct column_parts {
    index_t rows, columns, stride, parts;
    int across;
    const T* x;
    Sum* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t strips = (columns + across - 1) / across, strip = b.block() % strips, part = b.block() / strips;
        const index_t c = strip * across + b.thread() % across;
        const int lane = static_cast<int>(b.thread()) / across, lanes = static_cast<int>(b.threads()) / across;
        const index_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        Sum sum{};
        if (c < columns)
            for (index_t r = begin + lane; r < end; r += lanes) {
                const auto v = static_cast<Sum>(x[r * stride + c]);
                sum += Square ? v * v : v;
            }
        Sum* const all = b.template shared<Sum>();
        all[b.thread()] = sum;
        b.sync();
        if (lane == 0 && c < columns) {
            for (int k = 1; k < lanes; ++k) sum += all[k * across + b.thread()];
            partial[part * columns + c] = sum;
        }
    }
};

inline constexpr int totals_across = 32, totals_threads = 512;  // columns side by side in a block, and threads

/// Blocks of a kernel that adds up the parts of `columns` columns.
inline index_t totals_blocks(index_t columns) { return (columns + totals_across - 1) / totals_across; }

/// Σ over the parts of column `c`, partial (parts, columns), for the thread that has true from first_of_column(): a
/// warp adds the same parts of 32 columns, for one thread a column would wait for a thousand parts one after the other.
/// `scratch`: a double a thread.
template <class Block>
CAIRN_HD bool first_of_column(Block& b) {
    return b.thread() < totals_across;
}
template <class Block, class Sum>
CAIRN_HD double total_of_parts(Block& b, index_t columns, index_t parts, index_t c, const Sum* partial,
                               double* scratch) {
    const int lanes = static_cast<int>(b.threads()) / totals_across,
              lane = static_cast<int>(b.thread()) / totals_across;
    double sum = 0;
    if (c < columns)
        for (index_t p = lane; p < parts; p += lanes) sum += static_cast<double>(partial[p * columns + c]);
    scratch[b.thread()] = sum;
    b.sync();
    if (first_of_column(b))
        for (int k = 1; k < lanes; ++k) sum += scratch[k * totals_across + b.thread()];
    return sum;
}

template <class T, class Sum>
struct column_totals {  // T: of the results
    index_t columns, parts;
    const Sum* partial;
    T* out;
    bool accumulate;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t c = b.block() * totals_across + b.thread() % totals_across;
        const double sum = total_of_parts(b, columns, parts, c, partial, b.template shared<double>());
        if (first_of_column(b) && c < columns)
            out[c] = accumulate ? static_cast<T>(static_cast<double>(out[c]) + sum) : static_cast<T>(sum);
    }
};

/// How a matrix (rows, columns) is cut for sums down its columns: the same on every card.
struct column_cut {
    int across = 32, threads = 256;
    index_t parts = 1;
    static column_cut of(index_t rows, index_t columns) {
        column_cut cut;
        cut.across = columns >= 32 ? 32 : columns >= 16 ? 16 : columns >= 8 ? 8 : columns >= 4 ? 4 : 1;
        const index_t strips = (columns + cut.across - 1) / cut.across, lanes = cut.threads / cut.across;
        cut.parts = std::clamp<index_t>(std::min<index_t>(rows / (4 * lanes), 2048 / strips), 1, 1024);
        return cut;
    }
    index_t blocks(index_t columns) const { return (columns + across - 1) / across * parts; }
};

/// float for what float holds exactly enough of, else double.
template <class T>
using sum_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace grid

namespace grid {

/// What column_sums does, without counting it as a kernel by itself; rows of x begin `stride` elements apart.
template <bool Square = false, class T, class W, GridDevice D>
void strided_column_sums(D, index_t rows, index_t columns, index_t stride, const T* x, W* out, bool accumulate) {
    if (columns == 0) return;
    using sum = sum_type<T>;
    const column_cut cut = column_cut::of(rows, columns);
    tensor<sum, D> partial({cut.parts, columns}, memory_category::workspace);
    D::launch({.blocks = cut.blocks(columns), .threads = cut.threads, .shared = cut.threads * index_t{sizeof(sum)}},
              column_parts<T, sum, Square>{rows, columns, stride, cut.parts, cut.across, x, partial.data()});
    D::launch({.blocks = totals_blocks(columns),
               .threads = totals_threads,
               .shared = totals_threads * index_t{sizeof(double)}},
              column_totals<W, sum>{columns, cut.parts, partial.data(), out, accumulate});
}

template <class T, class W, GridDevice D>
void column_sums(D d, index_t rows, index_t columns, const T* x, W* out, bool accumulate) {
    strided_column_sums(d, rows, columns, columns, x, out, accumulate);
}

}  // namespace grid

/// out[c] = Σ_r x[r, c], or += with `accumulate`: the gradient of a bias. Parts of the rows in float, the parts in
/// double.
template <class T, class W, GridDevice D>
void column_sums(D d, index_t rows, index_t columns, const T* x, W* out, bool accumulate) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, n * sizeof(T));
    grid::column_sums(d, rows, columns, x, out, accumulate);
}

namespace grid {

template <class T>
struct argmax_of_rows {
    index_t rows, columns;
    const T* x;
    std::int32_t* out;

    template <class Block>
    CAIRN_HD void operator()(
        Block& b) const {  // one thread a row: rows are short (classes), reads go through the cache
        const index_t stride = b.blocks() * b.threads();
        for (index_t r = b.block() * b.threads() + b.thread(); r < rows; r += stride) {
            const T* const row = x + r * columns;
            index_t best = 0;
            for (index_t c = 1; c < columns && row[best] == row[best]; ++c)
                if (!(row[c] <= row[best])) best = c;
            out[r] = static_cast<std::int32_t>(best);
        }
    }
};

template <class T>
struct add_to_rows_kernel {
    index_t rows, columns;
    const T* v;
    T* a;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = rows * columns, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            a[i] = static_cast<T>(static_cast<sum_type<T>>(a[i]) + static_cast<sum_type<T>>(v[remainder(i, columns)]));
    }
};

}  // namespace grid

/// out[r] = column of the largest element of row r, the first one of equals; a NaN counts as the largest.
template <class T, GridDevice D>
void argmax_rows(D, index_t rows, index_t columns, const T* x, std::int32_t* out) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, n * sizeof(T));
    if (rows > 0)
        D::launch({.blocks = grid::blocks_for<D>(rows, 128), .threads = 128},
                  grid::argmax_of_rows<T>{rows, columns, x, out});
}

namespace grid {

/// What add_to_rows does, without counting it as a kernel by itself.
template <class T, GridDevice D>
void add_to_rows(D, index_t rows, index_t columns, const T* v, T* a) {
    if (rows * columns > 0)
        D::launch({.blocks = blocks_for<D>(rows * columns, 256, 4), .threads = 256},
                  add_to_rows_kernel<T>{rows, columns, v, a});
}

}  // namespace grid

/// a (rows × columns) += v (columns) in each row.
template <class T, GridDevice D>
void add_to_rows(D d, index_t rows, index_t columns, const T* v, T* a) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, sizeof(T) * (2 * n + static_cast<double>(columns)));
    grid::add_to_rows(d, rows, columns, v, a);
}

}  // namespace cairn
