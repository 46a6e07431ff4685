#pragma once
// Laws of products of patches (device/grid/conv_im2col_gemm.hpp) on every grid device: the convolution of plain
// loops, whatever the geometry and however the patches are cut; and how batches are cut.

#include "device/cuda/law_numbers.hpp"
#include "device/random_geometry.hpp"
#include "oracle/conv.hpp"

#include <cairn/device/grid/conv_im2col_gemm.hpp>

namespace cairn::convolution_laws {

using namespace kernel_laws;

/// The three phases on D, with products of D's library, `most_bytes` of patches at a time; the same bits twice.
template <class D, class T>
void phases(const conv_geometry& g, index_t most_bytes) {
    CAPTURE(g.to_string(), most_bytes);
    const auto x = drawn<T>({g.x_elements()}, 301, 1), w = drawn<T>({g.w_elements()}, 302, 1),
               dy = drawn<T>({g.y_elements()}, 303, 1);
    const auto wide_x = doubles(x), wide_w = doubles(w), wide_dy = doubles(dy);
    std::vector<double> y(wide_dy.size()), dx(wide_x.size()), dw(wide_w.size());
    oracle::conv_forward<double>(g, wide_x.data(), wide_w.data(), nullptr, y.data());
    oracle::conv_backward_input(g, wide_dy.data(), wide_w.data(), dx.data());
    oracle::conv_backward_weight<double>(g, wide_x.data(), wide_dy.data(), dw.data(), nullptr);
    const auto run = [&](conv_phase phase) {
        auto d_x = on_device<D>(x), d_w = on_device<D>(w), d_y = on_device<D>(dy);
        const tensor<T> lost = tensor<T>::filled({std::max({x.size(), w.size(), dy.size()})}, T(1e9f));
        auto& result = phase == conv_phase::forward ? d_y : phase == conv_phase::backward_input ? d_x : d_w;
        D::copy_to_device(result.data(), lost.data(), result.bytes());  // must not be read, and none may stay
        grid::conv_by_products<T>(
            D{}, phase, g, d_x.data(), d_w.data(), d_y.data(),
            [](bool trans_a, bool trans_b, index_t m, index_t n, index_t k, const T* a, index_t lda, const T* b,
               index_t ldb, auto beta, auto* c,
               index_t ldc) { gemm(D{}, trans_a, trans_b, m, n, k, decltype(beta){1}, a, lda, b, ldb, beta, c, ldc); },
            most_bytes);
        return result.on_host();
    };
    const double terms = static_cast<double>(g.n * g.out_points() + g.kernel_points() * (g.c_in + g.c_out));
    const auto check = [&](conv_phase phase, const std::vector<double>& expected) {
        const auto once = run(phase), again = run(phase);
        check_near(once, expected, eps<T>(sizeof(T) == 2 ? 4 : 8) * std::sqrt(terms));
        for (index_t i = 0; i < once.size(); ++i) REQUIRE(once[i] == again[i]);
    };
    check(conv_phase::forward, y);
    check(conv_phase::backward_input, dx);
    check(conv_phase::backward_weight, dw);
}

template <class D, class T>
void geometries() {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        conv_geometry g = kernel_tests::random_geometry(seed);
        for (const index_t most_bytes : {grid::most_patch_bytes, index_t{1}, index_t{3000}})
            if (g.x_elements() * g.c_out * g.kernel_points() < 400000) phases<D, T>(g, most_bytes);
    }
}

/// Parts cover the batch in order, stay below the limit where an image does, and begin at multiples of eight images
/// where eight fit.
inline void parts_of_batches() {
    conv_geometry g = {.n = 1, .in = {1, 6, 5}, .c_in = 3, .c_out = 7, .kernel = {1, 3, 3}, .pad = {0, 1, 1}};
    g = g.with_output();
    const index_t image = 6 * 5 * 7;
    for (const index_t n : {1, 7, 8, 9, 16, 31, 100})
        for (const index_t most : {index_t{1}, image, 2 * image + 1, 8 * image, 9 * image, 23 * image, 100 * image}) {
            CAPTURE(n, most);
            g.n = n;
            index_t next = 0, parts = 0;
            grid::for_image_parts(g, most, [&](const conv_geometry& part, index_t first) {
                CHECK(first == next);
                CHECK(part.n >= 1);
                if (part.n > 1) CHECK(std::max(part.x_elements(), part.y_elements()) <= most);
                if (most >= 8 * image) CHECK(first % 8 == 0);
                next += part.n, ++parts;
                conv_geometry rest = part;
                rest.n = n;
                CHECK(rest == g);
            });
            CHECK(next == n);
            if (n * image <= most) CHECK(parts == 1);
        }
}

template <class D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"float", geometries<D, float>},
                                       {"double", geometries<D, double>},
                                       {"bfloat16", geometries<D, bfloat16>},
                                       {"parts", parts_of_batches}};
    return laws;
}

}  // namespace cairn::convolution_laws
