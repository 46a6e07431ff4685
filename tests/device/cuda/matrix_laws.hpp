#pragma once
// Laws of the passes over matrices on every grid device (device/grid/matrices.hpp): the results of plain loops, and
// the host's words.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/grid/matrices.hpp>
#include <cairn/device/matrix_batches.hpp>

#include <string>

namespace cairn::matrix_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;

template <class D, class T>
void triangles() {
    for (const index_t n : {1, 2, 65, 130})
        for (const index_t gap : {0, 3}) {
            CAPTURE(n, gap);
            const index_t ld = n + gap;
            const auto m = drawn<T>({n * ld}, 400);
            auto expected = m.clone();
            for (index_t r = 0; r < n; ++r)
                for (index_t c = 0; c < r; ++c) expected[r * ld + c] = m[c * ld + r];
            auto got = on_device<D>(m);
            mirror_upper(D{}, n, got.data(), ld);
            check_close(on_host(got), expected, 0);
        }
}

template <class D, class T>
void transposes() {
    for (const index_t n : {1, 2, 65, 130}) {
        CAPTURE(n);
        const auto m = drawn<T>({n, n}, 401);
        tensor<T> expected({n, n});
        for (index_t r = 0; r < n; ++r)
            for (index_t c = 0; c < n; ++c) expected[r * n + c] = m[c * n + r];
        const auto d_m = on_device<D>(m);
        tensor<T, D> got({n, n});
        grid::transpose(D{}, n, d_m.data(), got.data());
        check_close(on_host(got), expected, 0);
    }
}

/// Matrices with gaps between their rows and between them; what lies in the gaps stays. With beta 0, not even a NaN is
/// read.
template <class D, class R>
void scaled() {
    using S = grid::sum_type<R>;
    for (const auto& [m, n, batch] : {std::array<index_t, 3>{1, 1, 1}, {5, 7, 1}, {3, 130, 4}, {65, 2, 2}})
        for (const S beta : {S(0), S(2), S(-0.5)}) {
            CAPTURE(m, n, batch, beta);
            const index_t ldc = n + 3, step = m * ldc + 5;
            tensor<R> c({batch * step});
            const auto values = drawn<float>({batch * step}, 402);
            for (index_t i = 0; i < c.size(); ++i) c[i] = static_cast<R>(values[i]);
            if (beta == S(0)) c[0] = static_cast<R>(std::numeric_limits<float>::quiet_NaN());
            auto expected = c.clone();
            for (index_t k = 0; k < batch; ++k)
                for (index_t r = 0; r < m; ++r)
                    for (index_t j = 0; j < n; ++j) {
                        R& v = expected[k * step + r * ldc + j];
                        v = beta == S(0) ? R{} : static_cast<R>(beta * static_cast<S>(v));
                    }
            auto got = on_device<D>(c);
            grid::scale_matrices(D{}, m, n, beta, got.data(), ldc, step, batch);
            const auto result = on_host(got);
            for (index_t i = 0; i < c.size(); ++i)
                REQUIRE(static_cast<double>(result[i]) == static_cast<double>(expected[i]));
        }
}

/// act(c + bias) against the same formula in double.
template <class D, class T>
void finished() {
    const auto of = [](activation act, double v) {
        if (act == activation::relu) return v <= 0 ? 0 : v;
        if (act == activation::gelu) return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
        if (act == activation::gelu_tanh)
            return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
        return v;
    };
    for (const auto& [rows, columns] : {std::pair<index_t, index_t>{1, 1}, {7, 5}, {3, 300}, {130, 65}})
        for (const activation act : {activation::none, activation::relu, activation::gelu, activation::gelu_tanh})
            for (const bool with_bias : {false, true}) {
                CAPTURE(rows, columns, name_of(act), with_bias);
                const index_t ldc = columns + 2;
                auto c = drawn<T>({rows * ldc}, 403);
                const auto bias = drawn<T>({columns}, 404), more = drawn<T>({rows * ldc}, 405);
                const bool with_sum = columns % 2 == 1 && with_bias;
                c[0] = std::numeric_limits<T>::quiet_NaN();
                auto expected = c.clone();
                for (index_t r = 0; r < rows; ++r)
                    for (index_t j = 0; j < columns; ++j)
                        expected[r * ldc + j] = static_cast<T>(of(act, static_cast<double>(c[r * ldc + j]) +
                                                                           (with_bias ? double(bias[j]) : 0) +
                                                                           (with_sum ? double(more[r * ldc + j]) : 0)));
                auto got = on_device<D>(c);
                const auto d_bias = on_device<D>(bias), d_more = on_device<D>(more);
                grid::finish_rows(D{}, rows, columns, with_bias ? d_bias.data() : nullptr,
                                  with_sum ? d_more.data() : nullptr, act, got.data(), ldc);
                check_close(on_host(got), expected, kernel_laws::rounding<T>);
            }
}

