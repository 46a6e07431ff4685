#pragma once
// What second-order preconditioning does on a grid device beside products and decompositions: rows are gathered,
// diagonals and borders of factors changed, gradients scaled in eigenbases, and directions measured and put where
// gradients were. Only diagonal_sum waits for its result.
// Meaning as in optim/precondition/, whose host has it in loops.

#include <cairn/device/cuda/array_sums.hpp>
#include <cairn/device/cuda/column_sums.hpp>
#include <cairn/device/cuda/label_sampling.hpp>
#include <cairn/device/cuda/matrix_preconditioner_kernels.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/device/gradient_layout.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

/// to (count, width): elements of chosen rows.
template <class S, class T>
struct gather_rows_kernel {
    strided_samples<S> rows;
    index_t first, count;  // of the chosen ones
    T* to;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = count * rows.width, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t row = first + quotient(i, rows.width), column = remainder(i, rows.width);
            const index_t chosen = quotient(row, rows.rows_each()), example = rows.examples[chosen];
            if (!rows.join) {
                to[i] = static_cast<T>(element(example, rows.at[row - chosen * rows.rows_each()], column));
                continue;
            }
            sum_type<T> sum{};
            for (index_t p = 0; p < rows.positions; ++p) sum += static_cast<sum_type<T>>(element(example, p, column));
            to[i] = static_cast<T>(sum * static_cast<sum_type<T>>(rows.scale));
        }
    }

    CAIRN_HD S element(index_t example, index_t position, index_t column) const {
        if (!rows.patches) return rows.x[(example * rows.positions + position) * rows.stride + column];
        const conv_geometry& g = rows.conv;
        const index_t channels = quotient(g.c_in, g.groups);
        index_t tap = quotient(column, channels), point = position, at = example;
        const index_t channel = column - tap * channels;
        const index_t tap_depth = quotient(tap, g.kernel[1] * g.kernel[2]);
        tap -= tap_depth * g.kernel[1] * g.kernel[2];
        const index_t taps[3] = {tap_depth, quotient(tap, g.kernel[2]), remainder(tap, g.kernel[2])};
        const index_t depth = quotient(point, g.out[1] * g.out[2]);
        point -= depth * g.out[1] * g.out[2];
        const index_t points[3] = {depth, quotient(point, g.out[2]), remainder(point, g.out[2])};
        for (std::size_t axis = 0; axis < 3; ++axis) {
            const index_t where = points[axis] * g.stride[axis] + taps[axis] * g.dilation[axis] - g.pad[axis];
            if (where < 0 || where >= g.in[axis]) return S{};
            at = at * g.in[axis] + where;
        }
        return rows.x[at * g.c_in + channel];
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

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t width = n - 1, stride = b.blocks() * b.threads();
        for (index_t c = b.block() * b.threads() + b.thread(); c < n; c += stride) {
            if (c == width) {
                sum[diagonal ? width : n * n - 1] += weight * count;
            } else if (!diagonal) {
                sum[c * n + width] += weight * columns[c];
                sum[width * n + c] += weight * columns[c];
            }
        }
    }
};

/// m[i (n + 1)] += value, of a matrix; or m[i] += value.
template <class T>
struct add_to_diagonal_kernel {
    index_t n, step;
    T value, *m;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) m[i * step] += value;
    }
};

/// The upper triangle of m (n, n), row after row, to or from n (n + 1) / 2 numbers; from there both triangles are
/// written.
template <class T, bool Pack>
struct triangle_kernel {
    index_t n;
    T *m, *packed;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t all = n * n, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < all; i += stride) {
            const index_t row = quotient(i, n), column = i - row * n;
            const index_t first = row < column ? row : column, second = row < column ? column : row;
            T& there = packed[first * n - quotient(first * (first - 1), 2) + second - first];
            if (!Pack)
                m[i] = there;
            else if (row <= column)
                there = m[i];
        }
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
    index_t entries, positions;
    strided_indices examples, at;
    const std::int32_t* ids;
    T* counts;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t entry = b.block() * b.threads() + b.thread(); entry < entries; entry += stride) {
            index_t found = 0;
            for (index_t e = 0; e < examples.count; ++e)
                for (index_t t = 0; t < at.count; ++t) found += ids[examples[e] * positions + at[t]] == entry;
            counts[entry] += static_cast<T>(found);
        }
    }
};

