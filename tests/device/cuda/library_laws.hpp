#pragma once
// Laws of products, convolutions and decompositions by the GPU's libraries: the host's results.

#include "device/cuda/kernel_laws.hpp"
#include "device/cuda/matrix_laws.hpp"
#include "device/random_geometry.hpp"
#include "device/refusals.hpp"
#include "forced_choice.hpp"

#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/linalg.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace cairn::library_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;

/// c on the device, of operands that begin `off` elements after a block.
template <class T>
void product(index_t m, index_t n, index_t k, bool trans_a, bool trans_b, T beta, index_t gap, index_t off) {
    CAPTURE(m, n, k, trans_a, trans_b, beta, gap, off);
    const index_t lda = (trans_a ? m : k) + gap, ldb = (trans_b ? k : n) + 2 * gap, ldc = n + gap;
    const auto a = drawn<T>({(trans_a ? k : m) * lda + off}, 101), b = drawn<T>({(trans_b ? n : k) * ldb + off}, 102);
    auto start = drawn<T>({m * ldc + off}, 103);
    auto expected = start.clone();
    gemm(cpu{}, trans_a, trans_b, m, n, k, T(0.7), a.data() + off, lda, b.data() + off, ldb, beta,
         expected.data() + off, ldc);
    if (beta == T(0))  // must not be read
        for (index_t r = 0; r < m; ++r)
            std::fill_n(start.data() + off + r * ldc, n, std::numeric_limits<T>::quiet_NaN());
    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
    const auto run = [&] {
        auto d_c = on_device<cuda>(start);
        gemm(cuda{}, trans_a, trans_b, m, n, k, T(0.7), d_a.data() + off, lda, d_b.data() + off, ldb, beta,
             d_c.data() + off, ldc);
        return on_host(d_c);
    };
    const auto once = run();
    check_close(once, expected, kernel_laws::rounding<T> * std::sqrt(static_cast<double>(std::max<index_t>(k, 1))));
    check_close(run(), once, 0);
}

template <class T>
void products() {
    for (const auto& [m, n, k] : {std::array<index_t, 3>{1, 1, 1},
                                  {1, 37, 5},
                                  {37, 1, 5},
                                  {3, 5, 7},
                                  {15, 33, 17},
                                  {64, 64, 64},
                                  {100, 33, 129},
                                  {8, 300, 2},
                                  {130, 270, 520},
                                  {57, 10, 600}})
        for (const bool trans_a : {false, true})
            for (const bool trans_b : {false, true})
                for (const T beta : {T(0), T(1), T(-0.5)})
                    for (const auto& [gap, off] : {std::pair<index_t, index_t>{0, 0}, {4, 0}, {3, 1}})
                        product<T>(m, n, k, trans_a, trans_b, beta, gap, off);
    product<T>(200, 150, 3000, false, true, T(0), 0, 0);
}

/// Nothing to multiply, and nothing to write.
template <class T>
void empty_products() {
    const auto start = drawn<T>({2 * 40}, 115);
    const auto run = [&](index_t m, index_t n, index_t k, T beta, index_t ldc, index_t step, index_t batch, T first) {
        CAPTURE(m, n, k, beta, ldc, step, batch);
        auto c = start.clone();
        c[0] = first;
        auto expected = c.clone();
        for (index_t i = 0; i < batch; ++i)
            gemm(cpu{}, false, false, m, n, k, T(1), c.data(), k, c.data(), n, beta, expected.data() + i * step, ldc);
        auto d_c = on_device<cuda>(c);
        const T* const none = nullptr;
        gemm_batched(cuda{}, false, false, m, n, k, T(1), none, k, index_t{0}, none, n, index_t{0}, beta, d_c.data(),
                     ldc, step, batch);
        check_close(d_c, expected, 0);
    };
    for (const T beta : {T(0), T(1), T(2)})
        for (const auto& [ldc, step, batch] : {std::array<index_t, 3>{5, 0, 1}, {7, 0, 1}, {7, 37, 2}}) {
            run(4, 5, 0, beta, ldc, step, batch, T(1));
            run(0, 5, 0, beta, ldc, step, batch, T(1));
            run(4, 0, 0, beta, ldc, step, batch, T(1));
            run(0, 5, 3, beta, ldc, step, batch, T(1));
        }
    run(4, 5, 0, T(0), 7, 0, 1, std::numeric_limits<T>::quiet_NaN());
    run(4, 5, 3, T(0), 7, 0, 0, T(1));
}

