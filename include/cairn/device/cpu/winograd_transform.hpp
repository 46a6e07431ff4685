#pragma once
// The transforms of Winograd's minimal filtering, F(m x m, 3 x 3) for m = 2 and 4.
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.
//
//   forward          Y  = A^T [ (G g G^T) . (B^T d B) ] A         d (m+2 x m+2), g (3 x 3), Y (m x m), "." elementwise
//   weight gradient  dg = G^T [ (A dY A^T) . (B^T d B) ] G        the transpose of the forward map in g
//
// The matrices follow Toom and Cook: with M(x) = x (x^2 - a^2) (x^2 - b^2) (for m = 2: x (x^2 - 1)) and the points
// p = 0, a, -a, b, -b, infinity, row i of A holds the powers p_i^0 .. p_i^(m-1), row i of G the powers p_i^0 .. p_i^2
// over prod_{j != i} (p_i - p_j), and row i of B^T the coefficients of M(x) / (x - p_i); the point at infinity takes
// the leading power only. Even and odd powers are shared between +p and -p, so a 6-point transform is 12 fused
// operations.
//
// Error: rounding errors of the products pass through A^T, those of the operands through G and B^T as well. With
// absolute values, max_i sum_p |A_pi| |G_p|_1 |B_p|_1, squared for two axes, is at most 564 for our points a = 5/8, b =
// 3/2 (2304 for the textbook's 1 and 2; 9, the number of terms, for direct convolution). Random errors measured: half
// the textbook's. The test derives its bounds from these constants.

#include <cairn/device/cpu/winograd_simd.hpp>

