#pragma once
// Laws of the kernels of second-order preconditioning on every grid device: the results of plain loops.

#include "device/cuda/law_numbers.hpp"

#include <cairn/device/cpu/curvature.hpp>
#include <cairn/device/grid/curvature.hpp>

#include <vector>

namespace cairn::curvature_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;

/// Rows from the middle of the chosen ones, of a matrix and of patches, joined and not.
template <class D, class T>
void gathered_rows() {
    const auto x = drawn<T>({6 * 4 * 10}, 300);  // 6 examples, 4 positions, rows of 7 that are 10 apart
    const auto d_x = on_device<D>(x);
    const strided_indices examples{.first = 1, .step = 2, .count = 3}, at{.first = 1, .step = 3, .count = 2};
    strided_samples<T> rows{.x = d_x.data(), .width = 7, .stride = 10, .positions = 4, .examples = examples, .at = at};
    tensor<T> expected({4, 7});
    for (index_t r = 0; r < 4; ++r)
        for (index_t c = 0; c < 7; ++c) {
            const index_t row = r + 1, example = 1 + 2 * (row / 2), position = 1 + 3 * (row % 2);
            expected[r * 7 + c] = x[(example * 4 + position) * 10 + c];
        }
    tensor<T, D> got({4, 7});
    gather_rows(D{}, rows, 1, 4, got.data());
    check_close(on_host(got), expected, 0);
    rows.join = true, rows.scale = 0.5;
    tensor<T, D> sums({2, 7});
    gather_rows(D{}, rows, 1, 2, sums.data());
    tensor<T> joined({2, 7});
    for (index_t r = 0; r < 2; ++r)
        for (index_t c = 0; c < 7; ++c) {
            double sum = 0;
            for (index_t p = 0; p < 4; ++p) sum += static_cast<double>(x[((3 + 2 * r) * 4 + p) * 10 + c]);
            joined[r * 7 + c] = static_cast<T>(0.5 * sum);
        }
    check_close(on_host(sums), joined, 1e-6);

    for (const index_t channels : {4, 16}) {  // one by one, and eight at a time
        const conv_geometry g = conv_geometry{.n = 2,
                                              .in = {3, 5, 6},
                                              .c_in = channels,
                                              .c_out = 2,
                                              .kernel = {2, 3, 2},
                                              .stride = {1, 2, 1},
                                              .pad = {0, 1, 1},
                                              .dilation = {1, 1, 2},
                                              .groups = 2}
                                    .with_output();
        const index_t width = g.kernel_points() * channels / 2, points = g.out_points();
        const auto image = drawn<T>({g.x_elements()}, 301);
        const auto d_image = on_device<D>(image);
        tensor<T> patches({2 * points, width});
        im2col::gather(g, image.data() + channels / 2, 0, 2 * points, patches.data());  // of the second group
        const strided_samples<T> all{.x = d_image.data() + channels / 2,
                                     .width = width,
                                     .patches = true,
                                     .conv = g,
                                     .positions = points,
                                     .examples = {.count = 2},
                                     .at = {.count = points}};
        tensor<T, D> d_patches({2 * points, width});
        gather_rows(D{}, all, 0, 2 * points, d_patches.data());
        check_close(on_host(d_patches), patches, 0);
    }
}

