#pragma once
// Kernels of second-order preconditioning on the host besides products and decompositions: rows are gathered, diagonals
// and borders of factors changed, gradients scaled in eigenbases, and directions measured and put where gradients were.
// Names, arguments and meaning are those of device/grid/curvature.hpp. Results do not depend on the number of threads.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/deferred_tasks.hpp>
#include <cairn/device/cpu/im2col.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/symmetric.hpp>
#include <cairn/device/cpu/widened_rows.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/device/gradient_layout.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cairn {

/// Numbers that are gathered at a time, a few megabytes: products of so many rows are fast. Tests make it small.
inline index_t& numbers_gathered(cpu) {
    static index_t most = index_t{1} << 20;
    return most;
}

/// Rows as the products take them: floats. Holds their memory.
inline widened_rows readable_rows(cpu, const curvature_samples<bfloat16>& rows) { return widened_rows(rows); }

/// to (count, width) = `count` of the chosen rows, from number `first` on.
template <class T>
void gather_rows(cpu, const strided_samples<T>& rows, index_t first, index_t count, T* to) {
    const index_t width = rows.width, each = rows.rows_each();
    const double taken = static_cast<double>(count * width) * static_cast<double>(rows.join ? rows.positions : 1);
    const kernel_call call("gather rows", format_name<T>, rows.join ? taken : 0,
                           (taken + static_cast<double>(count * width)) * sizeof(T),
                           {count, width, each, rows.patches, rows.join});
    const auto copy = [&](index_t example, index_t position, index_t run, T* there) {
        const index_t row = example * rows.positions + position;
        if (rows.patches) return im2col::gather(rows.conv, rows.x, row, row + run, there);
        for (index_t i = 0; i < run; ++i) std::copy_n(rows.x + (row + i) * rows.stride, width, there + i * width);
    };
    if (!rows.join)
        return parallel_for(count, std::max<index_t>(1, 16384 / width), [&](index_t begin, index_t end) {
            for (index_t r = begin, run = 1; r < end; r += run) {
                const index_t chosen = (first + r) / each, i = (first + r) % each;
                if (rows.at.step == 1) run = std::min(end - r, each - i);
                copy(rows.examples[chosen], rows.at[i], run, to + r * width);
            }
        });
    parallel_for(count, 1, [&](index_t begin, index_t end) {
        const index_t most = std::clamp<index_t>(16384 / width, 1, rows.positions);
        std::vector<T> some(static_cast<std::size_t>(most * width));
        for (index_t r = begin; r < end; ++r) {
            T* const sum = to + r * width;
            std::fill_n(sum, width, T{});
            for (index_t p = 0; p < rows.positions; p += most) {
                const index_t here = std::min(most, rows.positions - p);
                copy(rows.examples[first + r], p, here, some.data());
                for (index_t i = 0; i < here; ++i)
                    for (index_t c = 0; c < width; ++c) sum[c] += some[static_cast<std::size_t>(i * width + c)];
            }
            for (index_t c = 0; c < width; ++c) sum[c] *= static_cast<T>(rows.scale);
        }
    });
}

/// diagonal (width) += weight · Σ rows², rows (count, stride ≥ width).
template <class T>
void add_column_squares(cpu, index_t count, index_t width, T weight, const T* rows, index_t stride, T* diagonal) {
    const double n = static_cast<double>(count) * static_cast<double>(width);
    const kernel_call call("column squares", format_name<T>, 3 * n, n * sizeof(T), {count, width});
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < count; ++r)
        for (index_t c = 0; c < width; ++c) diagonal[c] += weight * rows[r * stride + c] * rows[r * stride + c];
}

