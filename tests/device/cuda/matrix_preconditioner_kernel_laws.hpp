#pragma once
// Laws of the passes of Muon, Shampoo and SOAP on every device: the results of plain loops.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/cpu/matrix_preconditioner_kernels.hpp>
#include <cairn/device/grid/matrix_preconditioner_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace cairn::matrix_direction_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::rounding;

inline const std::vector<std::pair<index_t, index_t>> sizes{{1, 1}, {1, 7}, {7, 1}, {5, 3}, {65, 130}, {300, 4}};

template <class D, class T>
void scaled_and_turned() {
    for (const auto& [rows, columns] : sizes)
        for (const bool turned : {false, true}) {
            CAPTURE(rows, columns, turned);
            const auto x = drawn<T>({rows * columns}, 500);
            tensor<T> scaled({rows, columns}), normal({rows, columns});
            double square = 0;
            for (index_t i = 0; i < x.size(); ++i) square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            for (index_t r = 0; r < rows; ++r)
                for (index_t c = 0; c < columns; ++c) {
                    const auto v = static_cast<double>(turned ? x[c * rows + r] : x[r * columns + c]);
                    scaled[r * columns + c] = static_cast<T>(-1.5 * v);
                    normal[r * columns + c] = static_cast<T>(v / (std::sqrt(square) + 1e-7));
                }
            const auto there = on_device<D>(x);
            tensor<T, D> got({rows, columns});
            scaled_matrix(D{}, rows, columns, turned, T(-1.5), there.data(), got.data());
            check_close(got.on_host(), scaled, rounding<T>);
            normalised_matrix(D{}, rows, columns, turned, there.data(), got.data());
            check_close(got.on_host(), normal, rounding<T>);
        }
    const auto zero = on_device<D>(tensor<T>::zeros({12}));
    tensor<T, D> got({3, 4});
    normalised_matrix(D{}, 3, 4, false, zero.data(), got.data());
    check_close(got.on_host(), tensor<T>::zeros({3, 4}), 0);
}

template <class D, class T>
void powers() {
    constexpr double tiny = std::numeric_limits<T>::epsilon();
    for (const index_t n : {1, 2, 65})
        for (const double epsilon : {0.0, 1e-3}) {
            CAPTURE(n, epsilon);
            tensor<T> values({n});
            for (index_t i = 0; i < n; ++i)
                values[i] = static_cast<T>(i + 1 == n ? 16 : i == 0 ? -1e-9 : 0.1 * double(i));
            const auto vectors = drawn<T>({n, n}, 501);
            tensor<T> expected({n, n});
            for (index_t r = 0; r < n; ++r)
                for (index_t c = 0; c < n; ++c)
                    expected[r * n + c] = static_cast<T>(
                        static_cast<double>(vectors[r * n + c]) /
                        std::sqrt(std::sqrt(std::max(static_cast<double>(values[c]) + 16 * epsilon, 16 * tiny))));
            const auto d_values = on_device<D>(values), d_vectors = on_device<D>(vectors);
            tensor<T, D> got({n, n});
            powered_columns(D{}, n, d_values.data(), d_vectors.data(), -0.25, epsilon, got.data());
            check_close(got.on_host(), expected, rounding<T>);
            const auto none = on_device<D>(tensor<T>::zeros({n}));
            powered_columns(D{}, n, none.data(), d_vectors.data(), -0.25, epsilon, got.data());
            check_close(got.on_host(), tensor<T>::zeros({n, n}), 0);
        }
}

