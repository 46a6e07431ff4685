#pragma once
// Kernels of second-order preconditioning on a grid device besides products and decompositions: rows are gathered,
// diagonals and borders of factors changed, gradients scaled in eigenbases, and directions measured and put where
// gradients were. Names and meaning are those of device/cpu/curvature.hpp.

#include <cairn/device/curvature_samples.hpp>
#include <cairn/device/gradient_layout.hpp>
#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/column_sums.hpp>
#include <cairn/device/grid/conv_patches.hpp>
#include <cairn/device/grid/deferred_tasks.hpp>
#include <cairn/device/grid/label_sampling.hpp>
#include <cairn/device/grid/matrix_preconditioner_kernels.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

/// to (count, width): elements of chosen rows.
template <class S, class T>
struct gather_rows_kernel {
    strided_samples<S> rows;
    index_t first;  // of the chosen ones
    T* to;

    CAIRN_HD void operator()(index_t i) const {
        const index_t row = first + quotient(i, rows.width), column = remainder(i, rows.width);
        const index_t chosen = quotient(row, rows.rows_each()), example = rows.examples[chosen];
        if (!rows.join) {
            to[i] = static_cast<T>(element(example, rows.at[row - chosen * rows.rows_each()], column));
            return;
        }
        sum_type<T> sum{};
        for (index_t p = 0; p < rows.positions; ++p) sum += static_cast<sum_type<T>>(element(example, p, column));
        to[i] = static_cast<T>(sum * static_cast<sum_type<T>>(rows.scale));
    }

    CAIRN_HD S element(index_t example, index_t position, index_t column) const {
        if (!rows.patches) return rows.x[(example * rows.positions + position) * rows.stride + column];
        const index_t channels = quotient(rows.conv.c_in, rows.conv.groups), tap = quotient(column, channels);
        return patch_element(rows.conv, rows.x, example * rows.positions + position, tap, column - tap * channels);
    }
};

/// The same of a convolution's patches, eight channels of a kernel point at a time: where they lie is found once.
template <class T>
struct gather_patches_kernel {
    strided_samples<T> rows;
    index_t first;
    T* to;

    CAIRN_HD void operator()(index_t i) const {
        const index_t packets = rows.width / packet_lanes, channels = quotient(rows.conv.c_in, rows.conv.groups);
        const index_t row = first + quotient(i, packets), column = remainder(i, packets) * packet_lanes;
        const index_t chosen = quotient(row, rows.rows_each()), tap = quotient(column, channels);
        const index_t patch = rows.examples[chosen] * rows.positions + rows.at[row - chosen * rows.rows_each()];
        packet<T, packet_lanes> values{};
        if (const T* const from = patch_at(rows.conv, rows.x, patch, tap))
            values = *reinterpret_cast<const packet<T, packet_lanes>*>(from + column - tap * channels);
        reinterpret_cast<packet<T, packet_lanes>*>(to)[i] = values;
    }
};

/// The last row and column of a symmetric sum (n, n) of rows that end in a 1, or the end of its diagonal.
template <class T>
struct add_border_kernel {
    index_t n;
    bool diagonal;
    T weight, count;
    const T* columns;
    T* sum;

    CAIRN_HD void operator()(index_t c) const {
        const index_t width = n - 1;
        if (c == width) {
            sum[diagonal ? width : n * n - 1] += weight * count;
        } else if (!diagonal) {
            sum[c * n + width] += weight * columns[c];
            sum[width * n + c] += weight * columns[c];
        }
    }
};

/// m[i (n + 1)] += value, of a matrix; or m[i] += value.
template <class T>
struct add_to_diagonal_kernel {
    index_t step;
    T value, *m;
    CAIRN_HD void operator()(index_t i) const { m[i * step] += value; }
};

/// The upper triangle of m (n, n), row after row, to or from n (n + 1) / 2 numbers; from there both triangles are
/// written.
template <class T, bool Pack>
struct triangle_kernel {
    index_t n;
    T *m, *packed;
    CAIRN_HD void operator()(index_t i) const {
        const index_t row = quotient(i, n), column = i - row * n;
        const index_t first = row < column ? row : column, second = row < column ? column : row;
        T& there = packed[first * n - quotient(first * (first - 1), 2) + second - first];
        if (!Pack)
            m[i] = there;
        else if (row <= column)
            there = m[i];
    }
};

template <class T>
struct diagonal_sum_kernel {
    index_t n, step;
    const T* m;
    double* out;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double sum = 0;
        for (index_t i = b.thread(); i < n; i += b.threads()) sum += static_cast<double>(m[i * step]);
        sum = block_sum(b, sum, b.template shared<double>());
        if (b.thread() == 0) *out = sum;
    }
};