/// Sums in the type of the target: what bfloat16 cannot hold beside the sum is kept by float.
template <class D>
void added() {
    constexpr index_t n = 300;
    tensor<bfloat16> x({n});
    tensor<float> sum({n});
    for (index_t i = 0; i < n; ++i)
        x[i] = bfloat16(0.5f * static_cast<float>(i % 7)), sum[i] = 1000 + static_cast<float>(i);
    const auto d_x = on_device<D>(x);
    auto got = on_device<D>(sum);
    for_each(D{}, n, grid::add_rule<bfloat16, float>{}, got.data(), d_x.data());
    const auto result = on_host(got);
    for (index_t i = 0; i < n; ++i)
        REQUIRE(result[i] == 1000 + static_cast<float>(i) + 0.5f * static_cast<float>(i % 7));
}

/// The error for a non-finite element is the host's; `refuse` is handed the matrix.
template <class D, class T, class Refuse>
void broken_elements(Refuse refuse, const char* what) {
    using Catch::Contains;
    const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
    for (const T bad : {nan, inf, -inf})
        for (const auto& [r, c] : {std::pair<index_t, index_t>{0, 0}, {2, 0}, {1, 2}}) {
            auto m = tensor<T>::zeros({3, 3});
            for (index_t i = 0; i < 3; ++i) m(i, i) = 2;
            m(r, c) = bad;
            CHECK_THROWS_WITH(refuse(on_device<D>(m)),
                              Contains(concat(what, ": element (", r, ", ", c, ") of (3, 3) is")) &&
                                  Contains(bad == bad ? "inf" : "nan"));
        }
}

template <class D, class T>
void finite() {
    const auto refuse = [](const tensor<T, D>& m) { grid::require_finite(D{}, m, "matrix"); };
    broken_elements<D, T>(refuse, "matrix");
    CHECK_NOTHROW(refuse(on_device<D>(drawn<T>({65, 65}, 405))));
}

/// Decompositions of several matrices together are those of each, one after another; where one of them is not positive
/// definite, the others have their inverses.
template <class D, class T>
void batches() {
    for (const index_t n : {1, 2, 7, 33, 64})
        for (const index_t count : {1, 3, 8}) {
            CAPTURE(n, count);
            const double bound = 1e2 * kernel_laws::rounding<T>;
            const index_t bad = count > 1 ? count / 2 : -1;
            tensor<T> all({count, n, n}), one = tensor<T>::zeros({n, n}), product({n, n});
            for (index_t i = 0; i < n; ++i) one(i, i) = 1;
            for (index_t i = 0; i < count; ++i) {
                const auto rows = drawn<T>({2 * n, n}, static_cast<std::uint32_t>(410 + i));
                T* const a = all.data() + i * n * n;
                gemm(cpu{}, true, false, n, n, 2 * n, T(1) / T(n), rows.data(), n, rows.data(), n, T(0), a, n);
                mirror_upper(cpu{}, n, a, n);
                for (index_t k = 0; k < n; ++k) a[k * n + k] += T(0.1);
                if (i == bad) a[n * n - 1] = -1;
            }
            const matrix_batch<T, D> e = eigh_batched(D{}, on_device<D>(all)),
                                     inverse = inverse_of_positive_batched(D{}, on_device<D>(all));
            REQUIRE(std::ssize(e.made) == count);
            REQUIRE(std::ssize(inverse.made) == count);
            const tensor<T> vectors = on_host(e.matrices), values = on_host(e.values),
                            inverses = on_host(inverse.matrices);
            for (index_t i = 0; i < count; ++i) {
                const tensor<T> a = all.slice(i * n * n, {n, n}), v = vectors.slice(i * n * n, {n, n}),
                                w = values.slice(i * n, {n}), b = inverses.slice(i * n * n, {n, n});
                CHECK(e.made[static_cast<std::size_t>(i)]);
                check_close(w, on_host(eigh(D{}, on_device<D>(a)).values), bound);
                tensor<T> scaled = v.clone();  // V diag(w) Vᵀ = A
                for (index_t k = 0; k < n * n; ++k) scaled[k] *= w[k % n];
                gemm(cpu{}, false, true, n, n, n, T(1), scaled.data(), n, v.data(), n, T(0), product.data(), n);
                check_close(product, a, bound);
                gemm(cpu{}, true, false, n, n, n, T(1), v.data(), n, v.data(), n, T(0), product.data(), n);
                check_close(product, one, bound);
                CHECK(inverse.made[static_cast<std::size_t>(i)] == (i != bad));
                if (i == bad) continue;
                check_close(b, on_host(inverse_of_positive(D{}, on_device<D>(a))), 10 * bound);
                for (index_t r = 0; r < n; ++r)
                    for (index_t c = 0; c < r; ++c) REQUIRE(b(r, c) == b(c, r));
            }
        }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"triangles, float", triangles<D, float>},
                                       {"triangles, double", triangles<D, double>},
                                       {"transposes", transposes<D, double>},
                                       {"scaled, float", scaled<D, float>},
                                       {"scaled, double", scaled<D, double>},
                                       {"scaled, bfloat16", scaled<D, bfloat16>},
                                       {"finished, float", finished<D, float>},
                                       {"finished, double", finished<D, double>},
                                       {"added", added<D>},
                                       {"finite, float", finite<D, float>},
                                       {"finite, double", finite<D, double>}};
    return laws;
}

}  // namespace cairn::matrix_laws
