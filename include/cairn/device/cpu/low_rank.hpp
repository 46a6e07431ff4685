#pragma once
// PowerSGD's products on the host (device/low_rank.hpp). Factors are kept transposed, P (r, rows) and Q (r, cols), so
// that every inner loop runs along memory. All matrices of a bucket are worked on in one parallel pass, cut into pieces
// of equal work: which is what batching those of the same shape is for elsewhere. Memory traffic: each product reads M
// once for r ≤ 4.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/low_rank.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// Calls body(matrix, begin, end) for pieces of its rows (or its columns, in panels) of about equal work.
template <class Body>
void for_each_row_block(const low_rank_plan& plan, Body&& body) {
    struct piece {
        const low_rank_matrix* m;
        index_t begin, end;
    };
    std::vector<piece> pieces;
    for (const low_rank_matrix& m : plan.matrices) {
        const index_t step = std::max<index_t>(1, compress_grain / m.cols);
        for (index_t i = 0; i < m.rows; i += step) pieces.push_back({&m, i, std::min(m.rows, i + step)});
    }
    parallel_for(static_cast<index_t>(pieces.size()), 1, [&](index_t begin, index_t end) {
        for (index_t k = begin; k < end; ++k) {
            const piece& w = pieces[static_cast<std::size_t>(k)];
            body(*w.m, w.begin, w.end);
        }
    });
}

/// out[c · stride] = ⟨row, factor_c⟩ for R factors, reading the row once.
template <int R>
void dots(index_t n, const float* row, const float* factors, float* out, index_t stride) {
    const float *f0 = factors, *f1 = factors + (R > 1 ? n : 0), *f2 = factors + (R > 2 ? 2 * n : 0),
                *f3 = factors + (R > 3 ? 3 * n : 0);
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (index_t j = 0; j < n; ++j) {
        const float m = row[j];
        s0 += m * f0[j];
        if constexpr (R > 1) s1 += m * f1[j];
        if constexpr (R > 2) s2 += m * f2[j];
        if constexpr (R > 3) s3 += m * f3[j];
    }
    out[0] = s0;
    if constexpr (R > 1) out[stride] = s1;
    if constexpr (R > 2) out[2 * stride] = s2;
    if constexpr (R > 3) out[3 * stride] = s3;
}

/// y[j] (+)= Σ_k a[k · stride] x_k[j] for K rows x_k of length `ld` apart.
template <int K>
void combine_rows(bool add, index_t n, const float* a, index_t stride, const float* x, index_t ld, float* y) {
    const float a0 = a[0], a1 = K > 1 ? a[stride] : 0, a2 = K > 2 ? a[2 * stride] : 0, a3 = K > 3 ? a[3 * stride] : 0;
    const float *x0 = x, *x1 = x + (K > 1 ? ld : 0), *x2 = x + (K > 2 ? 2 * ld : 0), *x3 = x + (K > 3 ? 3 * ld : 0);
#pragma omp simd
    for (index_t j = 0; j < n; ++j) {
        float s = add ? y[j] : 0.0f;
        s += a0 * x0[j];
        if constexpr (K > 1) s += a1 * x1[j];
        if constexpr (K > 2) s += a2 * x2[j];
        if constexpr (K > 3) s += a3 * x3[j];
        y[j] = s;
    }
}

/// y = Σ_k a[k · stride] x_k over `count` rows, four at a time. y is overwritten.
inline void combine_all_rows(index_t count, index_t n, const float* a, index_t stride, const float* x, index_t ld,
                             float* y) {
    index_t k = 0;
    for (; k + 4 <= count; k += 4) combine_rows<4>(k > 0, n, a + k * stride, stride, x + k * ld, ld, y);
    for (; k < count; ++k) combine_rows<1>(k > 0, n, a + k * stride, stride, x + k * ld, ld, y);
}

}  // namespace detail

template <>
class low_rank_tables<cpu> {
public:
    explicit low_rank_tables(low_rank_plan of) : plan(std::move(of)) {
        for (const low_rank_matrix& m : plan.matrices) {
            products += static_cast<double>(m.rows * m.cols * m.rank);
            bytes += 4.0 * static_cast<double>(m.rows * m.cols);
        }
    }

    low_rank_plan plan;
    double products = 0, bytes = 0;  // of all matrices
};

