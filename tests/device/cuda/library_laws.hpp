#pragma once
// What products, convolutions and decompositions of the GPU's libraries obey: the host's results.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/linalg.hpp>

namespace cairn::library_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;

template <class T>
void products() {
    for (const auto& [m, n, k] : {std::array<index, 3>{1, 1, 1}, {3, 5, 7}, {64, 64, 64}, {100, 33, 129}, {8, 300, 2}})
        for (const bool trans_a : {false, true})
            for (const bool trans_b : {false, true})
                for (const T beta : {T(0), T(1), T(-0.5)}) {
                    CAPTURE(m, n, k, trans_a, trans_b, beta);
                    const index lda = (trans_a ? m : k) + 4, ldb = (trans_b ? k : n) + 8, ldc = n + 4;
                    const auto a = drawn<T>({(trans_a ? k : m) * lda}, 101),
                               b = drawn<T>({(trans_b ? n : k) * ldb}, 102), start = drawn<T>({m * ldc}, 103);
                    auto c = start.clone();
                    gemm(cpu{}, trans_a, trans_b, m, n, k, T(0.7), a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
                    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
                    auto d_c = on_device<cuda>(start);
                    gemm(cuda{}, trans_a, trans_b, m, n, k, T(0.7), d_a.data(), lda, d_b.data(), ldb, beta, d_c.data(),
                         ldc);
                    check_close(d_c, c, kernel_laws::rounding<T> * std::sqrt(static_cast<double>(k)));
                }
    constexpr index n = 12, batch = 5;
    const auto a = drawn<T>({batch * n * n}, 104), b = drawn<T>({batch * n * n}, 105);
    tensor<T> c({batch * n * n});
    gemm_batched(cpu{}, false, true, n, n, n, T(1), a.data(), n, n * n, b.data(), n, n * n, T(0), c.data(), n, n * n,
                 batch);
    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
    tensor<T, cuda> d_c(c.shape());
    gemm_batched(cuda{}, false, true, n, n, n, T(1), d_a.data(), n, n * n, d_b.data(), n, n * n, T(0), d_c.data(), n,
                 n * n, batch);
    check_close(d_c, c, 10 * kernel_laws::rounding<T>);
}

inline std::vector<conv_geometry> conv_geometries() {
    std::vector<conv_geometry> all;
    const auto add = [&](conv_geometry g) { all.push_back(g.with_output()); };
    add({.n = 2, .in = {1, 8, 8}, .c_in = 8, .c_out = 16, .kernel = {1, 3, 3}, .pad = {0, 1, 1}});
    add({.n = 2, .in = {1, 9, 7}, .c_in = 8, .c_out = 8, .kernel = {1, 3, 3}, .stride = {1, 2, 2}, .pad = {0, 1, 1}});
    add({.n = 1, .in = {1, 11, 11}, .c_in = 4, .c_out = 8, .kernel = {1, 3, 3}, .dilation = {1, 2, 2}});
    add({.n = 3, .in = {1, 6, 6}, .c_in = 16, .c_out = 16, .kernel = {1, 1, 1}});
    add({.n = 1, .in = {1, 8, 8}, .c_in = 8, .c_out = 8, .kernel = {1, 3, 3}, .pad = {0, 1, 1}, .groups = 2});
    add({.n = 1, .in = {6, 8, 10}, .c_in = 4, .c_out = 8, .kernel = {3, 3, 3}, .stride = {1, 2, 1}, .pad = {1, 1, 1}});
    add({.n = 6,  // of the K-FAC laws
         .in = {1, 5, 5},
         .c_in = 8,
         .c_out = 8,
         .kernel = {1, 3, 3},
         .stride = {1, 2, 2},
         .pad = {0, 2, 2},
         .dilation = {1, 2, 2},
         .groups = 2});
    add({.n = 2,
         .in = {1, 32, 32},
         .c_in = 3,
         .c_out = 16,
         .kernel = {1, 7, 7},
         .stride = {1, 2, 2},
         .pad = {0, 3, 3}});
    return all;
}

/// All three phases against the host, and again to the bit. `rounding`: of one product.
template <class T>
void convolution(const conv_geometry& g, double rounding) {
    const auto narrowed = [](const tensor<float>& t) {
        tensor<T> r(t.shape());
        for (index i = 0; i < t.size(); ++i) r[i] = T(t[i]);
        return r;
    };
    const auto widened = [](const tensor<T>& t) {
        tensor<float> r(t.shape());
        for (index i = 0; i < t.size(); ++i) r[i] = static_cast<float>(t[i]);
        return r;
    };
    const auto x = narrowed(drawn<float>({g.x_elements()}, 106)), w = narrowed(drawn<float>({g.w_elements()}, 107)),
               bias = narrowed(drawn<float>({g.c_out}, 108)), dy = narrowed(drawn<float>({g.y_elements()}, 109)),
               dw0 = narrowed(drawn<float>({g.w_elements()}, 110)), db0 = narrowed(drawn<float>({g.c_out}, 111));
    const auto hx = widened(x), hw = widened(w), hbias = widened(bias), hdy = widened(dy);
    tensor<float> y({g.y_elements()}), dx({g.x_elements()});
    auto dw = widened(dw0), db = widened(db0);
    conv_forward(cpu{}, g, hx.data(), hw.data(), hbias.data(), y.data());
    conv_backward_input(cpu{}, g, hdy.data(), hw.data(), dx.data());
    conv_backward_weight(cpu{}, g, hx.data(), hdy.data(), dw.data(), db.data());
    const auto d_x = on_device<cuda>(x), d_w = on_device<cuda>(w), d_bias = on_device<cuda>(bias),
               d_dy = on_device<cuda>(dy);
    const auto all = [&] {
        tensor<T, cuda> d_y(y.shape()), d_dx(dx.shape());
        auto d_dw = on_device<cuda>(dw0), d_db = on_device<cuda>(db0);
        conv_forward(cuda{}, g, d_x.data(), d_w.data(), d_bias.data(), d_y.data());
        conv_backward_input(cuda{}, g, d_dy.data(), d_w.data(), d_dx.data());
        conv_backward_weight(cuda{}, g, d_x.data(), d_dy.data(), d_dw.data(), d_db.data());
        return std::array{widened(on_host(d_y)), widened(on_host(d_dx)), widened(on_host(d_dw)),
                          widened(on_host(d_db))};
    };
    const auto once = all(), again = all();
    const std::array<const tensor<float>*, 4> expected{&y, &dx, &dw, &db};
    const double terms = static_cast<double>(g.n * g.out_points() + g.kernel_points() * (g.c_in + g.c_out));
    for (std::size_t k = 0; k < 4; ++k) {
        CAPTURE(k);
        check_close(once[k], *expected[k], rounding * std::sqrt(terms));
        check_close(again[k], once[k], 0);
    }
}

/// Each geometry is a section of its own: one that has no plan does not hide the others.
template <class T>
void convolutions(double rounding) {
    for (const conv_geometry& g : conv_geometries()) DYNAMIC_SECTION(g.to_string()) convolution<T>(g, rounding);
}

/// Products of bfloat16 and float16, and of float in TF32, against the host's in float.
template <class T>
void rounded_products(double rounding) {
    constexpr index m = 96, n = 80, k = 256;
    tensor<T> a({m, k}), b({k, n});
    tensor<float> ha({m, k}), hb({k, n}), expected({m, n});
    const auto drawn_a = drawn<float>({m, k}, 113), drawn_b = drawn<float>({k, n}, 114);
    for (index i = 0; i < m * k; ++i) a[i] = T(drawn_a[i]), ha[i] = static_cast<float>(a[i]);
    for (index i = 0; i < k * n; ++i) b[i] = T(drawn_b[i]), hb[i] = static_cast<float>(b[i]);
    gemm(cpu{}, false, false, m, n, k, 1.0f, ha.data(), k, hb.data(), n, 0.0f, expected.data(), n);
    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
    tensor<T, cuda> c({m, n}), again({m, n});
    gemm(cuda{}, false, false, m, n, k, 1.0f, d_a.data(), k, d_b.data(), n, 0.0f, c.data(), n);
    gemm(cuda{}, false, false, m, n, k, 1.0f, d_a.data(), k, d_b.data(), n, 0.0f, again.data(), n);
    const auto got = on_host(c), twice = on_host(again);
    for (index i = 0; i < m * n; ++i) {
        CHECK(std::abs(static_cast<float>(got[i]) - expected[i]) <= rounding * std::sqrt(static_cast<double>(k)));
        CHECK(static_cast<float>(twice[i]) == static_cast<float>(got[i]));
    }
}

/// Runs check() with float products in TF32.
template <class Check>
void in_tf32(Check&& check) {
    struct back {
        ~back() { gpu_float_products() = float_products::exact; }
    } const afterwards;
    gpu_float_products() = float_products::tf32;
    check();
}

template <class T>
void decompositions() {
    for (const index n : {1, 2, 17, 64}) {
        CAPTURE(n);
        const auto rows = drawn<T>({2 * n, n}, 112);
        tensor<T> a({n, n});
        gemm(cpu{}, true, false, n, n, 2 * n, T(1) / T(n), rows.data(), n, rows.data(), n, T(0), a.data(), n);
        for (index i = 0; i < n; ++i) a[i * n + i] += T(0.1);
        const auto d_a = on_device<cuda>(a);
        check_close(inverse_of_positive(cuda{}, d_a), inverse_of_positive(cpu{}, a), 1e3 * kernel_laws::rounding<T>);
        const auto e = eigh(cuda{}, d_a);
        check_close(e.values, eigh(cpu{}, a).values, 1e2 * kernel_laws::rounding<T>);
        const auto v = on_host(e.vectors), w = on_host(e.values);  // V diag(w) Vᵀ = A
        tensor<T> scaled = v.clone(), again({n, n});
        for (index i = 0; i < n * n; ++i) scaled[i] *= w[i % n];
        gemm(cpu{}, false, true, n, n, n, T(1), scaled.data(), n, v.data(), n, T(0), again.data(), n);
        check_close(again, a, 1e2 * kernel_laws::rounding<T>);
        auto upper = on_device<cuda>(a);
        mirror_upper(cuda{}, n, upper.data(), n);
        check_close(upper, a, 1e-5);
    }
    auto negative = tensor<T>::zeros({2, 2});
    negative[0] = negative[3] = T(-1);
    const auto d_negative = on_device<cuda>(negative);
    CHECK_THROWS_WITH(inverse_of_positive(cuda{}, d_negative), Catch::Contains("not positive definite"));
}

}  // namespace cairn::library_laws
