#pragma once
// What the kernels of every grid device obey: the same results as those of the host, which are tested against plain
// loops. Run on the emulated device (emulated_kernels_test.cpp) and on a GPU (gpu_laws/). Inputs are drawn from a seed:
// CAIRN_TEST_SEED, or 1.

#include "law.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/dropout.hpp>
#include <cairn/device/cpu/embedding.hpp>
#include <cairn/device/cpu/layer_norm.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/csr.hpp>
#include <cairn/device/grid/dice.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/embedding.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/softmax.hpp>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace cairn::kernel_laws {

inline std::uint64_t seed() {
    return environment_number<std::uint64_t>("CAIRN_TEST_SEED", 1, 0, ~std::uint64_t{0}, "a whole number");
}

/// Standard normal numbers, others for every `stream`.
template <class T>
tensor<T> drawn(shape s, std::uint32_t stream) {
    tensor<T> t(s);
    const random_stream random{seed(), stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i)));
    return t;
}

template <class D, class T>
tensor<T, D> on_device(const tensor<T>& host) {
    return tensor<T, D>::copy_of(host);
}

template <class T, class D>
tensor<T> on_host(const tensor<T, D>& t) {
    return t.on_host();
}

/// |a − b| ≤ tolerance (1 + |b|) for all elements; NaN equals NaN.
template <class T>
void check_close(const tensor<T>& a, const tensor<T>& b, double tolerance) {
    REQUIRE(a.size() == b.size());
    index_t worst = -1;
    double most = tolerance;
    for (index_t i = 0; i < a.size(); ++i) {
        const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        const double off = std::abs(x - y) / (1 + std::abs(y));
        if (!(off <= most)) worst = i, most = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
    }
    if (worst >= 0)
        FAIL_CHECK("element " << worst << " of " << a.size() << " is " << static_cast<double>(a[worst]) << ", expected "
                              << static_cast<double>(b[worst]) << ", off by " << most);
}

template <class D, class T>
void check_close(const tensor<T, D>& a, const tensor<T>& b, double tolerance) requires(!std::same_as<D, cpu>) {
    check_close(on_host(a), b, tolerance);
}

template <class T>
constexpr double rounding = std::is_same_v<T, double> ? 1e-12 : 2e-5;

struct fused_rule {
    float a;
    CAIRN_HD void operator()(float& x, const float& y, double z) const { x = a * x + y + static_cast<float>(z); }
};

template <class D>
void elementwise() {
    for (const index_t n : {1, 7, 64, 1025, 20003})
        for (const index_t off : {0, 1}) {  // a slice that is not aligned goes element by element
            CAPTURE(n, off);
            const auto x = drawn<float>({n + off}, 1), y = drawn<float>({n + off}, 2);
            const auto z = drawn<double>({n + off}, 3);
            tensor<float> expected = x.clone();
            for (index_t i = off; i < n + off; ++i) expected[i] = 0.5f * x[i] + y[i] + static_cast<float>(z[i]);
            auto dx = on_device<D>(x), dy = on_device<D>(y);
            auto dz = on_device<D>(z);
            for_each(D{}, n, fused_rule{0.5f}, dx.data() + off, dy.data() + off, dz.data() + off);
            check_close(dx, expected, 1e-6);
            check_close(dy, y, 0);
        }
}

template <class D, class T>
void reductions() {
    for (const index_t n : {1, 31, 256, 5000, 100003}) {
        CAPTURE(n);
        tensor<T> x = drawn<T>({n}, 4), y = drawn<T>({n}, 5);
        const auto dx = on_device<D>(x), dy = on_device<D>(y);
        const auto near = [&](double a, double b, double scale) {
            CHECK(std::abs(a - b) <= 1e-10 * scale * static_cast<double>(n));
        };
        near(sum(D{}, n, dx.data()), sum(cpu{}, n, x.data()), 1);
        near(sum_of_squares(D{}, n, dx.data()), sum_of_squares(cpu{}, n, x.data()), 1);
        near(dot(D{}, n, dx.data(), dy.data()), dot(cpu{}, n, x.data(), y.data()), 1);
        CHECK(sum(D{}, n, dx.data()) == sum(D{}, n, dx.data()));
        CHECK(max_abs(D{}, n, dx.data()) == max_abs(cpu{}, n, x.data()));
        CHECK(count_nonfinite(D{}, n, dx.data()) == 0);
        x[n - 1] = std::numeric_limits<T>::infinity();
        x[n / 2] = std::numeric_limits<T>::quiet_NaN();
        const auto broken = on_device<D>(x);
        CHECK(count_nonfinite(D{}, n, broken.data()) == count_nonfinite(cpu{}, n, x.data()));
        CHECK(std::isnan(max_abs(D{}, n, broken.data())));
    }
    CHECK(max_abs(D{}, 0, on_device<D>(tensor<T>({1})).data()) == 0);
}