/// The last row and column of a sum of rows (count, stride ≥ n − 1) that end in a 1: of the matrix (n, n), or of its
/// diagonal (n).
template <class T>
void add_border(cpu d, index_t count, index_t n, T weight, const T* rows, index_t stride, bool diagonal, T* sum) {
    const index_t width = n - 1;
    const double all = diagonal ? 1 : static_cast<double>(count) * static_cast<double>(width);
    const kernel_call call("border", format_name<T>, all, all * sizeof(T), {count, n, diagonal});
    if (!on_phantom_rank()) sum[diagonal ? width : n * n - 1] += weight * static_cast<T>(count);
    if (diagonal) return;
    tensor<T> columns = tensor<T>::zeros({width}, memory_category::workspace);
    if (stride == width) {
        column_sums(d, count, width, rows, columns.data(), false);
    } else if (!on_phantom_rank()) {
        for (index_t r = 0; r < count; ++r)
            for (index_t c = 0; c < width; ++c) columns[c] += rows[r * stride + c];
    }
    for (index_t c = 0; c < width && !on_phantom_rank(); ++c) {
        sum[c * n + width] += weight * columns[c];
        sum[width * n + c] += weight * columns[c];
    }
}

/// Σ of n numbers that are `step` apart, into *out.
template <class T>
void diagonal_sum_into(cpu d, index_t n, index_t step, const T* m, double* out) {
    detail::put_result(out, diagonal_sum(d, n, step, m));
}

/// How many of n numbers are not finite, into *out.
template <class T>
void count_nonfinite_into(cpu d, index_t n, const T* x, double* out) {
    detail::put_result(out, static_cast<double>(count_nonfinite(d, n, x)));
}

/// counts (entries) += how often each is among the chosen of ids (examples, positions).
template <class T>
void count_lookups(cpu, const strided_indices& examples, const strided_indices& at, index_t positions,
                   const std::int32_t* ids, index_t /*entries*/, T* counts) {
    const double n = static_cast<double>(examples.count) * static_cast<double>(at.count);
    const kernel_call call("count lookups", format_name<T>, n, n * (sizeof(std::int32_t) + 2 * sizeof(T)),
                           {examples.count, at.count});
    if (on_phantom_rank()) return;
    for (index_t e = 0; e < examples.count; ++e)
        for (index_t t = 0; t < at.count; ++t) counts[ids[examples[e] * positions + at[t]]] += T{1};
}

/// to = v ⊘ (s g aᵀ + γ) with `divide`, else v ∘ s g aᵀ; g and a may be null: ones. v (out, in), a (width) for each
/// part of `in` alike.
template <class T>
void scale_kronecker(cpu, index_t out, index_t in, index_t width, const T* v, const T* g, const T* a, double s,
                     double gamma, bool divide, T* to) {
    const double n = static_cast<double>(out) * static_cast<double>(in);
    const kernel_call call("scale by factors", format_name<T>, (a ? 3 : 2) * n, 2 * n * sizeof(T),
                           {out, in, width, divide, a != nullptr});
    const T shift = static_cast<T>(gamma);
    parallel_for(out, std::max<index_t>(1, 16384 / in), [&](index_t first, index_t last) {
        for (index_t o = first; o < last; ++o) {
            const T scale = static_cast<T>(s) * (g ? g[o] : T{1});
            for (index_t part = o * in; part < (o + 1) * in; part += width) {
                if (divide)
                    for (index_t i = 0; i < width; ++i) to[part + i] = v[part + i] / (scale * a[i] + shift);
                else if (a)
                    for (index_t i = 0; i < width; ++i) to[part + i] = v[part + i] * (scale * a[i]);
                else
                    for (index_t i = 0; i < width; ++i) to[part + i] = v[part + i] * scale;
            }
        }
    });
}