/// Strides as small as the matrices and larger, and of numbers that no alignment survives.
template <class T>
void batched_products() {
    for (const index_t batch : {1, 3, 20, 65'500})  // the last one in more than one call
        for (const index_t more : {0, 5}) {
            CAPTURE(batch, more);
            constexpr index_t m = 9, n = 11, k = 13;
            const index_t sa = m * k + more, sb = n * k + more, sc = m * n + more;
            const auto a = drawn<T>({batch * sa}, 104), b = drawn<T>({batch * sb}, 105),
                       start = drawn<T>({batch * sc}, 116);
            auto c = start.clone();
            gemm_batched(cpu{}, false, true, m, n, k, T(2), a.data(), k, sa, b.data(), k, sb, T(1), c.data(), n, sc,
                         batch);
            const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
            auto d_c = on_device<cuda>(start);
            gemm_batched(cuda{}, false, true, m, n, k, T(2), d_a.data(), k, sa, d_b.data(), k, sb, T(1), d_c.data(), n,
                         sc, batch);
            check_close(d_c, c, 10 * kernel_laws::rounding<T>);
        }
}

template <class T>
tensor<T> narrowed(const tensor<double>& t) {
    tensor<T> r(t.shape());
    for (index_t i = 0; i < t.size(); ++i) r[i] = T(static_cast<grid::sum_type<T>>(t[i]));
    return r;
}

/// Normal numbers on the GPU.
template <class T>
tensor<T, cuda> numbers(shape s, std::uint32_t stream) {
    return on_device<cuda>(narrowed<T>(drawn<double>(s, stream)));
}
template <class T>
tensor<double> in_double(const tensor<T>& t) {
    tensor<double> r(t.shape());
    for (index_t i = 0; i < t.size(); ++i) r[i] = static_cast<double>(static_cast<grid::sum_type<T>>(t[i]));
    return r;
}

static_assert(detail::lt_ending<float>::of(true, activation::gelu_tanh).left == activation::none &&
              detail::lt_ending<double>::of(true, activation::gelu_tanh).left == activation::gelu_tanh);

/// A product with its bias and activation, against the host's in double; the same bits twice. `rounding`: of one
/// result.
template <class T>
void products_with_bias(double rounding) {
    using S = grid::sum_type<T>;
    for (const auto& [m, n, k] :
         {std::array<index_t, 3>{1, 1, 1}, {3, 5, 7}, {64, 128, 64}, {100, 33, 129}, {128, 256, 512}, {5, 6, 0}})
        for (const activation act : {activation::none, activation::relu, activation::gelu, activation::gelu_tanh})
            for (const bool with_bias : {false, true})
                for (const index_t gap : {0, 3}) {
                    CAPTURE(m, n, k, name_of(act), with_bias, gap);
                    const auto a = narrowed<T>(drawn<double>({m, k}, 117)), b = narrowed<T>(drawn<double>({n, k}, 118)),
                               bias = narrowed<T>(drawn<double>({n + 1}, 119)),
                               start = narrowed<T>(drawn<double>({m, n + gap}, 121)),
                               more = narrowed<T>(drawn<double>({m, n + gap}, 123));
                    const bool with_sum = m % 2 == 0;
                    const auto wide_a = in_double(a), wide_b = in_double(b), wide_bias = in_double(bias),
                               wide_more = in_double(more);
                    auto expected = in_double(start);
                    gemm_bias(cpu{}, false, true, m, n, k, 0.7, wide_a.data(), k, wide_b.data(), k, expected.data(),
                              n + gap, with_bias ? wide_bias.data() + (gap > 0) : nullptr, act,
                              with_sum ? wide_more.data() : nullptr);
                    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b), d_bias = on_device<cuda>(bias),
                               d_more = on_device<cuda>(more);
                    const auto run = [&] {
                        auto d_c = on_device<cuda>(start);
                        gemm_bias(cuda{}, false, true, m, n, k, S(0.7), d_a.data(), k, d_b.data(), k, d_c.data(),
                                  n + gap, with_bias ? d_bias.data() + (gap > 0) : nullptr, act,
                                  with_sum ? d_more.data() : nullptr);
                        return in_double(on_host(d_c));
                    };
                    const auto once = run();
                    check_close(once, expected, rounding * std::sqrt(static_cast<double>(k + 1)));
                    check_close(run(), once, 0);
                }
    // Where a network's sizes are met, the bias is part of the product, and not a pass.
    const auto a = on_device<cuda>(narrowed<T>(drawn<double>({64, 64}, 122)));
    tensor<T, cuda> c({64, 64});
    CHECK(detail::run_fused(gemm_size{false, true, 64, 64, 64, 64, 64, 64}, S(1), a.data(), a.data(), c.data(),
                            a.data(), activation::none));
}

/// Both gradients of a linear layer, added to what is there, against the host's in double; the same bits twice.
template <class T>
void gradients_of_linear(double rounding) {
    using W = grid::sum_type<T>;
    for (const auto& [rows, out, in] :
         {std::array<index_t, 3>{1, 1, 1}, {7, 5, 3}, {256, 64, 128}, {1000, 10, 33}, {0, 4, 2}})
        for (const bool with_bias : {false, true}) {
            CAPTURE(rows, out, in, with_bias);
            const auto dy = narrowed<T>(drawn<double>({rows, out}, 123)),
                       x = narrowed<T>(drawn<double>({rows, in}, 124));
            const auto dw = narrowed<W>(drawn<double>({out, in}, 125)), db = narrowed<W>(drawn<double>({out}, 126));
            auto expected_dw = in_double(dw), expected_db = in_double(db);
            linear_gradients(cpu{}, rows, out, in, in_double(dy).data(), in_double(x).data(), expected_dw.data(),
                             with_bias ? expected_db.data() : nullptr);
            const auto d_dy = on_device<cuda>(dy), d_x = on_device<cuda>(x);
            const auto run = [&] {
                auto d_dw = on_device<cuda>(dw), d_db = on_device<cuda>(db);
                linear_gradients(cuda{}, rows, out, in, d_dy.data(), d_x.data(), d_dw.data(),
                                 with_bias ? d_db.data() : nullptr);
                return std::pair{in_double(on_host(d_dw)), in_double(on_host(d_db))};
            };
            const auto once = run(), again = run();
            const double tolerance = rounding * std::sqrt(static_cast<double>(rows + 1));
            check_close(once.first, expected_dw, tolerance);
            check_close(once.second, expected_db, tolerance);
            check_close(again.first, once.first, 0);
            check_close(again.second, once.second, 0);
        }
}

/// Sums of rows' outer products: against plain loops in double, symmetric to the bit, what lies in the gaps of c
/// untouched.
template <class T>
void symmetric_products() {
    using W = grid::sum_type<T>;
    for (const auto& [count, width, gap, c_gap] :
         {std::array<index_t, 4>{1, 1, 0, 0}, {5, 3, 0, 0}, {33, 65, 4, 0}, {200, 130, 1, 3}, {64, 64, 64, 64}}) {
        CAPTURE(count, width, gap, c_gap);
        const index_t stride = width + gap, ldc = width + c_gap;
        const auto rows = narrowed<T>(drawn<double>({count * stride}, 127));
        auto c = narrowed<W>(drawn<double>({width * ldc}, 128));
        for (index_t i = 0; i < width; ++i)
            for (index_t j = 0; j < i; ++j) c[i * ldc + j] = c[j * ldc + i];
        const auto wide = in_double(rows);
        auto expected = in_double(c);
        for (index_t i = 0; i < width; ++i)
            for (index_t j = 0; j < width; ++j)
                for (index_t r = 0; r < count; ++r)
                    expected[i * ldc + j] += 0.25 * wide[r * stride + i] * wide[r * stride + j];
        const auto d_rows = on_device<cuda>(rows);
        auto d_c = on_device<cuda>(c);
        add_symmetric_product(cuda{}, count, width, W(0.25), d_rows.data(), stride, d_c.data(), ldc);
        const auto got = on_host(d_c);
        check_close(in_double(got), expected, (sizeof(W) == 8 ? 1e-12 : 2e-5) * std::sqrt(static_cast<double>(count)));
        for (index_t i = 0; i < width; ++i) {
            for (index_t j = 0; j < i; ++j) REQUIRE(got[i * ldc + j] == got[j * ldc + i]);
            for (index_t j = width; j < ldc; ++j) REQUIRE(got[i * ldc + j] == c[i * ldc + j]);
        }
    }
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

/// All three phases against the host, with a bias and without; again, and in other blocks, to the bit. `rounding`: of
/// one product.
template <class T>
void convolution(const conv_geometry& g, double rounding) {
    using H = std::conditional_t<std::is_same_v<T, double>, double, float>;  // the host's
    const auto from_float = [](shape s, std::uint32_t stream) {
        const auto f = drawn<float>(s, stream);
        tensor<T> r(s);
        for (index_t i = 0; i < f.size(); ++i) r[i] = T(f[i]);
        return r;
    };
    const auto widened = [](const tensor<T>& t) {
        tensor<H> r(t.shape());
        for (index_t i = 0; i < t.size(); ++i) r[i] = static_cast<H>(t[i]);
        return r;
    };
    const auto x = from_float({g.x_elements()}, 106), w = from_float({g.w_elements()}, 107),
               bias = from_float({g.c_out}, 108), dy = from_float({g.y_elements()}, 109),
               dw0 = from_float({g.w_elements()}, 110), db0 = from_float({g.c_out}, 111);
    const auto hx = widened(x), hw = widened(w), hbias = widened(bias), hdy = widened(dy);
    const H* const no_bias = nullptr;
    H* const no_db = nullptr;
    tensor<H> y({g.y_elements()}), plain_y({g.y_elements()}), dx({g.x_elements()});
    auto dw = widened(dw0), db = widened(db0), plain_dw = widened(dw0);
    conv_forward(cpu{}, g, hx.data(), hw.data(), hbias.data(), y.data());
    conv_forward(cpu{}, g, hx.data(), hw.data(), no_bias, plain_y.data());
    conv_backward_input(cpu{}, g, hdy.data(), hw.data(), dx.data());
    conv_backward_weight(cpu{}, g, hx.data(), hdy.data(), dw.data(), db.data());
    conv_backward_weight(cpu{}, g, hx.data(), hdy.data(), plain_dw.data(), no_db);
    const auto all = [&] {
        const auto d_x = on_device<cuda>(x), d_w = on_device<cuda>(w), d_bias = on_device<cuda>(bias),
                   d_dy = on_device<cuda>(dy);
        tensor<T, cuda> d_y(y.shape()), d_plain_y(y.shape()), d_dx(dx.shape());
        auto d_dw = on_device<cuda>(dw0), d_db = on_device<cuda>(db0), d_plain_dw = on_device<cuda>(dw0);
        conv_forward(cuda{}, g, d_x.data(), d_w.data(), d_bias.data(), d_y.data());
        conv_forward(cuda{}, g, d_x.data(), d_w.data(), static_cast<const T*>(nullptr), d_plain_y.data());
        conv_backward_input(cuda{}, g, d_dy.data(), d_w.data(), d_dx.data());
        conv_backward_weight(cuda{}, g, d_x.data(), d_dy.data(), d_dw.data(), d_db.data());
        conv_backward_weight(cuda{}, g, d_x.data(), d_dy.data(), d_plain_dw.data(), static_cast<T*>(nullptr));
        return std::array{widened(on_host(d_y)),  widened(on_host(d_plain_y)), widened(on_host(d_dx)),
                          widened(on_host(d_dw)), widened(on_host(d_db)),      widened(on_host(d_plain_dw))};
    };
    const auto once = all(), again = all();
    const tensor<T, cuda> between({17});  // so that all operands lie elsewhere
    const auto elsewhere = all();
    const std::array<const tensor<H>*, 6> expected{&y, &plain_y, &dx, &dw, &db, &plain_dw};
    const double terms = static_cast<double>(g.n * g.out_points() + g.kernel_points() * (g.c_in + g.c_out));
    for (std::size_t k = 0; k < 6; ++k) {
        CAPTURE(k);
        check_close(once[k], *expected[k], rounding * std::sqrt(terms));
        check_close(again[k], once[k], 0);
        check_close(elsewhere[k], once[k], 0);
    }
}

/// Each geometry is a section of its own: one that has no plan does not hide the others.
template <class T>
void convolutions(double rounding) {
    for (const conv_geometry& g : conv_geometries()) DYNAMIC_SECTION(g.to_string()) convolution<T>(g, rounding);
}

/// Random shapes, with the first suggestion of cuDNN: one, two and three axes, groups, depthwise,
/// strides larger than the kernel, odd numbers of channels.
template <class T>
void random_convolutions(double rounding) {
    const forced_choice restored("conv_gpu");
    autotune_cache::global().set_policy(autotune_policy::first);
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
        const conv_geometry g = kernel_tests::random_geometry(seed);
        DYNAMIC_SECTION(seed << ' ' << g.to_string()) convolution<T>(g, rounding);
    }
}

/// No images are no work; an address that is not a multiple of 16 bytes is refused.
inline void convolution_edges() {
    conv_geometry g = conv_geometries()[0];
    const auto x = on_device<cuda>(drawn<float>({g.x_elements() + 1}, 129)),
               w = on_device<cuda>(drawn<float>({g.w_elements()}, 130));
    tensor<float, cuda> y({g.y_elements()});
    const float* const no_bias = nullptr;
    CHECK_THROWS_WITH(conv_forward(cuda{}, g, x.data() + 1, w.data(), no_bias, y.data()),
                      Catch::Contains("multiples of 16 bytes") && Catch::Contains(g.to_string()));
    // A bias there is added by a pass of its own.
    const auto bias = on_device<cuda>(drawn<float>({g.c_out + 1}, 131));
    tensor<float> expected({g.y_elements()});
    const auto hx = on_host(x), hw = on_host(w), hbias = on_host(bias);
    conv_forward(cpu{}, g, hx.data(), hw.data(), hbias.data() + 1, expected.data());
    conv_forward(cuda{}, g, x.data(), w.data(), bias.data() + 1, y.data());
    check_close(y, expected, 1e-3);
    g.n = 0;
    const auto before = on_host(w);
    auto dw = on_device<cuda>(before);
    float* const none = nullptr;
    conv_forward(cuda{}, g, no_bias, w.data(), no_bias, none);
    conv_backward_input(cuda{}, g, no_bias, w.data(), none);
    conv_backward_weight(cuda{}, g, no_bias, no_bias, dw.data(), none);
    check_close(dw, before, 0);
}

/// A measured choice is entered, saved and replayed; what is forced, or set by hand, is obeyed; policy `first` measures
/// nothing; work is counted; no workspace stays behind.
inline void convolution_autotune() {
    auto& registry = autotune_cache::global();
    const forced_choice plan("conv_gpu");
    const conv_geometry g = conv_geometries()[1];
    const auto x = on_device<cuda>(drawn<float>({g.x_elements()}, 132)),
               w = on_device<cuda>(drawn<float>({g.w_elements()}, 133)),
               bias = on_device<cuda>(drawn<float>({g.c_out}, 134));
    const auto run = [&] {
        tensor<float, cuda> y({g.y_elements()});
        conv_forward(cuda{}, g, x.data(), w.data(), bias.data(), y.data());
        return on_host(y);
    };
    registry.set_policy(autotune_policy::measure);
    registry.clear();
    const auto first = run();
    auto made = registry.entries();
    REQUIRE(made.size() == 1);
    const std::string key = made.begin()->first;
    CHECK(key.starts_with("conv_gpu/forward "));
    CHECK(key.ends_with(g.to_string()));
    CHECK(made.at(key).seconds.size() >= 1);
    const std::string path = concat("/tmp/cairn_gpu_choices_", ::getpid());
    registry.save(path, "here");
    registry.clear();
    CHECK(registry.load(path, "here") == 1);
    std::remove(path.c_str());
    check_close(run(), first, 0);
    CHECK(registry.entries().at(key).choice == made.at(key).choice);
    for (const auto& [name, seconds] : made.at(key).seconds) {  // each candidate that worked
        CAPTURE(name);
        registry.set(key, {name, {}});
        const auto by_hand = run();
        check_close(by_hand, first, 1e-4);
        registry.set(key, made.at(key));
        plan.force(name);
        check_close(run(), by_hand, 0);
        plan.force("");
    }
    check_close(run(), first, 0);

    registry.clear();
    registry.set_policy(autotune_policy::first);
    const index_t live = cuda::memory().use_of(memory_category::workspace).live;
    const flop_counter::scope counting;
    check_close(run(), first, 1e-4);
    CHECK(registry.entries().at(key).seconds.empty());
    CHECK(cuda::memory().use_of(memory_category::workspace).live == live);
    CHECK(static_cast<double>(flop_counter::total().flops) == g.flops() + static_cast<double>(g.y_elements()));
    CHECK(static_cast<index_t>(flop_counter::total().bytes) == 4 * (g.x_elements() + g.w_elements() + g.y_elements()));
}

/// Products count 2 m n k operations and each operand once, whether or not the bias is fused.
inline void counted_products() {
    const auto v = on_device<cuda>(drawn<float>({64}, 135));
    tensor<float, cuda> c({2, 3});
    {
        const flop_counter::scope counting;
        gemm(cuda{}, false, false, 2, 3, 4, 1.0f, v.data(), 4, v.data(), 3, 0.0f, c.data(), 3);
        CHECK(flop_counter::total().flops == 48);
        CHECK(flop_counter::total().bytes == 4 * (8 + 12 + 6));
    }
    {
        const flop_counter::scope counting;
        gemm_bias(cuda{}, false, false, 2, 3, 4, 1.0f, v.data(), 4, v.data(), 3, c.data(), 3, v.data());
        CHECK(flop_counter::total().flops == 48 + 6);
        CHECK(flop_counter::total().bytes == 4 * (8 + 12 + 6 + 3));
    }
}

/// Products of bfloat16 and float16, and of float in TF32, against the host's in float.
template <class T>
void rounded_products(double rounding) {
    constexpr index_t m = 96, n = 80, k = 256;
    tensor<T> a({m, k}), b({k, n});
    tensor<float> ha({m, k}), hb({k, n}), expected({m, n});
    const auto drawn_a = drawn<float>({m, k}, 113), drawn_b = drawn<float>({k, n}, 114);
    for (index_t i = 0; i < m * k; ++i) a[i] = T(drawn_a[i]), ha[i] = static_cast<float>(a[i]);
    for (index_t i = 0; i < k * n; ++i) b[i] = T(drawn_b[i]), hb[i] = static_cast<float>(b[i]);
    gemm(cpu{}, false, false, m, n, k, 1.0f, ha.data(), k, hb.data(), n, 0.0f, expected.data(), n);
    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
    tensor<T, cuda> c({m, n}), again({m, n});
    gemm(cuda{}, false, false, m, n, k, 1.0f, d_a.data(), k, d_b.data(), n, 0.0f, c.data(), n);
    gemm(cuda{}, false, false, m, n, k, 1.0f, d_a.data(), k, d_b.data(), n, 0.0f, again.data(), n);
    const auto got = on_host(c), twice = on_host(again);
    for (index_t i = 0; i < m * n; ++i) {
        CHECK(std::abs(static_cast<float>(got[i]) - expected[i]) <= rounding * std::sqrt(static_cast<double>(k)));
        CHECK(static_cast<float>(twice[i]) == static_cast<float>(got[i]));
    }
}

/// Products of bfloat16 into float are not rounded: to float's rounding the host's, of the same numbers.
inline void unrounded_products() {
    constexpr index_t m = 96, n = 80, k = 256;
    const auto a = narrowed<bfloat16>(drawn<double>({m, k}, 136)), b = narrowed<bfloat16>(drawn<double>({k, n}, 137));
    const auto wide_a = in_double(a), wide_b = in_double(b);
    auto expected = drawn<double>({m, n}, 138);
    auto d_c = on_device<cuda>(narrowed<float>(expected));
    expected = in_double(on_host(d_c));
    gemm(cpu{}, false, false, m, n, k, 1.0, wide_a.data(), k, wide_b.data(), n, 1.0, expected.data(), n);
    const auto d_a = on_device<cuda>(a), d_b = on_device<cuda>(b);
    gemm(cuda{}, false, false, m, n, k, 1.0f, d_a.data(), k, d_b.data(), n, 1.0f, d_c.data(), n);
    check_close(in_double(on_host(d_c)), expected, 2e-5 * 16);
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
    for (const index_t n : {1, 2, 17, 40, 64, 65, 120, 130}) {
        CAPTURE(n);
        const double bound = 1e2 * kernel_laws::rounding<T>;
        const auto rows = drawn<T>({2 * n, n}, 112);
        tensor<T> a({n, n}), one = tensor<T>::zeros({n, n});
        gemm(cpu{}, true, false, n, n, 2 * n, T(1) / T(n), rows.data(), n, rows.data(), n, T(0), a.data(), n);
        mirror_upper(cpu{}, n, a.data(), n);
        for (index_t i = 0; i < n; ++i) a[i * n + i] += T(0.1), one[i * n + i] = 1;
        const auto d_a = on_device<cuda>(a);
        const auto inverse = on_host(inverse_of_positive(cuda{}, d_a));
        check_close(inverse, inverse_of_positive(cpu{}, a), 10 * bound);
        for (index_t r = 0; r < n; ++r)
            for (index_t c = 0; c < r; ++c) REQUIRE(inverse[r * n + c] == inverse[c * n + r]);
        tensor<T> product({n, n});
        gemm(cpu{}, false, false, n, n, n, T(1), a.data(), n, inverse.data(), n, T(0), product.data(), n);
        check_close(product, one, 10 * bound);
        const auto e = eigh(cuda{}, d_a);
        const auto v = on_host(e.vectors), w = on_host(e.values);
        CHECK(std::is_sorted(w.data(), w.data() + n));
        check_close(w, eigh(cpu{}, a).values, bound);
        tensor<T> scaled = v.clone();  // V diag(w) Vᵀ = A
        for (index_t i = 0; i < n * n; ++i) scaled[i] *= w[i % n];
        gemm(cpu{}, false, true, n, n, n, T(1), scaled.data(), n, v.data(), n, T(0), product.data(), n);
        check_close(product, a, bound);
        gemm(cpu{}, true, false, n, n, n, T(1), v.data(), n, v.data(), n, T(0), product.data(), n);
        check_close(product, one, bound);
        check_close(d_a, a, 0);  // arguments are not changed
        const auto square = drawn<T>({n, n}, 113);
        const auto d_square = on_device<cuda>(square);
        const auto q = on_host(orthonormal_columns(cuda{}, d_square));
        gemm(cpu{}, true, false, n, n, n, T(1), q.data(), n, q.data(), n, T(0), product.data(), n);
        check_close(product, one, bound);
        tensor<T> r({n, n});  // Qᵀ A is upper triangular: the first columns of both span the same
        gemm(cpu{}, true, false, n, n, n, T(1), q.data(), n, square.data(), n, T(0), r.data(), n);
        for (index_t i = 0; i < n; ++i)
            for (index_t k = 0; k < i; ++k) REQUIRE(std::abs(static_cast<double>(r[i * n + k])) < bound);
        check_close(d_square, square, 0);
    }
    tensor<T> by_hand({2, 2});
    by_hand[0] = by_hand[3] = 2, by_hand[1] = by_hand[2] = 1;
    const auto e = eigh(cuda{}, on_device<cuda>(by_hand));
    const auto v = on_host(e.vectors), w = on_host(e.values);
    CHECK(static_cast<double>(w[0]) == Approx(1));
    CHECK(static_cast<double>(w[1]) == Approx(3));
    CHECK(static_cast<double>(v[1] * v[3]) == Approx(0.5));   // (1, 1) / √2
    CHECK(static_cast<double>(v[0] * v[2]) == Approx(-0.5));  // (1, -1) / √2
    const auto inverse = on_host(inverse_of_positive(cuda{}, on_device<cuda>(by_hand)));
    CHECK(static_cast<double>(inverse[0]) == Approx(2.0 / 3));
    CHECK(static_cast<double>(inverse[1]) == Approx(-1.0 / 3));
}

/// Matrices that cannot be decomposed are refused in the host's words.
template <class T>
void decomposition_errors() {
    using Catch::Contains;
    const auto eigen = [](const tensor<T, cuda>& m) { eigh(cuda{}, m); };
    const auto inverse = [](const tensor<T, cuda>& m) { inverse_of_positive(cuda{}, m); };
    matrix_laws::broken_elements<cuda, T>(eigen, "eigh");
    const auto basis = [](const tensor<T, cuda>& m) { orthonormal_columns(cuda{}, m); };
    matrix_laws::broken_elements<cuda, T>(inverse, "inverse");
    matrix_laws::broken_elements<cuda, T>(basis, "orthonormal columns");
    for (const shape& s : {shape{2, 3}, shape{4}, shape{0, 0}}) {
        const auto m = on_device<cuda>(tensor<T>::zeros(s));
        CHECK_THROWS_WITH(eigen(m), Contains("eigh: a square matrix is needed, got shape " + concat(s)));
        CHECK_THROWS_WITH(inverse(m), Contains("inverse: a square matrix is needed, got shape " + concat(s)));
        CHECK_THROWS_WITH(basis(m), Contains("orthonormal columns: a square matrix is needed, got shape " + concat(s)));
    }
    auto negative = tensor<T>::zeros({2, 2});
    negative[0] = negative[3] = T(-1);
    CHECK_THROWS_WITH(inverse(on_device<cuda>(negative)), Contains("(2, 2) is not positive definite"));
}

}  // namespace cairn::library_laws