template <class D, class T>
void matrices() {
    const std::pair<index_t, index_t> sizes[]{{1, 1}, {5, 3}, {100, 64}, {1000, 10}, {37, 100}, {4096, 8}};
    for (const auto& [rows, columns] : sizes) {
        CAPTURE(rows, columns);
        tensor<T> x = drawn<T>({rows, columns}, 6), start = drawn<T>({columns}, 7);
        for (const bool accumulate : {false, true}) {
            tensor<T> expected = start.clone();
            column_sums(cpu{}, rows, columns, x.data(), expected.data(), accumulate);
            auto sums = on_device<D>(start);
            const auto dx = on_device<D>(x);
            column_sums(D{}, rows, columns, dx.data(), sums.data(), accumulate);
            check_close(sums, expected, rounding<T> * std::sqrt(static_cast<double>(rows)));
        }
        tensor<T> expected = x.clone();
        add_to_rows(cpu{}, rows, columns, start.data(), expected.data());
        auto sum = on_device<D>(x);
        const auto v = on_device<D>(start);
        add_to_rows(D{}, rows, columns, v.data(), sum.data());
        check_close(sum, expected, 0);
        if (columns > 2)
            x[columns + 1] = x[columns + 2] = 100, x[2] = std::numeric_limits<T>::quiet_NaN();  // equals; a NaN
        tensor<std::int32_t> best({rows});
        argmax_rows(cpu{}, rows, columns, x.data(), best.data());
        tensor<std::int32_t, D> found({rows});
        const auto dx = on_device<D>(x);
        argmax_rows(D{}, rows, columns, dx.data(), found.data());
        check_close(found, best, 0);
    }
}

template <class D, class T>
void activations() {
    for (const index_t n : {1, 8, 13, 1000}) {
        tensor<T> x = drawn<T>({n}, 8), dy = drawn<T>({n}, 9);
        if (n > 2) x[1] = 0, x[2] = std::numeric_limits<T>::quiet_NaN();
        const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
        for (const activation act :
             {activation::sigmoid, activation::tanh, activation::silu, activation::gelu, activation::gelu_tanh}) {
            CAPTURE(n, name_of(act));
            tensor<T> y({n}), dx({n});
            activation_forward(cpu{}, act, n, x.data(), y.data());
            const bool from_output = saves_of(act) == activation_saves::output;
            activation_backward(cpu{}, act, n, from_output ? y.data() : x.data(), dy.data(), dx.data());
            tensor<T, D> d_y({n}), d_dx({n});
            activation_forward(D{}, act, n, d_x.data(), d_y.data());
            check_close(d_y, y, rounding<T>);
            const auto saved = on_device<D>(from_output ? y : x);
            activation_backward(D{}, act, n, saved.data(), d_dy.data(), d_dx.data());
            check_close(d_dx, dx, rounding<T>);
        }
        for (const T slope : {T(0), T(0.1)}) {
            CAPTURE(n, slope);
            const index_t bytes = simd::mask_bytes<T>(n);
            tensor<T> y({n}), dx({n});
            auto bits = tensor<std::uint8_t>::zeros({bytes});
            sign_activation_forward(cpu{}, n, slope, x.data(), y.data(), bits.data());
            sign_activation_backward(cpu{}, n, slope, dy.data(), bits.data(), dx.data());
            tensor<T, D> d_y({n}), d_dx({n});
            auto d_bits = on_device<D>(tensor<std::uint8_t>::zeros({bytes}));
            sign_activation_forward(D{}, n, slope, d_x.data(), d_y.data(), d_bits.data());
            check_close(d_y, y, 1e-7);
            sign_activation_backward(D{}, n, slope, d_dy.data(), d_bits.data(), d_dx.data());
            check_close(d_dx, dx, 1e-7);
            sign_activation_forward(D{}, n, slope, d_x.data(), d_y.data(), nullptr);
            check_close(d_y, y, 1e-7);
        }
    }
}