namespace detail {

/// Numbers of a gradient at equal distances, and where the first one lies in the matrix, the next ones behind it.
template <class T>
struct gradient_run {
    index_t at;
    T* gradient;
    index_t step, count;
};

/// The announcement of a pass over a gradient, `flops` operations and `moved` numbers for each of its own.
template <class T>
kernel_call gradient_call(const char* kind, const gradient_layout<T>& g, double flops, double moved) {
    const double n = static_cast<double>(g.rows) * static_cast<double>(g.in);
    return kernel_call(kind, format_name<T>, flops * n, moved * n * sizeof(T), {g.rows, g.in, g.width, g.transposed});
}

template <class T>
index_t gradient_grain(const gradient_layout<T>& g) {
    return std::max<index_t>(1, 16384 / g.in);
}

/// f(run) over rows [first, last).
template <class T, class F>
void each_run(const gradient_layout<T>& g, index_t first, index_t last, F&& f) {
    using run = gradient_run<T>;
    if (!g.bias && !g.transposed) return f(run{first * g.in, g.weight + first * g.in, 1, (last - first) * g.in});
    const index_t behind = g.in - g.width;
    for (index_t r = first; r < last; ++r) {
        f(g.transposed ? run{r * g.in, g.weight + r, g.rows, g.width}
                       : run{r * g.in, g.weight + r * g.width, 1, g.width});
        if (g.bias) f(run{r * g.in + g.width, g.bias + r * behind, 1, behind});
    }
}
template <class T, class F>
void each_run(const gradient_layout<T>& g, F&& f) {
    parallel_for(g.rows, gradient_grain(g), [&](index_t first, index_t last) { each_run(g, first, last, f); });
}

}  // namespace detail

/// to (rows, in) = the gradient.
template <class T>
void gather_gradient(cpu, const gradient_layout<T>& gradient, T* to) {
    const kernel_call call = detail::gradient_call("gather gradient", gradient, 0, 2);
    detail::each_run(gradient, [to](const detail::gradient_run<T>& r) {
        for (index_t i = 0; i < r.count; ++i) to[r.at + i] = r.gradient[i * r.step];
    });
}

/// out[0 … 2] = ⟨V, ∇W⟩, ‖V‖² and the square of the length to have: ‖∇W‖², or `unit` the number of elements.
template <class T>
void direction_products(cpu, const gradient_layout<T>& gradient, const T* all, double* out, bool unit = false) {
    const kernel_call call = detail::gradient_call("products of a direction", gradient, 6, 2);
    const auto of_rows = [&](index_t first, index_t last) {
        sums_of<3> p;
        detail::each_run(gradient, first, last, [&p, all](const detail::gradient_run<T>& r) {
            const T *const v = all + r.at, *const g = r.gradient;
            double vg = 0, vv = 0, gg = 0;
#pragma omp simd reduction(+ : vg, vv, gg)
            for (index_t i = 0; i < r.count; ++i) {
                const double d = static_cast<double>(v[i]), e = static_cast<double>(g[i * r.step]);
                vg += d * e, vv += d * d, gg += e * e;
            }
            p += {{vg, vv, gg}};
        });
        return p;
    };
    const auto sums = parallel_sum<sums_of<3>>(gradient.rows, detail::gradient_grain(gradient), of_rows);
    for (int i = 0; i < 3; ++i) detail::put_result(out + i, sums.at[i]);
    if (unit) detail::put_result(out + 2, static_cast<double>(gradient.rows * gradient.in));
}

/// factors (count): what the directions of `count` layers are multiplied by. products (count, 3) as direction_products
/// leaves them; of_model: ⟨V, ∇W⟩ and ‖V‖² of the whole model, null where these layers are all of it. *shortened is
/// counted up where a limit holds; null: it is not counted.
template <class T>
void direction_factors(cpu, index_t count, const double* products, const double* of_model, const direction_limits& to,
                       T* factors, double* shortened = nullptr) {
    const double n = static_cast<double>(count);
    const kernel_call call("factors of directions", format_name<T>, 6 * n, n * (3 * sizeof(double) + sizeof(T)),
                           {count});
    if (on_phantom_rank()) return;
    const double scale = to.scale(count, products, of_model);
    if (shortened && to.length == direction_length::own && scale < 1) ++*shortened;
    for (index_t i = 0; i < count; ++i) factors[i] = static_cast<T>(to.factor(scale, products + 3 * i));
}

/// The gradient becomes *factor · v.
template <class T>
void put_direction(cpu, const gradient_layout<T>& gradient, const T* all, const T* factor) {
    const kernel_call call = detail::gradient_call("put direction", gradient, 1, 2);
    if (on_phantom_rank()) return;
    detail::each_run(gradient, [all, by = *factor](const detail::gradient_run<T>& r) {
        for (index_t k = 0; k < r.count; ++k) r.gradient[k * r.step] = by * all[r.at + k];
    });
}

}  // namespace cairn
