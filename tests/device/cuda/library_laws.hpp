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
    add({.n = 2,
         .in = {1, 32, 32},
         .c_in = 3,
         .c_out = 16,
         .kernel = {1, 7, 7},
         .stride = {1, 2, 2},
         .pad = {0, 3, 3}});
    return all;
}

template <class T>
void convolutions() {
    for (const conv_geometry& g : conv_geometries()) {
        CAPTURE(g.to_string());
        const auto x = drawn<T>({g.x_elements()}, 106), w = drawn<T>({g.w_elements()}, 107),
                   bias = drawn<T>({g.c_out}, 108), dy = drawn<T>({g.y_elements()}, 109),
                   dw0 = drawn<T>({g.w_elements()}, 110), db0 = drawn<T>({g.c_out}, 111);
        tensor<T> y({g.y_elements()}), dx({g.x_elements()});
        auto dw = dw0.clone(), db = db0.clone();
        conv_forward(cpu{}, g, x.data(), w.data(), bias.data(), y.data());
        conv_backward_input(cpu{}, g, dy.data(), w.data(), dx.data());
        conv_backward_weight(cpu{}, g, x.data(), dy.data(), dw.data(), db.data());
        const auto d_x = on_device<cuda>(x), d_w = on_device<cuda>(w), d_bias = on_device<cuda>(bias),
                   d_dy = on_device<cuda>(dy);
        tensor<T, cuda> d_y(y.shape()), d_dx(x.shape());
        auto d_dw = on_device<cuda>(dw0), d_db = on_device<cuda>(db0);
        conv_forward(cuda{}, g, d_x.data(), d_w.data(), d_bias.data(), d_y.data());
        conv_backward_input(cuda{}, g, d_dy.data(), d_w.data(), d_dx.data());
        conv_backward_weight(cuda{}, g, d_x.data(), d_dy.data(), d_dw.data(), d_db.data());
        const double tolerance = 100 * kernel_laws::rounding<T>;
        check_close(d_y, y, tolerance);
        check_close(d_dx, dx, tolerance);
        check_close(d_dw, dw, tolerance);
        check_close(d_db, db, tolerance);
        const auto once = on_host(d_y);
        conv_forward(cuda{}, g, d_x.data(), d_w.data(), d_bias.data(), d_y.data());
        check_close(d_y, once, 0);
    }
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