template <class D, class T>
void batch_norms() {
    for (const index_t channels : {1, 3, 8, 24, 264})
        for (const index_t rows : {2, 50, 333})
            for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
                for (const bool with_skip : {false, true}) {
                    if (channels > 100 && (rows > 50 || !with_skip)) continue;
                    CAPTURE(channels, rows, name_of(act), with_skip);
                    const shape s{rows, channels};
                    tensor<T> x = drawn<T>(s, 10), skip = drawn<T>(s, 11), dy = drawn<T>(s, 12);
                    for (index_t i = 0; i < x.size(); ++i) x[i] += 100;  // a mean that is large beside the deviation
                    const tensor<T> gamma = drawn<T>({channels}, 13), beta = drawn<T>({channels}, 14);
                    const T slope = T(0.2);
                    const index_t bytes = simd::mask_bytes<T>(x.size());
                    tensor<T> mean({channels}), var({channels}), invstd({channels}), y(s), dgamma({channels}),
                        dbeta({channels}), dx(s), dskip(s);
                    auto bits = tensor<std::uint8_t>::zeros({bytes});
                    batch_statistics(cpu{}, rows, channels, x.data(), mean.data(), var.data());
                    for (index_t c = 0; c < channels; ++c) invstd[c] = T(1) / std::sqrt(var[c] + T(1e-5));
                    const bool sign = act != activation::none;
                    batch_norm_apply(cpu{}, rows, channels, x.data(), with_skip ? skip.data() : nullptr, mean.data(),
                                     invstd.data(), gamma.data(), beta.data(), act, slope, y.data(),
                                     sign ? bits.data() : nullptr);
                    batch_norm_sums(cpu{}, rows, channels, dy.data(), sign ? bits.data() : nullptr, act, slope,
                                    x.data(), mean.data(), invstd.data(), dgamma.data(), dbeta.data());
                    batch_norm_gradient(cpu{}, rows, channels, dy.data(), sign ? bits.data() : nullptr, act, slope,
                                        x.data(), mean.data(), invstd.data(), gamma.data(), dgamma.data(), dbeta.data(),
                                        dx.data(), with_skip ? dskip.data() : nullptr);

                    const auto d_x = on_device<D>(x), d_skip = on_device<D>(skip), d_dy = on_device<D>(dy),
                               d_gamma = on_device<D>(gamma), d_beta = on_device<D>(beta),
                               d_invstd = on_device<D>(invstd);
                    tensor<T, D> d_mean({channels}), d_var({channels}), d_y(s), d_dgamma({channels}),
                        d_dbeta({channels}), d_dskip(s);
                    auto d_bits = on_device<D>(tensor<std::uint8_t>::zeros({bytes}));
                    batch_statistics(D{}, rows, channels, d_x.data(), d_mean.data(), d_var.data());
                    check_close(d_mean, mean, rounding<T>);
                    check_close(d_var, var, 10 * rounding<T>);
                    const auto same_mean = on_device<D>(mean);
                    batch_norm_apply(D{}, rows, channels, d_x.data(), with_skip ? d_skip.data() : nullptr,
                                     same_mean.data(), d_invstd.data(), d_gamma.data(), d_beta.data(), act, slope,
                                     d_y.data(), sign ? d_bits.data() : nullptr);
                    check_close(d_y, y, rounding<T>);
                    const auto same_bits = on_device<D>(bits);
                    batch_norm_sums(D{}, rows, channels, d_dy.data(), same_bits.data(), act, slope, d_x.data(),
                                    same_mean.data(), d_invstd.data(), d_dgamma.data(), d_dbeta.data());
                    check_close(d_dgamma, dgamma, 50 * rounding<T>);
                    check_close(d_dbeta, dbeta, 50 * rounding<T>);
                    const auto same_dgamma = on_device<D>(dgamma), same_dbeta = on_device<D>(dbeta);
                    auto gradient = on_device<D>(dy);  // in place
                    batch_norm_gradient(D{}, rows, channels, gradient.data(), same_bits.data(), act, slope, d_x.data(),
                                        same_mean.data(), d_invstd.data(), d_gamma.data(), same_dgamma.data(),
                                        same_dbeta.data(), gradient.data(), with_skip ? d_dskip.data() : nullptr);
                    check_close(gradient, dx, 10 * rounding<T>);
                    if (with_skip) check_close(d_dskip, dskip, 1e-7);
                }
}

