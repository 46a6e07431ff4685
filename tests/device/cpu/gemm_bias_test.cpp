// Products that end with a bias and an activation, and the gradients of a weight and its bias: against plain loops.
#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"
#include "oracle/gemm.hpp"

#include <cairn/device/cpu/gemm_bias.hpp>

#include <cmath>
#include <vector>

namespace {

using ix = cairn::index_t;
using cairn::activation;

double value_of(activation act, double v) {
    if (act == activation::relu) return v <= 0 ? 0 : v;
    if (act == activation::gelu) return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    if (act == activation::gelu_tanh)
        return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
    return v;
}

template <class T>
void compare(const char* kernel, bool ta, bool tb, ix m, ix n, ix k, ix gap, activation act, bool with_bias,
             bool with_sum = false) {
    INFO(kernel << ' ' << m << " x " << n << " x " << k << (ta ? " T" : " N") << (tb ? 'T' : 'N') << " gap " << gap
                << ' ' << name_of(act) << (with_bias ? " bias" : ""));
    const kernel_tests::forced f("gemm", kernel);
    const ix lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
    const auto a = kernel_tests::draw_uniform<T>((ta ? k : m) * lda, 1),
               b = kernel_tests::draw_uniform<T>((tb ? n : k) * ldb, 2), bias = kernel_tests::draw_uniform<T>(n, 3);
    auto c = kernel_tests::draw_uniform<T>(m * ldc, 4);
    const auto added = kernel_tests::draw_uniform<T>(m * ldc, 5);
    auto expected = c;
    for (ix i = 0; i < m; ++i) std::fill_n(c.begin() + i * ldc, n, T(NAN));  // must not be read
    oracle::gemm(ta, tb, m, n, k, T(0.7), a.data(), lda, b.data(), ldb, T(0), expected.data(), ldc);
    for (ix i = 0; i < m; ++i)
        for (ix j = 0; j < n; ++j) {
            T& v = expected[static_cast<std::size_t>(i * ldc + j)];
            v = static_cast<T>(
                value_of(act, double(v) + (with_bias ? double(bias[static_cast<std::size_t>(j)]) : 0) +
                                  (with_sum ? double(added[static_cast<std::size_t>(i * ldc + j)]) : 0)));
        }
    gemm_bias(cairn::cpu{}, ta, tb, m, n, k, T(0.7), a.data(), lda, b.data(), ldb, c.data(), ldc,
              with_bias ? bias.data() : nullptr, act, with_sum ? added.data() : nullptr);
    CHECK(kernel_tests::distance(c, expected) <= kernel_tests::eps<T>(8 * (static_cast<double>(k) + 8)));
}

}  // namespace

TEST_CASE("gemm_bias: each kernel equals plain loops", "[gemm]") {
    for (const auto& [m, n, k] :
         {std::array<ix, 3>{1, 1, 1}, {5, 7, 3}, {15, 33, 17}, {64, 130, 65}, {3, 5, 0}, {0, 4, 2}})
        for (const char* kernel : {"onednn", "builtin", "cblas"})
            for (const activation act : {activation::none, activation::relu, activation::gelu, activation::gelu_tanh})
                for (const bool with_bias : {false, true}) {
                    compare<float>(kernel, false, true, m, n, k, 0, act, with_bias);
                    compare<double>(kernel, true, false, m, n, k, 3, act, with_bias);
                    if (act == activation::none || act == activation::relu) {
                        compare<float>(kernel, true, false, m, n, k, 3, act, with_bias, true);
                        compare<double>(kernel, false, true, m, n, k, 0, act, with_bias, true);
                    }
                }
}

TEST_CASE("gemm_bias: a NaN stays one; other activations are refused; work is counted", "[gemm]") {
    std::vector<float> a{1, NAN}, b{1}, c(2), bias{-2};
    for (const activation act : {activation::none, activation::relu, activation::gelu, activation::gelu_tanh}) {
        gemm_bias(cairn::cpu{}, false, false, 2, 1, 1, 1.0f, a.data(), 1, b.data(), 1, c.data(), 1, bias.data(), act);
        CHECK(std::isnan(c[1]));
        CHECK(static_cast<double>(c[0]) == Approx(value_of(act, -1)).margin(1e-6));
    }
    CHECK_THROWS_WITH(gemm_bias(cairn::cpu{}, false, false, 2, 1, 1, 1.0f, a.data(), 1, b.data(), 1, c.data(), 1,
                                bias.data(), activation::sigmoid),
                      Catch::Contains("sigmoid cannot follow a product"));
    CHECK_THROWS_WITH(
        gemm_bias(cairn::cpu{}, false, false, 2, 1, 3, 1.0f, a.data(), 2, b.data(), 1, c.data(), 1, bias.data()),
        Catch::Contains("lda is 2"));
    std::vector<float> v(64);
    const cairn::flop_counter::scope counting;
    gemm_bias(cairn::cpu{}, false, false, 2, 3, 4, 1.0f, v.data(), 4, v.data(), 3, v.data() + 32, 3, v.data(),
              activation::relu);
    CHECK(cairn::flop_counter::total().flops == 48 + 6 + 6);
    CHECK(cairn::flop_counter::total().bytes == 4 * (8 + 12 + 6 + 3));
}

TEMPLATE_TEST_CASE("linear_gradients: plain loops, added to what is there", "[gemm]", float, double) {
    using T = TestType;
    for (const auto& [rows, out, in] : {std::array<ix, 3>{1, 1, 1}, {7, 5, 3}, {300, 17, 33}, {0, 4, 2}})
        for (const bool with_bias : {false, true}) {
            const auto dy = kernel_tests::draw_uniform<T>(rows * out, 1),
                       x = kernel_tests::draw_uniform<T>(rows * in, 2);
            auto dw = kernel_tests::draw_uniform<T>(out * in, 3), db = kernel_tests::draw_uniform<T>(out, 4);
            auto expected_dw = dw, expected_db = db;
            for (ix o = 0; o < out; ++o) {
                double sum = 0;
                for (ix r = 0; r < rows; ++r) sum += double(dy[static_cast<std::size_t>(r * out + o)]);
                if (with_bias) expected_db[static_cast<std::size_t>(o)] += static_cast<T>(sum);
            }
            oracle::gemm(true, false, out, in, rows, T(1), dy.data(), out, x.data(), in, T(1), expected_dw.data(), in);
            linear_gradients(cairn::cpu{}, rows, out, in, dy.data(), x.data(), dw.data(),
                             with_bias ? db.data() : nullptr);
            CHECK(kernel_tests::distance(dw, expected_dw) <= kernel_tests::eps<T>(4 * (double(rows) + 8)));
            CHECK(kernel_tests::distance(db, expected_db) <= kernel_tests::eps<T>(4 * (double(rows) + 8)));
        }
}