/// counts[id] += how often it is among chosen ids.
template <class T>
struct count_lookups_kernel {
    index_t positions;
    strided_indices examples, at;
    const std::int32_t* ids;
    T* counts;
    CAIRN_HD void operator()(index_t entry) const {
        index_t found = 0;
        for (index_t e = 0; e < examples.count; ++e)
            for (index_t t = 0; t < at.count; ++t) found += ids[examples[e] * positions + at[t]] == entry;
        counts[entry] += static_cast<T>(found);
    }
};

/// to = v ⊘ (s g aᵀ + γ), or v ∘ s g aᵀ, null being all ones; v (out, in), a (width) for each part of `in` alike.
template <class T>
struct scale_kronecker_kernel {
    index_t in, width;
    const T *v, *g, *a;
    T s, gamma;
    bool divide;
    T* to;
    CAIRN_HD void operator()(index_t i) const {
        const index_t o = quotient(i, in), c = remainder(i - o * in, width);
        const T scale = s * (g ? g[o] : T{1}) * (a ? a[c] : T{1});  // g and a are not both null where it divides
        to[i] = divide ? v[i] / (scale + gamma) : v[i] * scale;
    }
};

/// Element i of a gradient seen as a matrix.
template <class T>
CAIRN_HD T& element_of(const gradient_layout<T>& g, index_t i) {
    const index_t row = quotient(i, g.in), column = i - row * g.in;
    if (column >= g.width) return g.bias[row * (g.in - g.width) + column - g.width];
    return g.transposed ? g.weight[column * g.rows + row] : g.weight[row * g.width + column];
}

template <class T>
struct gather_gradient_kernel {
    gradient_layout<T> gradient;
    T* to;
    CAIRN_HD void operator()(index_t i) const { to[i] = element_of(gradient, i); }
};

/// gradient = *factor · v.
template <class T>
struct put_direction_kernel {
    gradient_layout<T> gradient;
    const T *v, *factor;
    CAIRN_HD void operator()(index_t i) const { element_of(gradient, i) = *factor * v[i]; }
};

/// ⟨V, ∇W⟩, ‖V‖² and ‖∇W‖², or the number of elements.
template <class T>
struct direction_terms {
    gradient_layout<T> gradient;
    const T* v;
    bool unit;
    CAIRN_HD void operator()(index_t i, double (&sums)[3]) const {
        const auto d = static_cast<double>(v[i]), e = static_cast<double>(element_of(gradient, i));
        sums[0] += d * e, sums[1] += d * d, sums[2] += unit ? 1 : e * e;
    }
};

/// Factors of the directions of `count` layers.
template <class T>
struct direction_factors_kernel {
    index_t count;
    const double *products, *of_model;
    direction_limits to;
    T* factors;
    double* shortened;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const double scale = to.scale(count, products, of_model);
        for (index_t i = b.thread(); i < count; i += b.threads())
            factors[i] = static_cast<T>(to.factor(scale, products + 3 * i));
        if (shortened && to.length == direction_length::own && scale < 1 && b.thread() == 0) *shortened += 1;
    }
};

}  // namespace grid

/// Numbers that are gathered at a time. Tests make it small.
template <GridDevice D>
index_t& numbers_gathered(D) {
    static index_t most = index_t{1} << 26;
    return most;
}

namespace grid {

template <class S>
struct rows_as_they_are {
    const curvature_samples<S>& rows;
};

}  // namespace grid

/// Rows as the products take them: in any type.
template <class S, GridDevice D>
grid::rows_as_they_are<S> readable_rows(D, const curvature_samples<S>& rows) {
    return {rows};
}

/// to (count, width) = `count` of the chosen rows, from number `first` on.
template <class S, class T, GridDevice D>
void gather_rows(D d, const strided_samples<S>& rows, index_t first, index_t count, T* to) {
    const index_t channels = rows.patches ? rows.conv.c_in / rows.conv.groups : 1;
    if constexpr (std::is_same_v<S, T>)
        if (!rows.join && channels % grid::packet_lanes == 0 && rows.conv.c_in % grid::packet_lanes == 0 &&
            grid::packets_fit(rows.x, to))
            return grid::for_indices(d, count * (rows.width / grid::packet_lanes),
                                     grid::gather_patches_kernel<T>{rows, first, to});
    grid::for_indices(d, count * rows.width, grid::gather_rows_kernel<S, T>{rows, first, to});
}

/// diagonal (width) += weight · Σ rows², rows (count, stride ≥ width).
template <class S, class T, GridDevice D>
void add_column_squares(D d, index_t count, index_t width, T weight, const S* rows, index_t stride, T* diagonal) {
    tensor<T, D> squares({width}, memory_category::workspace);
    grid::strided_column_sums<true>(d, count, width, stride, rows, squares.data(), false);
    for_each(d, width, functors::add_scaled<T>{weight}, diagonal, squares.data());
}