inline std::vector<pool_geometry> pool_geometries() {
    const auto of = [](index_t n, index_t channels, pool_axis d, pool_axis h, pool_axis w, bool count_pad) {
        pool_geometry g;
        g.n = n;
        g.channels = channels;
        g.axis = {std::move(d), std::move(h), std::move(w)};
        g.count_pad = count_pad;
        return g;
    };
    const auto one = [] { return pool_axis::sliding(1, 1, 1, 0); };
    std::vector<pool_geometry> all;
    for (const index_t channels : {1, 5, 16}) {
        all.push_back(of(2, channels, one(), pool_axis::sliding(6, 2, 2, 0), pool_axis::sliding(8, 2, 2, 0), true));
        all.push_back(of(2, channels, one(), pool_axis::sliding(7, 3, 2, 1), pool_axis::sliding(9, 3, 2, 1), true));
        all.push_back(of(1, channels, one(), pool_axis::sliding(7, 2, 3, 1), pool_axis::sliding(9, 3, 1, 1), false));
        all.push_back(of(1, channels, pool_axis::sliding(5, 2, 2, 0), pool_axis::sliding(4, 2, 2, 0),
                         pool_axis::sliding(6, 3, 2, 1), true));
        all.push_back(of(1, channels, one(), pool_axis::adaptive(7, 3), pool_axis::adaptive(5, 5), false));
    }
    return all;
}

template <class D, class T>
void pools() {
    int number = 0;
    for (const pool_geometry& g : pool_geometries()) {
        CAPTURE(number++, g.channels);
        tensor<T> x = drawn<T>({g.x_elements()}, 15);
        const tensor<T> dy = drawn<T>({g.y_elements()}, 16);
        x[g.x_elements() / 2] = std::numeric_limits<T>::quiet_NaN();
        tensor<T> y({g.y_elements()}), dx({g.x_elements()});
        tensor<std::uint8_t> code({g.y_elements()});
        max_pool_forward(cpu{}, g, x.data(), y.data(), code.data());
        max_pool_backward(cpu{}, g, dy.data(), code.data(), dx.data());
        const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
        tensor<T, D> d_y({g.y_elements()}), d_dx({g.x_elements()});
        tensor<std::uint8_t, D> d_code({g.y_elements()});
        max_pool_forward(D{}, g, d_x.data(), d_y.data(), d_code.data());
        check_close(d_y, y, 0);
        check_close(d_code, code, 0);
        max_pool_forward(D{}, g, d_x.data(), d_y.data(), static_cast<std::uint8_t*>(nullptr));
        check_close(d_y, y, 0);
        max_pool_backward(D{}, g, d_dy.data(), d_code.data(), d_dx.data());
        check_close(d_dx, dx, 1e-6);
        average_pool_forward(cpu{}, g, x.data(), y.data());
        average_pool_backward(cpu{}, g, dy.data(), dx.data());
        average_pool_forward(D{}, g, d_x.data(), d_y.data());
        check_close(d_y, y, 1e-6);
        average_pool_backward(D{}, g, d_dy.data(), d_dx.data());
        check_close(d_dx, dx, 1e-6);
    }
    for (const index_t channels : {1, 10, 32, 70}) {
        constexpr index_t n = 3, points = 45;
        CAPTURE(channels);
        const tensor<T> x = drawn<T>({n * points * channels}, 17), dy = drawn<T>({n * channels}, 18);
        tensor<T> y({n * channels}), dx(x.shape());
        global_average_forward(cpu{}, n, points, channels, x.data(), y.data());
        global_average_backward(cpu{}, n, points, channels, dy.data(), dx.data());
        const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
        tensor<T, D> d_y(y.shape()), d_dx(x.shape());
        global_average_forward(D{}, n, points, channels, d_x.data(), d_y.data());
        check_close(d_y, y, rounding<T>);
        global_average_backward(D{}, n, points, channels, d_dy.data(), d_dx.data());
        check_close(d_dx, dx, 1e-7);
    }
}