namespace detail {

/// The announcement of a pass over all matrices.
inline kernel_call matrices_call(const char* kind, const low_rank_tables<cpu>& t, double passes) {
    const low_rank_plan& p = t.plan;
    return kernel_call(kind, "f32", 2 * t.products, passes * t.bytes,
                       {p.n, p.p_size, p.q_size, static_cast<index_t>(p.matrices.size())});
}

/// The announcement of a pass over the factors of one side, or over the dense values, with `flops` for each number.
inline kernel_call numbers_call(const char* kind, index_t numbers, double flops) {
    const double n = static_cast<double>(numbers);
    return kernel_call(kind, "f32", flops * n, 8 * n, {numbers});
}
inline index_t numbers_of(const low_rank_plan& p, factor_side side) {
    return side == factor_side::p ? p.p_size : p.q_size;
}

}  // namespace detail

inline bool add_residual(cpu, index_t n, const float* g, const float* e, float* x) {
    const kernel_call call("add residual", "f32", static_cast<double>(n), 12.0 * static_cast<double>(n), {n});
    return parallel_sum<index_t>(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
               for (index_t i = begin; i < end; ++i) x[i] = g[i] + e[i];
               return detail::count_nonfinite(end - begin, x + begin);
           }) == 0;
}
inline void gather_dense(cpu, const low_rank_tables<cpu>& t, const float* x, float* dense) {
    const kernel_call call = detail::numbers_call("gather dense", t.plan.dense_size, 0);
    if (on_phantom_rank()) return;
    for (const dense_run& d : t.plan.dense) std::copy_n(x + d.offset, d.count, dense + d.at);
}
inline void scatter_dense(cpu, const low_rank_tables<cpu>& t, const float* dense, int ranks, float* x) {
    const kernel_call call = detail::numbers_call("scatter dense", t.plan.dense_size, 2);
    if (on_phantom_rank()) return;
    const auto r = static_cast<float>(ranks);
    const float scale = 1.0f / r;
    for (const dense_run& d : t.plan.dense)
        for (index_t i = 0; i < d.count; ++i) x[d.offset + i] = dense[d.at + i] * scale * r;
}

inline void project(cpu, const low_rank_tables<cpu>& t, const float* values, const float* all_q, float* all_p) {
    const kernel_call call = detail::matrices_call("low-rank project", t, 1);
    if (on_phantom_rank()) return;
    detail::for_each_row_block(t.plan, [=](const low_rank_matrix& m, index_t begin, index_t end) {
        const float* const q = all_q + m.q;
        for (index_t i = begin; i < end; ++i) {
            const float* const row = values + m.offset + i * m.cols;
            float* const p = all_p + m.p + i;
            index_t c = 0;
            for (; c + 4 <= m.rank; c += 4) detail::dots<4>(m.cols, row, q + c * m.cols, p + c * m.rows, m.rows);
            for (; c + 2 <= m.rank; c += 2) detail::dots<2>(m.cols, row, q + c * m.cols, p + c * m.rows, m.rows);
            for (; c < m.rank; ++c) detail::dots<1>(m.cols, row, q + c * m.cols, p + c * m.rows, m.rows);
        }
    });
}

/// A thread owns a panel of columns and walks down the rows.
inline void back_project(cpu, const low_rank_tables<cpu>& t, const float* values, const float* all_p, float* all_q) {
    const kernel_call call = detail::matrices_call("low-rank back-project", t, 1);
    if (on_phantom_rank()) return;
    struct panel {
        const low_rank_matrix* m;
        index_t begin, count;
    };
    constexpr index_t width = 1024;
    std::vector<panel> panels;
    for (const low_rank_matrix& m : t.plan.matrices)
        for (index_t j = 0; j < m.cols; j += width) panels.push_back({&m, j, std::min(width, m.cols - j)});
    parallel_for(static_cast<index_t>(panels.size()), 1, [&](index_t begin, index_t end) {
        for (index_t k = begin; k < end; ++k) {
            const auto [m, j, count] = panels[static_cast<std::size_t>(k)];
            for (index_t i = 0; i < m->rows; i += 4) {  // four rows stay in the first cache for all c
                const index_t rows = std::min<index_t>(4, m->rows - i);
                const float* const x = values + m->offset + i * m->cols + j;
                for (index_t c = 0; c < m->rank; ++c) {
                    const float* const p = all_p + m->p + c * m->rows + i;
                    float* const q = all_q + m->q + c * m->cols + j;
                    if (rows == 4)
                        detail::combine_rows<4>(i > 0, count, p, 1, x, m->cols, q);
                    else
                        for (index_t r = 0; r < rows; ++r)
                            detail::combine_rows<1>(i + r > 0, count, p + r, 1, x + r * m->cols, m->cols, q);
                }
            }
        }
    });
}