/// Borders and diagonals of sums of rows (5, 3) that are 4 apart.
template <class D, class T>
void borders() {
    constexpr index_t count = 5, width = 3, stride = 4, n = width + 1;
    const auto rows = drawn<T>({count * stride}, 302);
    const auto d_rows = on_device<D>(rows);
    auto sum = drawn<T>({n, n}, 303), diagonal = drawn<T>({n}, 304);
    auto d_sum = on_device<D>(sum), d_diagonal = on_device<D>(diagonal);
    add_border(D{}, count, n, T(0.5), d_rows.data(), stride, false, d_sum.data());
    add_border(D{}, count, n, T(0.5), d_rows.data(), stride, true, d_diagonal.data());
    add_column_squares(D{}, count, width, T(2), d_rows.data(), stride, d_diagonal.data());
    for (index_t r = 0; r < count; ++r)
        for (index_t c = 0; c < width; ++c) {
            const T v = rows[r * stride + c];
            sum[c * n + width] += T(0.5) * v, sum[width * n + c] += T(0.5) * v;
            diagonal[c] += 2 * v * v;
        }
    sum[n * n - 1] += T(0.5) * count, diagonal[width] += T(0.5) * count;
    check_close(on_host(d_sum), sum, 1e-5);
    check_close(on_host(d_diagonal), diagonal, 1e-5);
    add_to_diagonal(D{}, n, n + 1, T(3), d_sum.data());
    double trace = 0;
    for (index_t i = 0; i < n; ++i) trace += static_cast<double>(sum[i * (n + 1)] += T(3));
    check_close(on_host(d_sum), sum, 1e-5);
    tensor<double, D> d_trace({1});
    diagonal_sum_into(D{}, n, n + 1, d_sum.data(), d_trace.data());
    CHECK(std::abs(on_host(d_trace)[0] - trace) < 1e-4);
    tensor<std::int32_t> ids({3, 4});
    for (index_t i = 0; i < 12; ++i) ids[i] = static_cast<std::int32_t>(i * i % 5);
    tensor<T> counts({5});
    for (index_t i = 0; i < 5; ++i) counts[i] = static_cast<T>(i) + T(0.5);  // sums are exact, in whatever order
    auto d_counts = on_device<D>(counts);
    const auto d_ids = on_device<D>(ids);
    const strided_indices examples{.first = 0, .step = 2, .count = 2}, at{.first = 1, .step = 2, .count = 2};
    count_lookups(D{}, examples, at, 4, d_ids.data(), 5, d_counts.data());
    for (const index_t e : {0, 2})
        for (const index_t t : {1, 3}) counts[ids[e * 4 + t]] += T(1);
    check_close(on_host(d_counts), counts, 0);
}