template <class D, class T>
void softmaxes() {
    for (const index_t classes : {1, 10, 64, 100, 1500}) {
        constexpr index_t rows = 5;
        CAPTURE(classes);
        tensor<T> x = drawn<T>({rows, classes}, 19);
        const tensor<T> dy = drawn<T>({rows, classes}, 20), weights = [&] {
            tensor<T> w = drawn<T>({classes}, 21);
            for (index_t k = 0; k < classes; ++k) w[k] = std::abs(w[k]);
            return w;
        }();
        x[0] = 80;  // exp overflows where the largest is not taken off
        tensor<std::int32_t> labels({rows});
        for (index_t r = 0; r < rows; ++r) labels[r] = static_cast<std::int32_t>((7 * r + 3) % classes);
        tensor<T> y(x.shape()), dx(x.shape());
        softmax_forward(cpu{}, rows, classes, x.data(), y.data());
        softmax_backward(cpu{}, rows, classes, y.data(), dy.data(), dx.data());
        const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy), d_weights = on_device<D>(weights);
        const auto d_labels = on_device<D>(labels);
        auto d_y = on_device<D>(x);
        softmax_forward(D{}, rows, classes, d_y.data(), d_y.data());
        check_close(d_y, y, rounding<T>);
        const auto same = on_device<D>(y);
        auto d_dx = on_device<D>(dy);
        softmax_backward(D{}, rows, classes, same.data(), d_dx.data(), d_dx.data());
        check_close(d_dx, dx, rounding<T>);
        for (const T smoothing : {T(0), T(0.1)})
            for (const bool weighted : {false, true}) {
                CAPTURE(smoothing, weighted);
                tensor<T> loss({rows}), dlogits(x.shape());
                softmax_cross_entropy(cpu{}, rows, classes, x.data(), labels.data(), smoothing, loss.data(),
                                      dlogits.data(), T(0.25), weighted ? weights.data() : nullptr);
                auto in_place = on_device<D>(x);
                tensor<T, D> d_loss({rows});
                softmax_cross_entropy(D{}, rows, classes, in_place.data(), d_labels.data(), smoothing, d_loss.data(),
                                      in_place.data(), T(0.25), weighted ? d_weights.data() : nullptr);
                check_close(d_loss, loss, rounding<T>);
                check_close(in_place, dlogits, rounding<T>);
                softmax_cross_entropy(D{}, rows, classes, d_x.data(), d_labels.data(), smoothing, d_loss.data(),
                                      static_cast<T*>(nullptr), T(0.25), weighted ? d_weights.data() : nullptr);
                check_close(d_loss, loss, rounding<T>);
            }
    }
    // A label that does not exist.
    tensor<std::int32_t> wrong({1});
    wrong[0] = 2;
    const auto d_wrong = on_device<D>(wrong);
    auto logits = on_device<D>(drawn<T>({1, 2}, 22));
    tensor<T, D> loss({1});
    softmax_cross_entropy(D{}, 1, 2, logits.data(), d_wrong.data(), T(0), loss.data(), logits.data(), T(1));
    CHECK(std::isnan(on_host(loss)[0]));
    check_close(logits, tensor<T>::zeros({1, 2}), 0);
}

template <class D>
void dropouts() {
    for (const index_t n : {1, 63, 64, 1000, 5000})
        for (const double rate : {0.0, 0.3}) {
            CAPTURE(n, rate);
            const random_stream random{7, 11, 13};
            const auto x = drawn<float>({n}, 23);
            tensor<float> y({n});
            dropout_apply(cpu{}, n, rate, random, x.data(), y.data());
            auto d = on_device<D>(x);
            dropout_apply(D{}, n, rate, random, d.data(), d.data());
            check_close(d, y, 0);
        }
}