/// to = v ⊘ (s g aᵀ + γ), or v ∘ s g aᵀ, null being all ones; v (out, in), a (width) for each part of `in` alike.
template <class T>
struct scale_kronecker_kernel {
    index_t n, in, width;
    const T *v, *g, *a;
    T s, gamma;
    bool divide;
    T* to;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t o = quotient(i, in), c = remainder(i - o * in, width);
            const T scale = s * (g ? g[o] : T{1}) * (a ? a[c] : T{1});  // g and a are not both null where it divides
            to[i] = divide ? v[i] / (scale + gamma) : v[i] * scale;
        }
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
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = gradient.rows * gradient.in, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) to[i] = element_of(gradient, i);
    }
};

/// gradient = *factor · v.
template <class T>
struct put_direction_kernel {
    gradient_layout<T> gradient;
    const T *v, *factor;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const T scale = *factor;
        const index_t n = gradient.rows * gradient.in, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            element_of(gradient, i) = scale * v[i];
    }
};

/// partial[k, block] = this block's part of ⟨V, ∇W⟩, ‖V‖² and ‖∇W‖².
template <class T>
struct direction_products_kernel {
    gradient_layout<T> gradient;
    const T* v;
    double* partial;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = gradient.rows * gradient.in, stride = b.blocks() * b.threads();
        double vg = 0, vv = 0, gg = 0;
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const auto d = static_cast<double>(v[i]), e = static_cast<double>(element_of(gradient, i));
            vg += d * e, vv += d * d, gg += e * e;
        }
        double* const scratch = b.template shared<double>();
        vg = block_sum(b, vg, scratch), vv = block_sum(b, vv, scratch), gg = block_sum(b, gg, scratch);
        if (b.thread() != 0) return;
        partial[b.block()] = vg;
        partial[b.blocks() + b.block()] = vv;
        partial[2 * b.blocks() + b.block()] = gg;
    }
};

/// What the directions of `count` layers are multiplied by, from ⟨V, ∇W⟩, ‖V‖² and ‖∇W‖² of each.
template <class T>
struct direction_factors_kernel {
    index_t count;
    const double* products;
    double kl_clip, norm_limit, lr;
    bool graft;
    T* factors;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double decrease = 0, square = 0;
        for (index_t i = 0; i < count; ++i) decrease += products[3 * i], square += products[3 * i + 1];
        double scale = 1;
        if (kl_clip > 0 && lr > 0 && decrease > 0) {
            const double most = std::sqrt(kl_clip / (lr * lr * decrease));
            scale = most < scale ? most : scale;
        }
        if (norm_limit > 0 && lr > 0 && square > 0) {
            const double most = norm_limit / (lr * std::sqrt(square));
            scale = most < scale ? most : scale;
        }
        for (index_t i = b.thread(); i < count; i += b.threads()) {
            const double vv = products[3 * i + 1], gg = products[3 * i + 2];
            factors[i] = static_cast<T>(!graft ? scale : vv > 0 ? std::sqrt(gg / vv) : 1);
        }
    }
};

/// A grid for n elements.
template <GridDevice D>
grid_size cover(index_t n) {
    return {.blocks = blocks_for<D>(n, 256, 4), .threads = 256};
}

}  // namespace grid

/// to (count, width) = `count` of the chosen rows, from number `first` on.
template <class S, class T, GridDevice D>
void gather_rows(D, const strided_samples<S>& rows, index_t first, index_t count, T* to) {
    if (count * rows.width > 0)
        D::launch(grid::cover<D>(count * rows.width), grid::gather_rows_kernel<S, T>{rows, first, count, to});
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
    D::launch(grid::cover<D>(n),
              grid::add_border_kernel<T>{n, diagonal, weight, static_cast<T>(count), columns.data(), sum});
}