/// The last row and column of a sum of rows (count, stride ≥ n − 1) that end in a 1: of the matrix (n, n), or of its
/// diagonal (n).
template <class S, class T, GridDevice D>
void add_border(D d, index_t count, index_t n, T weight, const S* rows, index_t stride, bool diagonal, T* sum) {
    tensor<T, D> columns({n}, memory_category::workspace);
    if (!diagonal) grid::strided_column_sums(d, count, n - 1, stride, rows, columns.data(), false);
    grid::for_indices(d, n,
                      grid::add_border_kernel<T>{n, diagonal, weight, static_cast<T>(count), columns.data(), sum});
}

/// Adds `value` to n numbers that are `step` apart.
template <class T, GridDevice D>
void add_to_diagonal(D d, index_t n, index_t step, T value, T* m) {
    grid::for_indices(d, n, grid::add_to_diagonal_kernel<T>{step, value, m});
}

/// to (n (n + 1) / 2) = the upper triangle of m (n, n), row after row.
template <class T, GridDevice D>
void pack_triangle(D d, index_t n, const T* m, T* to) {
    grid::for_indices(d, n * n, grid::triangle_kernel<T, true>{n, const_cast<T*>(m), to});
}

/// m (n, n), symmetric, from its upper triangle as pack_triangle leaves it.
template <class T, GridDevice D>
void unpack_triangle(D d, index_t n, const T* from, T* m) {
    grid::for_indices(d, n * n, grid::triangle_kernel<T, false>{n, m, const_cast<T*>(from)});
}

/// Σ of n numbers that are `step` apart, into *out (device memory).
template <class T, GridDevice D>
void diagonal_sum_into(D, index_t n, index_t step, const T* m, double* out) {
    D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::diagonal_sum_kernel<T>{n, step, m, out});
}

/// How many of n numbers are not finite, into *out (device memory).
template <class T, GridDevice D>
void count_nonfinite_into(D d, index_t n, const T* x, double* out) {
    grid::sum_into(d, out, n, grid::term_nonfinite{}, x);
}

/// counts (entries) += how often each is among the chosen of ids (examples, positions).
template <class T, GridDevice D>
void count_lookups(D d, const strided_indices& examples, const strided_indices& at, index_t positions,
                   const std::int32_t* ids, index_t entries, T* counts) {
    grid::for_indices(d, entries, grid::count_lookups_kernel<T>{positions, examples, at, ids, counts});
}

/// to = v ⊘ (s g aᵀ + γ) with `divide`, else v ∘ s g aᵀ; g and a may be null: ones. v (out, in), a (width) for each
/// part of `in` alike.
template <class T, GridDevice D>
void scale_kronecker(D d, index_t out, index_t in, index_t width, const T* v, const T* g, const T* a, double s,
                     double gamma, bool divide, T* to) {
    grid::for_indices(
        d, out * in,
        grid::scale_kronecker_kernel<T>{in, width, v, g, a, static_cast<T>(s), static_cast<T>(gamma), divide, to});
}

/// to (rows, in) = the gradient.
template <class T, GridDevice D>
void gather_gradient(D d, const gradient_layout<T>& gradient, T* to) {
    grid::for_indices(d, gradient.rows * gradient.in, grid::gather_gradient_kernel<T>{gradient, to});
}

/// out[0 … 2] = ⟨V, ∇W⟩, ‖V‖² and the square of the length to have: ‖∇W‖², or `unit` the number of elements; in device
/// memory.
template <class T, GridDevice D>
void direction_products(D d, const gradient_layout<T>& gradient, const T* v, double* out, bool unit = false) {
    grid::sum_indices<3>(d, gradient.rows * gradient.in, grid::direction_terms<T>{gradient, v, unit}, out);
}

/// factors (count): what the directions of `count` layers are multiplied by. products (count, 3) as direction_products
/// leaves them; of_model: ⟨V, ∇W⟩ and ‖V‖² of the whole model, null where these layers are all of it. *shortened is
/// counted up where a limit holds; null: it is not counted.
template <class T, GridDevice D>
void direction_factors(D, index_t count, const double* products, const double* of_model, const direction_limits& to,
                       T* factors, double* shortened = nullptr) {
    D::launch({.blocks = 1, .threads = 64},
              grid::direction_factors_kernel<T>{count, products, of_model, to, factors, shortened});
}

/// The gradient becomes *factor · v; factor in device memory.
template <class T, GridDevice D>
void put_direction(D d, const gradient_layout<T>& gradient, const T* v, const T* factor) {
    grid::for_indices(d, gradient.rows * gradient.in, grid::put_direction_kernel<T>{gradient, v, factor});
}

}  // namespace cairn