template <class D, class T>
void layer_norms() {
    for (const index_t features : {1, 7, 64, 200})
        for (const index_t rows : {1, 40}) {
            CAPTURE(features, rows);
            const shape s{rows, features};
            const tensor<T> x = drawn<T>(s, 24), dy = drawn<T>(s, 25), gamma = drawn<T>({features}, 26),
                            beta = drawn<T>({features}, 27);
            tensor<T> y(s), mean({rows}), invstd({rows}), dx(s), dgamma({features}), dbeta({features});
            layer_norm_forward(cpu{}, rows, features, x.data(), gamma.data(), beta.data(), T(1e-5), y.data(),
                               mean.data(), invstd.data());
            layer_norm_backward(cpu{}, rows, features, dy.data(), x.data(), mean.data(), invstd.data(), gamma.data(),
                                dx.data(), dgamma.data(), dbeta.data());
            const auto d_x = on_device<D>(x), d_gamma = on_device<D>(gamma), d_beta = on_device<D>(beta);
            tensor<T, D> d_y(s), d_mean({rows}), d_invstd({rows}), d_dgamma({features}), d_dbeta({features});
            layer_norm_forward(D{}, rows, features, d_x.data(), d_gamma.data(), d_beta.data(), T(1e-5), d_y.data(),
                               d_mean.data(), d_invstd.data());
            const double tolerance = 50 * rounding<T>;
            check_close(d_y, y, tolerance);
            check_close(d_mean, mean, tolerance);
            const auto same_mean = on_device<D>(mean), same_invstd = on_device<D>(invstd);
            auto gradient = on_device<D>(dy);
            layer_norm_backward(D{}, rows, features, gradient.data(), d_x.data(), same_mean.data(), same_invstd.data(),
                                d_gamma.data(), gradient.data(), d_dgamma.data(), d_dbeta.data());
            const double scale =
                features == 1 ? 1e3 : 1;  // the deviation of one value is 0: 1/√eps multiplies what rounding leaves
            check_close(gradient, dx, scale * tolerance);
            check_close(d_dgamma, dgamma, tolerance);
            check_close(d_dbeta, dbeta, tolerance);
        }
}

template <class D, class T>
void embeddings(index_t width) {
    constexpr index_t rows = 300, entries = 17;
    tensor<std::int32_t> ids({rows});
    for (index_t r = 0; r < rows; ++r) ids[r] = static_cast<std::int32_t>((r * r + 3 * r) % entries);
    const tensor<T> table = drawn<T>({entries, width}, 28), dy = drawn<T>({rows, width}, 29),
                    start = drawn<T>({entries, width}, 30);
    tensor<T> y({rows, width}), expected = start.clone();
    embedding_forward(cpu{}, rows, entries, width, ids.data(), table.data(), y.data());
    embedding_backward(cpu{}, rows, entries, width, ids.data(), dy.data(), expected.data());
    const auto d_ids = on_device<D>(ids);
    const auto d_table = on_device<D>(table), d_dy = on_device<D>(dy);
    tensor<T, D> d_y(y.shape());
    auto d_start = on_device<D>(start);
    embedding_forward(D{}, rows, entries, width, d_ids.data(), d_table.data(), d_y.data());
    embedding_backward(D{}, rows, entries, width, d_ids.data(), d_dy.data(), d_start.data());
    check_close(d_y, y, 0);
    check_close(d_start, expected, rounding<T>);
}

/// Arrays that do not begin at a multiple of a packet's bytes take the way element by element.
template <class D>
void misaligned() {
    constexpr index_t rows = 30, channels = 16, n = rows * channels;
    const auto x = drawn<float>({n + 1}, 35), dy = drawn<float>({n + 1}, 36), scale = drawn<float>({channels}, 37);
    const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy), d_scale = on_device<D>(scale);
    tensor<float> mean({channels}), var({channels}), y({n + 1}), dx({n + 1});
    tensor<float, D> d_mean({channels}), d_var({channels});
    auto d_y = on_device<D>(x), d_dx = on_device<D>(dy);
    const index_t bytes = simd::mask_bytes<float>(n);
    auto bits = tensor<std::uint8_t>::zeros({bytes});
    auto d_bits = on_device<D>(bits);
    batch_statistics(cpu{}, rows, channels, x.data() + 1, mean.data(), var.data());
    batch_statistics(D{}, rows, channels, d_x.data() + 1, d_mean.data(), d_var.data());
    check_close(d_mean, mean, 1e-5);
    check_close(d_var, var, 1e-4);
    y[0] = x[0], dx[0] = dy[0];
    sign_activation_forward(cpu{}, n, 0.1f, x.data() + 1, y.data() + 1, bits.data());
    sign_activation_forward(D{}, n, 0.1f, d_x.data() + 1, d_y.data() + 1, d_bits.data());
    check_close(d_y, y, 1e-6);
    sign_activation_backward(cpu{}, n, 0.1f, dy.data() + 1, bits.data(), dx.data() + 1);
    sign_activation_backward(D{}, n, 0.1f, d_dy.data() + 1, d_bits.data(), d_dx.data() + 1);
    check_close(d_dx, dx, 1e-6);
    batch_norm_apply(cpu{}, rows, channels, x.data() + 1, static_cast<const float*>(nullptr), mean.data(), var.data(),
                     scale.data(), scale.data(), activation::none, 0.0f, y.data() + 1, nullptr);
    batch_norm_apply(D{}, rows, channels, d_x.data() + 1, static_cast<const float*>(nullptr), on_device<D>(mean).data(),
                     on_device<D>(var).data(), d_scale.data(), d_scale.data(), activation::none, 0.0f, d_y.data() + 1,
                     nullptr);
    check_close(d_y, y, 1e-5);
    const pool_geometry g = pool_geometries().back();
    const auto image = drawn<float>({g.x_elements() + 1}, 38);
    tensor<float> pooled({g.y_elements()});
    tensor<float, D> d_pooled({g.y_elements()});
    average_pool_forward(cpu{}, g, image.data() + 1, pooled.data());
    const auto d_image = on_device<D>(image);
    average_pool_forward(D{}, g, d_image.data() + 1, d_pooled.data());
    check_close(d_pooled, pooled, 1e-6);
}