/// Gradients (3, 5) whose last column is a bias's, or which are stored transposed: gathered, scaled, measured, put
/// back.
template <class D, class T>
void directions() {
    constexpr index_t out = 3, in = 5;
    for (const bool transposed : {false, true}) {
        CAPTURE(transposed);
        const index_t width = transposed ? in : in - 1;
        const auto weight = drawn<T>({out * width}, 306), bias = drawn<T>({out}, 307), v = drawn<T>({out, in}, 308),
                   g = drawn<T>({out}, 309), a = drawn<T>({in}, 310);
        auto d_weight = on_device<D>(weight), d_bias = on_device<D>(bias);
        const auto d_v = on_device<D>(v), d_g = on_device<D>(g), d_a = on_device<D>(a);
        const gradient_layout<T> layout{.weight = d_weight.data(),
                                        .bias = transposed ? nullptr : d_bias.data(),
                                        .in = in,
                                        .width = width,
                                        .rows = out,
                                        .transposed = transposed};
        tensor<T> expected({out, in});
        double vg = 0, vv = 0, gg = 0;
        for (index_t r = 0; r < out; ++r)
            for (index_t c = 0; c < in; ++c) {
                const T e = transposed ? weight[c * out + r] : c == width ? bias[r] : weight[r * width + c];
                expected[r * in + c] = e;
                const double x = static_cast<double>(e), y = static_cast<double>(v[r * in + c]);
                vg += y * x, vv += y * y, gg += x * x;
            }
        tensor<T, D> got({out, in});
        gather_gradient(D{}, layout, got.data());
        check_close(on_host(got), expected, 0);
        tensor<double, D> products({2, 3});
        direction_products(D{}, layout, d_v.data(), products.data());
        direction_products(D{}, layout, d_v.data(), products.data() + 3);
        const auto sums = on_host(products);
        for (const index_t k : {0, 3}) {
            CHECK(std::abs(sums[k] - vg) < 1e-9);
            CHECK(std::abs(sums[k + 1] - vv) < 1e-9);
            CHECK(std::abs(sums[k + 2] - gg) < 1e-9);
        }
        tensor<T, D> factors({2});
        const auto factor = [&](double kl_clip, double limit, double lr, direction_length length = {}) {
            direction_factors(D{}, 2, products.data(), static_cast<const double*>(nullptr),
                              {kl_clip, limit, lr, length}, factors.data());
            const auto f = on_host(factors);
            CHECK(f[0] == f[1]);
            return static_cast<double>(f[1]);
        };
        CHECK(factor(0, 0, 0.1) == 1);
        CHECK(std::abs(factor(0, 0, 0.1, direction_length::of_gradient) - std::sqrt(gg / vv)) < 1e-6);
        const double clip = 1e-3 * std::abs(vg), clipped = std::sqrt(clip / (0.01 * 2 * vg));
        CHECK(std::abs(factor(clip, 0, 0.1) - (vg > 0 ? std::min(1.0, clipped) : 1)) < 1e-6);
        CHECK(std::abs(factor(0, 1e-2, 0.1) - 1e-2 / (0.1 * std::sqrt(2 * vv))) < 1e-6);
        CHECK(factor(1e-9, 1e-9, 0) == 1);  // the length of the step is not known
        // These layers are some of a model's, of which products of 4 and 25 are known.
        const auto d_model = on_device<D>(kernel_laws::of_numbers<double>({4, 25}));
        tensor<double, D> shortened = tensor<double, D>::zeros({1});
        direction_factors(D{}, 2, products.data(), d_model.data(), {0.01, 0, 0.1}, factors.data(), shortened.data());
        CHECK(std::abs(static_cast<double>(on_host(factors)[1]) - 0.5) < 1e-7);
        CHECK(on_host(shortened)[0] == 1);
        direction_factors(D{}, 2, products.data(), d_model.data(), {1e9, 0, 0.1}, factors.data(), shortened.data());
        direction_factors(D{}, 2, products.data(), d_model.data(), {0.01, 0, 0.1, direction_length::of_gradient},
                          factors.data(), shortened.data());
        CHECK(on_host(shortened)[0] == 1);  // where no limit holds, and where lengths are the gradients'
        direction_factors(D{}, 2, products.data(), d_model.data(), {0, 0.1, 0.1}, factors.data());
        CHECK(std::abs(static_cast<double>(on_host(factors)[0]) - 0.2) < 1e-7);
        direction_factors(D{}, 2, products.data(), static_cast<const double*>(nullptr), {0, 1e-2, 0.1}, factors.data());
        const T last = on_host(factors)[1];
        tensor<double, D> of_unit({3});
        direction_products(D{}, layout, d_v.data(), of_unit.data(), true);
        CHECK(std::abs(on_host(of_unit)[1] - vv) < 1e-9);
        CHECK(on_host(of_unit)[2] == static_cast<double>(out * in));
        put_direction(D{}, layout, d_v.data(), factors.data() + 1);
        gather_gradient(D{}, layout, got.data());
        for (index_t i = 0; i < v.size(); ++i) expected[i] = last * v[i];
        check_close(on_host(got), expected, 1e-6);
        // In an eigenbasis of parts of one column's width, and by diagonals.
        scale_kronecker(D{}, out, in, in, d_v.data(), d_g.data(), d_a.data(), 2, 40, true, got.data());
        for (index_t i = 0; i < v.size(); ++i) expected[i] = v[i] / (2 * g[i / in] * a[i % in] + 40);
        check_close(on_host(got), expected, 1e-6);
        const T* const none = nullptr;
        scale_kronecker(D{}, out, in, index_t{1}, d_v.data(), none, d_a.data(), 1, 0, false, got.data());
        for (index_t i = 0; i < v.size(); ++i) expected[i] = v[i] * a[0];
        check_close(on_host(got), expected, 1e-6);
        scale_kronecker(D{}, out, in, in, d_v.data(), d_g.data(), none, 0.5, 0, false, got.data());
        for (index_t i = 0; i < v.size(); ++i) expected[i] = v[i] * g[i / in] / 2;
        check_close(on_host(got), expected, 1e-6);
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"gathered rows, float", gathered_rows<D, float>},
                                       {"gathered rows, double", gathered_rows<D, double>},
                                       {"borders, float", borders<D, float>},
                                       {"borders, double", borders<D, double>},
                                       {"directions, float", directions<D, float>},
                                       {"directions, double", directions<D, double>}};
    return laws;
}

}  // namespace cairn::curvature_laws