namespace cairn::winograd {

/// Points of F(4, 3): 0, +-a, +-b, infinity. Any distinct values are right in real arithmetic; these, of a dozen tried,
/// had the smallest root mean square error. They and their powers are exact in binary.
template <class T>
struct points {
    static constexpr T a = T(0.625), b = T(1.5);
    static constexpr T a2 = a * a, b2 = b * b, a3 = a2 * a, b3 = b2 * b;
    // 1 / prod (p_i - p_j) for the points 0, +-a, +-b
    static constexpr T g0 = T(1) / (a2 * b2), ga = T(1) / (T(2) * a2 * (a2 - b2)), gb = T(1) / (T(2) * b2 * (b2 - a2));
};

/// v = B^T d: m + 2 points of input.
template <int M, class T>
CAIRN_INLINE void transform_data(const vec<T> (&d)[M + 2], vec<T> (&v)[M + 2]) {
    if constexpr (M == 2) {
        v[0] = d[2] - d[0];
        v[1] = d[2] + d[1];
        v[2] = d[2] - d[1];
        v[3] = d[3] - d[1];
    } else {
        using p = points<T>;
        const vec<T> even_a = d[4] - p::b2 * d[2], odd_a = d[3] - p::b2 * d[1];
        const vec<T> even_b = d[4] - p::a2 * d[2], odd_b = d[3] - p::a2 * d[1];
        v[0] = p::a2 * p::b2 * d[0] + (d[4] - (p::a2 + p::b2) * d[2]);
        v[1] = even_a + p::a * odd_a;
        v[2] = even_a - p::a * odd_a;
        v[3] = even_b + p::b * odd_b;
        v[4] = even_b - p::b * odd_b;
        v[5] = p::a2 * p::b2 * d[1] + (d[5] - (p::a2 + p::b2) * d[3]);
    }
}

/// u = G g: 3 points of a filter.
template <int M, class T>
CAIRN_INLINE void transform_filter(const vec<T> (&g)[3], vec<T> (&u)[M + 2]) {
    if constexpr (M == 2) {
        const vec<T> even = T(0.5) * (g[0] + g[2]), odd = T(0.5) * g[1];
        u[0] = -g[0];
        u[1] = even + odd;
        u[2] = even - odd;
        u[3] = g[2];
    } else {
        using p = points<T>;
        const vec<T> even_a = p::ga * g[0] + (p::ga * p::a2) * g[2], odd_a = (p::ga * p::a) * g[1];
        const vec<T> even_b = p::gb * g[0] + (p::gb * p::b2) * g[2], odd_b = (p::gb * p::b) * g[1];
        u[0] = p::g0 * g[0];
        u[1] = even_a + odd_a;
        u[2] = even_a - odd_a;
        u[3] = even_b + odd_b;
        u[4] = even_b - odd_b;
        u[5] = g[2];
    }
}

/// g = G^T u, the transpose of transform_filter.
template <int M, class T>
CAIRN_INLINE void collect_filter(const vec<T> (&u)[M + 2], vec<T> (&g)[3]) {
    if constexpr (M == 2) {
        const vec<T> even = T(0.5) * (u[1] + u[2]);
        g[0] = even - u[0];
        g[1] = T(0.5) * (u[1] - u[2]);
        g[2] = even + u[3];
    } else {
        using p = points<T>;
        const vec<T> even_a = p::ga * (u[1] + u[2]), odd_a = (p::ga * p::a) * (u[1] - u[2]);
        const vec<T> even_b = p::gb * (u[3] + u[4]), odd_b = (p::gb * p::b) * (u[3] - u[4]);
        g[0] = p::g0 * u[0] + (even_a + even_b);
        g[1] = odd_a + odd_b;
        g[2] = p::a2 * even_a + (p::b2 * even_b + u[5]);
    }
}

/// y = A^T u: m points of output.
template <int M, class T>
CAIRN_INLINE void collect_output(const vec<T> (&u)[M + 2], vec<T> (&y)[M]) {
    if constexpr (M == 2) {
        y[0] = u[0] + (u[1] + u[2]);
        y[1] = (u[1] - u[2]) + u[3];
    } else {
        using p = points<T>;
        const vec<T> even_a = u[1] + u[2], odd_a = u[1] - u[2], even_b = u[3] + u[4], odd_b = u[3] - u[4];
        y[0] = u[0] + (even_a + even_b);
        y[1] = p::a * odd_a + p::b * odd_b;
        y[2] = p::a2 * even_a + p::b2 * even_b;
        y[3] = p::a3 * odd_a + (p::b3 * odd_b + u[5]);
    }
}

/// u = A y, the transpose of collect_output.
template <int M, class T>
CAIRN_INLINE void transform_output_gradient(const vec<T> (&y)[M], vec<T> (&u)[M + 2]) {
    if constexpr (M == 2) {
        u[0] = y[0];
        u[1] = y[0] + y[1];
        u[2] = y[0] - y[1];
        u[3] = y[1];
    } else {
        using p = points<T>;
        const vec<T> even_a = y[0] + p::a2 * y[2], odd_a = p::a * y[1] + p::a3 * y[3];
        const vec<T> even_b = y[0] + p::b2 * y[2], odd_b = p::b * y[1] + p::b3 * y[3];
        u[0] = y[0];
        u[1] = even_a + odd_a;
        u[2] = even_a - odd_a;
        u[3] = even_b + odd_b;
        u[4] = even_b - odd_b;
        u[5] = y[3];
    }
}

/// Applies a 1-D transform of In points to Out points along both axes: out = F in F^T.
/// `read(i, j)` gives the vector at row i, column j; `write(i, j, v)` takes the results.
template <int In, int Out, class T, class Transform, class Read, class Write>
CAIRN_INLINE void both_axes(Transform transform, Read read, Write write) {
    vec<T> half[Out][In];
    // Outer loops stay loops: unrolled, they need more pointers and vectors than there are registers.
#pragma GCC unroll 1
    for (int j = 0; j < In; ++j) {
        vec<T> column[In], result[Out];
        for (int i = 0; i < In; ++i) column[i] = read(i, j);
        transform(column, result);
        for (int i = 0; i < Out; ++i) half[i][j] = result[i];
    }
#pragma GCC unroll 1
    for (int i = 0; i < Out; ++i) {
        vec<T> row[In], result[Out];
        for (int j = 0; j < In; ++j) row[j] = half[i][j];
        transform(row, result);
        for (int j = 0; j < Out; ++j) write(i, j, result[j]);
    }
}

}  // namespace cairn::winograd