/// T of fewer digits: the float kernel's results on the same, rounded numbers, rounded.
template <class D, class T>
void halves() {
    constexpr index_t rows = 40, channels = 16;
    const shape s{rows, channels};
    const auto rounded = [](const tensor<float>& t) {
        tensor<T> r(t.shape());
        for (index_t i = 0; i < t.size(); ++i) r[i] = T(t[i]);
        return r;
    };
    const auto widened = [](const tensor<T>& t) {
        tensor<float> r(t.shape());
        for (index_t i = 0; i < t.size(); ++i) r[i] = static_cast<float>(t[i]);
        return r;
    };
    const auto x16 = rounded(drawn<float>(s, 31)), dy16 = rounded(drawn<float>(s, 32));
    const auto x = widened(x16), dy = widened(dy16);
    const auto d_x16 = on_device<D>(x16), d_dy16 = on_device<D>(dy16);
    const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
    const auto gamma = on_device<D>(drawn<float>({channels}, 33)), beta = on_device<D>(drawn<float>({channels}, 34));
    tensor<float, D> mean({channels}), var({channels}), mean16({channels}), var16({channels}), y(s),
        sums({2, channels}), sums16({2, channels});
    tensor<T, D> y16(s);
    batch_statistics(D{}, rows, channels, d_x.data(), mean.data(), var.data());
    batch_statistics(D{}, rows, channels, d_x16.data(), mean16.data(), var16.data());
    check_close(mean16, on_host(mean), 0);
    check_close(var16, on_host(var), 0);
    tensor<std::uint8_t, D> bits({simd::mask_bytes<float>(x.size())}), bits16({simd::mask_bytes<float>(x.size())});
    batch_norm_apply(D{}, rows, channels, d_x.data(), static_cast<const float*>(nullptr), mean.data(), var.data(),
                     gamma.data(), beta.data(), activation::relu, 0.0f, y.data(), bits.data());
    batch_norm_apply(D{}, rows, channels, d_x16.data(), static_cast<const T*>(nullptr), mean.data(), var.data(),
                     gamma.data(), beta.data(), activation::relu, 0.0f, y16.data(), bits16.data());
    check_close(widened(on_host(y16)), widened(rounded(on_host(y))), 0);
    batch_norm_sums(D{}, rows, channels, d_dy.data(), bits.data(), activation::relu, 0.0f, d_x.data(), mean.data(),
                    var.data(), sums.data(), sums.data() + channels);
    batch_norm_sums(D{}, rows, channels, d_dy16.data(), bits16.data(), activation::relu, 0.0f, d_x16.data(),
                    mean.data(), var.data(), sums16.data(), sums16.data() + channels);
    check_close(sums16, on_host(sums), 0);
    activation_forward(D{}, activation::gelu, x.size(), d_x.data(), y.data());
    activation_forward(D{}, activation::gelu, x.size(), d_x16.data(), y16.data());
    check_close(widened(on_host(y16)), widened(rounded(on_host(y))), 0);
    softmax_forward(D{}, rows, channels, d_x.data(), y.data());
    softmax_forward(D{}, rows, channels, d_x16.data(), y16.data());
    check_close(widened(on_host(y16)), widened(rounded(on_host(y))), 0);
}