/// Adds `value` to n numbers that are `step` apart.
template <class T, GridDevice D>
void add_to_diagonal(D, index_t n, index_t step, T value, T* m) {
    if (n > 0) D::launch(grid::cover<D>(n), grid::add_to_diagonal_kernel<T>{n, step, value, m});
}

/// to (n (n + 1) / 2) = the upper triangle of m (n, n), row after row.
template <class T, GridDevice D>
void pack_triangle(D, index_t n, const T* m, T* to) {
    if (n > 0) D::launch(grid::cover<D>(n * n), grid::triangle_kernel<T, true>{n, const_cast<T*>(m), to});
}

/// m (n, n), symmetric, from its upper triangle as pack_triangle leaves it.
template <class T, GridDevice D>
void unpack_triangle(D, index_t n, const T* from, T* m) {
    if (n > 0) D::launch(grid::cover<D>(n * n), grid::triangle_kernel<T, false>{n, m, const_cast<T*>(from)});
}

/// Σ of n numbers that are `step` apart; waited for.
template <class T, GridDevice D>
double diagonal_sum(D, index_t n, index_t step, const T* m) {
    return grid::waited_for(D{}, [&](double* out) {
        D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
                  grid::diagonal_sum_kernel<T>{n, step, m, out});
    });
}

/// counts (entries) += how often each is among the chosen of ids (examples, positions).
template <class T, GridDevice D>
void count_lookups(D, const strided_indices& examples, const strided_indices& at, index_t positions,
                   const std::int32_t* ids, index_t entries, T* counts) {
    if (entries > 0)
        D::launch(grid::cover<D>(entries),
                  grid::count_lookups_kernel<T>{entries, positions, examples, at, ids, counts});
}

/// to = v ⊘ (s g aᵀ + γ) with `divide`, else v ∘ s g aᵀ; g and a may be null: ones. v (out, in), a (width) for each
/// part of `in` alike.
template <class T, GridDevice D>
void scale_kronecker(D, index_t out, index_t in, index_t width, const T* v, const T* g, const T* a, double s,
                     double gamma, bool divide, T* to) {
    if (out * in > 0)
        D::launch(grid::cover<D>(out * in),
                  grid::scale_kronecker_kernel<T>{out * in, in, width, v, g, a, static_cast<T>(s),
                                                  static_cast<T>(gamma), divide, to});
}

/// to (rows, in) = the gradient.
template <class T, GridDevice D>
void gather_gradient(D, const gradient_layout<T>& gradient, T* to) {
    D::launch(grid::cover<D>(gradient.rows * gradient.in), grid::gather_gradient_kernel<T>{gradient, to});
}

/// out[0 … 2] = ⟨V, ∇W⟩, ‖V‖², ‖∇W‖², in device memory.
template <class T, GridDevice D>
void direction_products(D, const gradient_layout<T>& gradient, const T* v, double* out) {
    const index_t blocks = grid::reduce_blocks_for(gradient.rows * gradient.in);
    tensor<double, D> partial({3, blocks}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::direction_products_kernel<T>{gradient, v, partial.data()});
    D::launch({.blocks = 3, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_partials{blocks, partial.data(), out});
}

/// factors (count): what clips the directions of all layers alike, or makes each as long as its gradient (graft).
/// products (count, 3) as direction_products leaves them; limits of 0 are off.
template <class T, GridDevice D>
void direction_factors(D, index_t count, const double* products, double kl_clip, double norm_limit, double lr,
                       bool graft, T* factors) {
    D::launch({.blocks = 1, .threads = 64},
              grid::direction_factors_kernel<T>{count, products, kl_clip, norm_limit, lr, graft, factors});
}

/// The gradient becomes *factor · v; factor in device memory.
template <class T, GridDevice D>
void put_direction(D, const gradient_layout<T>& gradient, const T* v, const T* factor) {
    D::launch(grid::cover<D>(gradient.rows * gradient.in), grid::put_direction_kernel<T>{gradient, v, factor});
}

}  // namespace cairn