/// Blocks of a larger matrix, of which nothing else is touched.
template <class D, class T>
void grafts() {
    for (const auto& [rows, columns] : sizes)
        for (const index_t gap : {0, 3}) {
            CAPTURE(rows, columns, gap);
            const index_t stride = columns + gap;
            const auto g = drawn<T>({rows * stride}, 502), v = drawn<T>({rows, columns}, 503);
            double gg = 0, vv = 0;
            for (index_t r = 0; r < rows; ++r)
                for (index_t c = 0; c < columns; ++c) {
                    const auto a = static_cast<double>(g[r * stride + c]), b = static_cast<double>(v[r * columns + c]);
                    gg += a * a, vv += b * b;
                }
            const auto expected = [&, rows = rows, columns = columns](double square) {
                auto all = g.clone();
                for (index_t r = 0; r < rows; ++r)
                    for (index_t c = 0; c < columns; ++c)
                        all[r * stride + c] =
                            static_cast<T>(std::sqrt(square / vv) * static_cast<double>(v[r * columns + c]));
                return all;
            };
            auto got = on_device<D>(g);
            const auto d_v = on_device<D>(v), zero = on_device<D>(tensor<T>::zeros({rows, columns}));
            graft_matrix(D{}, rows, columns, zero.data(), got.data(), stride);
            check_close(got.on_host(), g, 0);
            graft_matrix(D{}, rows, columns, d_v.data(), got.data(), stride);
            check_close(got.on_host(), expected(gg), rounding<T>);
            graft_matrix(D{}, rows, columns, d_v.data(), got.data(), stride, true);
            check_close(got.on_host(), expected(static_cast<double>(rows * columns)), rounding<T>);
        }
}

/// Equal values keep their order, what is not a number comes last; columns and rows go where the order says.
template <class D, class T>
void orders() {
    for (const index_t n : {1, 2, 65, 130}) {
        CAPTURE(n);
        const auto random = drawn<T>({n}, 504);
        tensor<T> q = tensor<T>::zeros({n, n}), product = tensor<T>::filled({n, n}, T(0.5));
        std::vector<double> values;
        for (index_t c = 0; c < n; ++c) {
            double v = std::round(2 * static_cast<double>(random[c])) / 4;  // many are equal
            q[(n - 1) * n + c] = static_cast<T>(2 * v);
            if (c == n / 2 && n > 2) q[(n - 1) * n + c] = std::numeric_limits<T>::quiet_NaN(), v = -1e30;
            values.push_back(v);
        }
        std::vector<std::int32_t> expected(static_cast<std::size_t>(n));
        std::iota(expected.begin(), expected.end(), 0);
        std::ranges::stable_sort(expected, [&](std::int32_t a, std::int32_t b) {
            return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
        });
        const auto d_q = on_device<D>(q), d_product = on_device<D>(product);
        tensor<std::int32_t, D> order({n});
        order_of_columns(D{}, n, d_q.data(), d_product.data(), order.data());
        const auto got = order.on_host();
        REQUIRE(std::equal(expected.begin(), expected.end(), got.data()));
        const index_t others = n + 3;
        const auto a = drawn<T>({n, others}, 505), b = drawn<T>({others, n}, 506);
        tensor<T> rows({n, others}), columns({others, n});
        for (index_t i = 0; i < n; ++i)
            for (index_t k = 0; k < others; ++k) {
                const index_t from = expected[static_cast<std::size_t>(i)];
                rows[i * others + k] = a[from * others + k];
                columns[k * n + i] = b[k * n + from];
            }
        const auto d_a = on_device<D>(a), d_b = on_device<D>(b);
        tensor<T, D> d_rows({n, others}), d_columns({others, n});
        reordered(D{}, n, others, true, order.data(), d_a.data(), d_rows.data());
        reordered(D{}, others, n, false, order.data(), d_b.data(), d_columns.data());
        check_close(d_rows.on_host(), rows, 0);
        check_close(d_columns.on_host(), columns, 0);
        const auto square = drawn<T>({n, n}, 507);
        tensor<T> reversed({n, n});
        for (index_t r = 0; r < n; ++r)
            for (index_t c = 0; c < n; ++c) reversed[r * n + c] = square[(r + 1) * n - 1 - c];
        const auto d_square = on_device<D>(square);
        tensor<T, D> d_reversed({n, n});
        reversed_columns(D{}, n, d_square.data(), d_reversed.data());
        check_close(d_reversed.on_host(), reversed, 0);
    }
}

template <Device D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"scaled and turned, float", scaled_and_turned<D, float>},
                                       {"scaled and turned, double", scaled_and_turned<D, double>},
                                       {"powers, float", powers<D, float>},
                                       {"powers, double", powers<D, double>},
                                       {"grafts, float", grafts<D, float>},
                                       {"grafts, double", grafts<D, double>},
                                       {"orders, float", orders<D, float>},
                                       {"orders, double", orders<D, double>}};
    return laws;
}

}  // namespace cairn::matrix_direction_laws