/// float16 on the device is that of the host: every half to float, and floats around every boundary to halves.
template <class D>
void half_conversions() {
    constexpr index_t count = 0x10000;
    tensor<float16> all({count});
    for (index_t i = 0; i < count; ++i) all[i].bits = static_cast<std::uint16_t>(i);
    const auto d_all = on_device<D>(all);
    tensor<float, D> d_wide({count});
    for_each(D{}, count, functors::convert<float, float16>{}, d_wide.data(), d_all.data());
    const tensor<float> wide = on_host(d_wide);
    tensor<float> near({3 * count});
    for (index_t i = 0; i < count; ++i) {
        const float exact = all[i];
        if (std::isnan(exact) ? !std::isnan(wide[i])
                              : std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(exact))
            FAIL("half " << i << " is " << wide[i]);
        all[i].bits = static_cast<std::uint16_t>(i + 1);
        const float middle = exact + (static_cast<float>(all[i]) - exact) / 2;
        near[3 * i] = middle, near[3 * i + 1] = std::nextafter(middle, 0.0f),
                 near[3 * i + 2] = std::nextafter(middle, std::copysign(1e9f, middle));
    }
    const auto d_near = on_device<D>(near);
    tensor<float16, D> d_rounded({3 * count});
    for_each(D{}, 3 * count, functors::convert<float16, float>{}, d_rounded.data(), d_near.data());
    const tensor<float16> rounded = on_host(d_rounded);
    for (index_t i = 0; i < 3 * count; ++i) {
        const float16 expected(near[i]);
        if (std::isnan(near[i]) ? !std::isnan(static_cast<float>(rounded[i])) : rounded[i].bits != expected.bits)
            FAIL(near[i] << " became " << static_cast<float>(rounded[i]));
    }
    SUCCEED();
}

/// Doubles x, and sums it and its square as they were.
struct double_and_sum {
    CAIRN_HD void operator()(double& sum, double& squares, float& x) const {
        sum += x, squares += static_cast<double>(x) * x;
        x *= 2;
    }
};

template <class D>
void sums_of_changes() {
    for (const index_t n : {1, 31, 257, 70001}) {
        CAPTURE(n);
        const auto x = drawn<float>({n}, 39);
        auto d_x = on_device<D>(x);
        tensor<double, D> d_sums({2});
        sum_each_into(D{}, n, double_and_sum{}, d_sums.data(), d_x.data());
        double sum = 0, squares = 0;
        tensor<float> doubled({n});
        for (index_t i = 0; i < n; ++i) {
            sum += static_cast<double>(x[i]), squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            doubled[i] = 2 * x[i];
        }
        const auto sums = on_host(d_sums);
        CHECK(std::abs(sums[0] - sum) <= 1e-9 * (1 + std::abs(sum)));
        CHECK(std::abs(sums[1] - squares) <= 1e-9 * (1 + squares));
        check_close(d_x, doubled, 0);
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"for_each", elementwise<D>},
                                       {"reductions, float", reductions<D, float>},
                                       {"reductions, double", reductions<D, double>},
                                       {"matrices, float", matrices<D, float>},
                                       {"matrices, double", matrices<D, double>},
                                       {"activations, float", activations<D, float>},
                                       {"activations, double", activations<D, double>},
                                       {"batch norm, float", batch_norms<D, float>},
                                       {"batch norm, double", batch_norms<D, double>},
                                       {"pooling, float", pools<D, float>},
                                       {"pooling, double", pools<D, double>},
                                       {"softmax, float", softmaxes<D, float>},
                                       {"softmax, double", softmaxes<D, double>},
                                       {"dropout", dropouts<D>},
                                       {"layer norm, float", layer_norms<D, float>},
                                       {"layer norm, double", layer_norms<D, double>},
                                       {"embedding, float", [] { embeddings<D, float>(9), embeddings<D, float>(16); }},
                                       {"addresses that fit no packet", misaligned<D>},
                                       {"bfloat16", halves<D, bfloat16>},
                                       {"float16", halves<D, float16>},
                                       {"float16, conversions", half_conversions<D>},
                                       {"sums of a pass that changes", sums_of_changes<D>}};
    return laws;
}

}  // namespace cairn::kernel_laws