inline void reconstruct(cpu, const low_rank_tables<cpu>& t, const float* all_p, const float* all_q, int ranks,
                        float* values, float* residual) {
    const kernel_call call = detail::matrices_call("low-rank reconstruct", t, 3);
    if (on_phantom_rank()) return;
    const auto r = static_cast<float>(ranks);
    const float scale = 1.0f / r;
    detail::for_each_row_block(t.plan, [=](const low_rank_matrix& m, index_t begin, index_t end) {
        std::vector<float> estimate(static_cast<std::size_t>(m.cols));
        float* const y = estimate.data();
        for (index_t i = begin; i < end; ++i) {
            detail::combine_all_rows(m.rank, m.cols, all_p + m.p + i, m.rows, all_q + m.q, m.cols, y);
            float *const row = values + m.offset + i * m.cols, *const e = residual + m.offset + i * m.cols;
#pragma omp simd
            for (index_t j = 0; j < m.cols; ++j) {
                const float estimated = scale * y[j];
                e[j] = row[j] - estimated;
                row[j] = estimated * r;
            }
        }
    });
}

/// Makes `rank` rows of `length` values orthonormal, in double: Gram–Schmidt, each row orthogonalised twice ("twice is
/// enough": Giraud et al. 2005). A row that depends on those before it, or is zero, becomes zero.
inline void orthonormalise(index_t rank, index_t length, float* rows) {
    const auto n = static_cast<std::size_t>(length);
    std::vector<double> all(static_cast<std::size_t>(rank) * n);
    std::copy(rows, rows + rank * length, all.begin());
    const auto dot = [n](const double* a, const double* b) {
        double s = 0;
#pragma omp simd reduction(+ : s)
        for (std::size_t i = 0; i < n; ++i) s += a[i] * b[i];
        return s;
    };
    for (index_t c = 0; c < rank; ++c) {
        double* const v = all.data() + static_cast<std::size_t>(c) * n;
        const double before = std::sqrt(dot(v, v));
        for (int twice = 0; twice < 2; ++twice)
            for (index_t d = 0; d < c; ++d) {
                const double* const w = all.data() + static_cast<std::size_t>(d) * n;
                const double along = dot(v, w);
#pragma omp simd
                for (std::size_t i = 0; i < n; ++i) v[i] -= along * w[i];
            }
        const double after = std::sqrt(dot(v, v));
        const double factor = after > 1e-6 * before ? 1 / after : 0;
        for (std::size_t i = 0; i < n; ++i) v[i] *= factor;
    }
    for (std::size_t i = 0; i < all.size(); ++i) rows[i] = static_cast<float>(all[i]);
}

/// Number i of `random` belongs to element i, so that ranks which share `random` draw the same.
inline void draw_zero_rows(index_t rank, index_t length, float* rows, const random_stream& random, index_t first) {
    for (index_t c = 0; c < rank; ++c) {
        float* const row = rows + c * length;
        if (std::any_of(row, row + length, [](float v) { return v != 0; })) continue;
        for (index_t i = 0; i < length; ++i)
            row[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(first + c * length + i)));
    }
}

namespace detail {

/// f(matrix), each a unit of work.
template <class F>
void for_each_matrix(const low_rank_tables<cpu>& t, F f) {
    parallel_for(static_cast<index_t>(t.plan.matrices.size()), 1, [&](index_t begin, index_t end) {
        for (index_t k = begin; k < end; ++k) f(t.plan.matrices[static_cast<std::size_t>(k)]);
    });
}

}  // namespace detail

inline void orthonormalise(cpu, const low_rank_tables<cpu>& t, factor_side side, float* factors) {
    double flops = 0;  // two rounds, in each a product and a difference for a pair of rows
    for (const low_rank_matrix& m : t.plan.matrices)
        flops += 4.0 * static_cast<double>(m.rank * m.rank) * static_cast<double>(length_of(m, side));
    const index_t numbers = detail::numbers_of(t.plan, side);
    const kernel_call call("orthonormalise", "f32", flops, 8.0 * static_cast<double>(numbers),
                           {numbers, static_cast<index_t>(t.plan.matrices.size())});
    detail::for_each_matrix(
        t, [=](const low_rank_matrix& m) { orthonormalise(m.rank, length_of(m, side), factors + begin_of(m, side)); });
}
inline void draw_zero_rows(cpu, const low_rank_tables<cpu>& t, factor_side side, const random_stream& random,
                           float* factors) {
    const kernel_call call = detail::numbers_call("draw zero rows", detail::numbers_of(t.plan, side), 1);
    detail::for_each_matrix(t, [=](const low_rank_matrix& m) {
        const index_t first = begin_of(m, side);
        draw_zero_rows(m.rank, length_of(m, side), factors + first, random, first);
    });
}

}  // namespace cairn
