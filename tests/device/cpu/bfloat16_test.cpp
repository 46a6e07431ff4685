// Kernels over bfloat16: each result is the float kernel's on the same numbers, rounded once, bit for bit; what stays
// in float is the float kernel's.
#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"

#include <cairn/device/cpu/attention.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/dropout.hpp>
#include <cairn/device/cpu/embedding.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/layer_norm.hpp>
#include <cairn/device/cpu/per_example_gradients.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/device/cpu/softmax.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace bfloat16_kernels {

using namespace cairn;

namespace {

using kernel_tests::same_bits;

/// The same numbers in both types.
struct two {
    std::vector<bfloat16> half;
    std::vector<float> wide;
};

two drawn(index_t n, std::uint32_t stream) {
    const auto numbers = kernel_tests::draw<float>(n, stream);
    two t{{numbers.begin(), numbers.end()}, {}};
    t.wide.assign(t.half.begin(), t.half.end());
    return t;
}

/// Room for n results that a kernel must set.
two unset(index_t n) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return {std::vector<bfloat16>(static_cast<std::size_t>(n), nan),
            std::vector<float>(static_cast<std::size_t>(n), nan)};
}

void check_rounded(const two& t) {
    for (std::size_t i = 0; i < t.half.size(); ++i) {
        if (t.half[i].bits == bfloat16(t.wide[i]).bits) continue;
        FAIL_CHECK("element " << i << " of " << t.half.size() << " is " << float{t.half[i]} << ", of float "
                              << t.wide[i]);
        return;
    }
}

/// Calls f with the bfloat16 members and with the float ones.
template <class F, class... Two>
void in_both(F f, Two&... t) {
    f(t.half.data()...);
    f(t.wide.data()...);
    (check_rounded(t), ...);
}

constexpr cpu host;

}  // namespace

TEST_CASE("bfloat16: packs load, store and round as the scalar type, whatever the number of lanes", "[bfloat16]") {
    std::vector<float> numbers = kernel_tests::draw<float>(256, 1);
    for (const std::uint32_t bits :
         {0x00000000u, 0x80000000u, 0x00000001u, 0x007fffffu, 0x3f808000u, 0x3f818000u, 0x3f80ffffu, 0x7f7fffffu,
          0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x00008000u})
        numbers.push_back(std::bit_cast<float>(bits));
    const auto n = static_cast<index_t>(numbers.size());
    std::vector<bfloat16> got(numbers.size() + 1, bfloat16(7.0f));
    simd::for_packs<float>(
        n, [&](index_t i, auto count) { simd::store(got.data() + i, simd::load(numbers.data() + i, count), count); });
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(got[i].bits == bfloat16(numbers[i]).bits);
    CHECK(got.back().bits == bfloat16(7.0f).bits);
    std::vector<float> back(numbers.size());
    simd::for_packs<float>(
        n, [&](index_t i, auto count) { simd::store(back.data() + i, simd::load(got.data() + i, count), count); });
    for (std::size_t i = 0; i < numbers.size(); ++i)
        CHECK(std::bit_cast<std::uint32_t>(back[i]) == std::uint32_t{got[i].bits} << 16);
    const simd::pack<float> few = simd::load(got.data(), index_t{3});
    float lanes[simd::lanes<float>];
    simd::store(lanes, few);
    for (int i = 3; i < simd::lanes<float>; ++i) CHECK(lanes[i] == 0);
}

TEST_CASE("bfloat16: activations and dropout are float's, rounded once", "[bfloat16]") {
    for (const index_t n : {1, 17, 40'000}) {
        two x = drawn(n, 1), dy = drawn(n, 2), y = unset(n), dx = unset(n);
        for (const float slope : {0.0f, 0.3f}) {
            std::vector<std::uint8_t> bits(static_cast<std::size_t>(simd::mask_bytes<float>(n)));
            in_both([&](auto* from, auto* to) { sign_activation_forward(host, n, slope, from, to, bits.data()); }, x,
                    y);
            in_both([&](auto* from, auto* to) { sign_activation_backward(host, n, slope, from, bits.data(), to); }, dy,
                    dx);
        }
        for (const activation act :
             {activation::sigmoid, activation::tanh, activation::silu, activation::gelu, activation::gelu_tanh}) {
            CAPTURE(name_of(act), n);
            in_both([&](auto* from, auto* to) { activation_forward(host, act, n, from, to); }, x, y);
            in_both([&](auto* at, auto* from, auto* to) { activation_backward(host, act, n, at, from, to); }, x, dy,
                    dx);
        }
        in_both([&](auto* from, auto* to) { dropout_apply(host, n, 0.3, {1, 2, 3}, from, to, 5); }, x, y);
    }
}

TEST_CASE("bfloat16: batch norm computes in float and keeps its statistics there", "[bfloat16]") {
    for (const auto& size : {std::pair<index_t, index_t>{40, 5}, {300, 64}, {7, 33}})
        for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
            for (const bool with_skip : {false, true}) {
                const index_t rows = size.first, channels = size.second;
                CAPTURE(rows, channels, name_of(act), with_skip);
                const index_t n = rows * channels;
                two x = drawn(n, 1), skip = drawn(n, 2), dy = drawn(n, 3), y = unset(n), dx = unset(n),
                    dskip = unset(n);
                const auto gamma = kernel_tests::draw<float>(channels, 4),
                           beta = kernel_tests::draw<float>(channels, 5);
                std::vector<float> sums[2][4];
                std::vector<std::uint8_t> bits[2];
                int of = 0;
                const auto run = [&](auto* in, auto* more, auto* gradient, auto* out, auto* to, auto* to_skip) {
                    for (auto& s : sums[of]) s.resize(static_cast<std::size_t>(channels));
                    bits[of].resize(static_cast<std::size_t>(simd::mask_bytes<float>(n)));
                    auto& [mean, var, dgamma, dbeta] = sums[of];
                    batch_statistics(host, rows, channels, in, mean.data(), var.data());
                    std::vector<float> inverse = var;
                    for (float& v : inverse) v = 1 / std::sqrt(v + 1e-5f);
                    const float slope = act == activation::leaky_relu ? 0.3f : 0.0f;
                    batch_norm_apply(host, rows, channels, in, with_skip ? more : nullptr, mean.data(), inverse.data(),
                                     gamma.data(), beta.data(), act, slope, out, bits[of].data());
                    batch_norm_sums(host, rows, channels, gradient, bits[of].data(), act, slope, in, mean.data(),
                                    inverse.data(), dgamma.data(), dbeta.data());
                    batch_norm_gradient(host, rows, channels, gradient, bits[of].data(), act, slope, in, mean.data(),
                                        inverse.data(), gamma.data(), dgamma.data(), dbeta.data(), to,
                                        with_skip ? to_skip : nullptr);
                    ++of;
                };
                in_both(run, x, skip, dy, y, dx, dskip);
                for (int i = 0; i < 4; ++i) CHECK(same_bits(sums[0][i], sums[1][i]));
                CHECK(same_bits(bits[0], bits[1]));
            }
}

TEST_CASE("bfloat16: layer norm computes in float", "[bfloat16]") {
    for (const auto& size : {std::pair<index_t, index_t>{9, 5}, {50, 128}, {70, 33}}) {
        const index_t rows = size.first, features = size.second;
        const index_t n = rows * features;
        two x = drawn(n, 1), dy = drawn(n, 2), added = drawn(n, 3), y = unset(n), dx = unset(n);
        const auto gamma = kernel_tests::draw<float>(features, 4), beta = kernel_tests::draw<float>(features, 5);
        std::vector<float> gradients[2][2];
        int of = 0;
        in_both(
            [&](auto* in, auto* gradient, auto* more, auto* out, auto* to) {
                std::vector<float> mean(static_cast<std::size_t>(rows)), inverse = mean;
                for (auto& g : gradients[of]) g.resize(static_cast<std::size_t>(features));
                layer_norm_forward(host, rows, features, in, gamma.data(), beta.data(), 1e-5f, out, mean.data(),
                                   inverse.data());
                layer_norm_backward(host, rows, features, gradient, in, mean.data(), inverse.data(), gamma.data(), to,
                                    gradients[of][0].data(), gradients[of][1].data(), more);
                ++of;
            },
            x, dy, added, y, dx);
        for (int i = 0; i < 2; ++i) CHECK(same_bits(gradients[0][i], gradients[1][i]));
    }
}

TEST_CASE("bfloat16: each example's gradients of scale and shift are of float", "[bfloat16]") {
    constexpr index_t examples = 3, rows = 7, channels = 5, n = examples * rows * channels;
    const two x = drawn(n, 1), dy = drawn(n, 2);
    const std::vector<std::uint8_t> bits(static_cast<std::size_t>(n), 0x5a);
    for (const normalised_by by : {normalised_by::channel, normalised_by::row}) {
        const auto mean = kernel_tests::draw<float>(examples * rows, 3),
                   invstd = kernel_tests::draw<float>(examples * rows, 4);
        const auto sums = [&](const auto* gradient, const auto* in) {
            std::vector<float> both(2 * examples * channels);
            per_example_gradients(host, examples, rows, channels, by, gradient, in, bits.data(), activation::leaky_relu,
                                  0.3f, mean.data(), invstd.data(), both.data(), both.data() + examples * channels);
            return both;
        };
        CHECK(same_bits(sums(dy.half.data(), x.half.data()), sums(dy.wide.data(), x.wide.data())));
    }
}

TEST_CASE("bfloat16: pools sum in float", "[bfloat16]") {
    for (const index_t channels : {6, 16, 21})
        for (const auto& [kernel, stride, pad] : {std::array<index_t, 3>{2, 2, 0}, {3, 2, 1}}) {
            const pool_geometry g{.n = 2,
                                  .channels = channels,
                                  .axis = {pool_axis::sliding(1, 1, 1, 0), pool_axis::sliding(9, kernel, stride, pad),
                                           pool_axis::sliding(8, kernel, stride, pad)}};
            CAPTURE(channels, kernel, stride);
            const index_t n = g.x_elements(), m = g.y_elements();
            two x = drawn(n, 1), dy = drawn(m, 2), y = unset(m), dx = unset(n);
            std::vector<std::uint8_t> codes(static_cast<std::size_t>(m));
            in_both([&](auto* from, auto* to) { max_pool_forward(host, g, from, to, codes.data()); }, x, y);
            in_both([&](auto* from, auto* to) { max_pool_backward(host, g, from, codes.data(), to); }, dy, dx);
            in_both([&](auto* from, auto* to) { average_pool_forward(host, g, from, to); }, x, y);
            in_both([&](auto* from, auto* to) { average_pool_backward(host, g, from, to); }, dy, dx);
        }
    const index_t n = 3, points = 700, channels = 21;
    two x = drawn(n * points * channels, 1), dy = drawn(n * channels, 2), y = unset(n * channels),
        dx = unset(n * points * channels);
    in_both([&](auto* from, auto* to) { global_average_forward(host, n, points, channels, from, to); }, x, y);
    in_both([&](auto* from, auto* to) { global_average_backward(host, n, points, channels, from, to); }, dy, dx);
}

TEST_CASE("bfloat16: sums down columns and gradients of tables are of float", "[bfloat16]") {
    for (const auto& size : {std::pair<index_t, index_t>{1000, 33}, {5, 300}}) {
        const index_t rows = size.first, columns = size.second;
        const two x = drawn(rows * columns, 1);
        auto half = kernel_tests::draw<float>(columns, 2), wide = half;
        column_sums(host, rows, columns, x.half.data(), half.data(), true);
        column_sums(host, rows, columns, x.wide.data(), wide.data(), true);
        CHECK(same_bits(half, wide));
        std::vector<std::int32_t> of_half(static_cast<std::size_t>(rows)), of_wide = of_half;
        argmax_rows(host, rows, columns, x.half.data(), of_half.data());
        argmax_rows(host, rows, columns, x.wide.data(), of_wide.data());
        CHECK(of_half == of_wide);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
        for (std::size_t r = 0; r < ids.size(); ++r) ids[r] = static_cast<std::int32_t>(r * r % 7);
        auto half_table = kernel_tests::draw<float>(7 * columns, 3), wide_table = half_table;
        embedding_backward(host, rows, 7, columns, ids.data(), x.half.data(), half_table.data());
        embedding_backward(host, rows, 7, columns, ids.data(), x.wide.data(), wide_table.data());
        CHECK(same_bits(half_table, wide_table));
    }
}

TEST_CASE("bfloat16: long sums do not stop growing", "[bfloat16]") {
    // In bfloat16 a sum of ones ends at 256.
    constexpr index_t rows = 100'000;
    const std::vector<bfloat16> ones(rows * 2, bfloat16(1.0f));
    float sums[2];
    column_sums(host, rows, 2, ones.data(), sums, false);
    CHECK(sums[0] == rows);
    std::vector<float> mean(2), var(2);
    batch_statistics(host, rows, 2, ones.data(), mean.data(), var.data());
    CHECK((mean[0] == 1 && var[1] == 0));
    std::vector<bfloat16> y(2);
    global_average_forward(host, 1, rows, 2, ones.data(), y.data());
    CHECK(float{y[0]} == 1);
    for (const char* kernel : {"onednn", "widened"}) {
        const kernel_tests::forced f("gemm", kernel);
        float product[4] = {1, 1, 1, 1};
        gemm(host, true, false, 2, 2, rows, 1.0f, ones.data(), 2, ones.data(), 2, 1.0f, product, 2);
        CHECK(product[3] == rows + 1);
    }
    std::vector<bfloat16> row(rows, bfloat16(0.0f)), p(rows);
    softmax_forward(host, 1, rows, row.data(), p.data());
    CHECK(float{p[5]} == float{bfloat16(1.0f / rows)});
}

TEST_CASE("bfloat16: softmax and attention compute in float", "[bfloat16]") {
    for (const auto& size : {std::pair<index_t, index_t>{5, 7}, {40, 128}}) {
        const index_t rows = size.first, classes = size.second;
        two x = drawn(rows * classes, 1), dy = drawn(rows * classes, 2), y = unset(rows * classes),
            dx = unset(rows * classes);
        in_both([&](auto* from, auto* to) { softmax_forward(host, rows, classes, from, to); }, x, y);
        in_both([&](auto* p, auto* from, auto* to) { softmax_backward(host, rows, classes, p, from, to); }, x, dy, dx);
    }
    for (const bool causal : {false, true})
        for (const double rate : {0.0, 0.2})
            for (const index_t length : {5, 150}) {
                attention_geometry g{
                    .batch = 2, .length = length, .heads = 2, .head_dim = 20, .causal = causal, .stride = 120};
                g.dropout = rate;
                CAPTURE(causal, rate, length);
                const index_t n = 2 * length * 40;
                two qkv = drawn(3 * n, 1), dy = drawn(n, 2), dqkv = unset(3 * n), y = unset(n);
                std::vector<float> logs[2];
                int of = 0;
                in_both(
                    [&](auto* q, auto* to) {
                        logs[of].resize(static_cast<std::size_t>(4 * length));
                        attention_forward(host, g, q, q + 40, q + 80, to, logs[of++].data());
                    },
                    qkv, y);
                CHECK(same_bits(logs[0], logs[1]));
                y.wide.assign(y.half.begin(), y.half.end());
                in_both(
                    [&](auto* q, auto* out, auto* gradient, auto* to) {
                        attention_backward(host, g, q, q + 40, q + 80, out, logs[0].data(), gradient, to, to + 40,
                                           to + 80);
                    },
                    qkv, y, dy, dqkv);
            }
}

TEST_CASE("bfloat16: products are sums in float, rounded once, with factors, shares and gaps", "[bfloat16]") {
    for (const char* kernel : {"onednn", "widened"})
        for (const auto& [m, n, k] : {std::array<index_t, 3>{1, 1, 1}, {5, 7, 3}, {33, 40, 129}, {64, 256, 100}})
            for (const bool ta : {false, true})
                for (const bool tb : {false, true})
                    for (const float beta : {0.0f, 1.0f, 0.5f}) {
                        CAPTURE(kernel, m, n, k, ta, tb, beta);
                        const kernel_tests::forced f("gemm", kernel);
                        const index_t gap = 3, lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
                        const two a = drawn((ta ? k : m) * lda, 1), b = drawn((tb ? n : k) * ldb, 2);
                        two c = drawn(m * ldc, 3);
                        std::vector<float> c32 = c.wide;
                        const float alpha = beta == 0.5f ? 0.25f : 1.0f;
                        gemm(host, ta, tb, m, n, k, alpha, a.half.data(), lda, b.half.data(), ldb, beta, c.half.data(),
                             ldc);
                        gemm(host, ta, tb, m, n, k, alpha, a.half.data(), lda, b.half.data(), ldb, beta, c32.data(),
                             ldc);
                        gemm(host, ta, tb, m, n, k, alpha, a.wide.data(), lda, b.wide.data(), ldb, beta, c.wide.data(),
                             ldc);
                        double worst = 0, worst32 = 0;
                        for (std::size_t i = 0; i < c32.size(); ++i) {
                            const double exact = static_cast<double>(c.wide[i]);
                            worst32 = std::max(worst32, std::abs(static_cast<double>(c32[i]) - exact));
                            worst = std::max(worst, std::abs(static_cast<double>(float{c.half[i]}) - exact) -
                                                        0x1p-8 * std::abs(exact));
                        }
                        CHECK(worst32 <= 1e-5 * static_cast<double>(k));
                        CHECK(worst <= 1e-5 * static_cast<double>(k));
                    }
}

TEST_CASE("bfloat16: gemm_bias and linear_gradients", "[bfloat16]") {
    for (const char* kernel : {"onednn", "widened"})
        for (const activation act : {activation::none, activation::relu, activation::gelu, activation::gelu_tanh})
            for (const bool with_sum : {false, true}) {
                CAPTURE(kernel, name_of(act), with_sum);
                const kernel_tests::forced f("gemm", kernel);
                const index_t m = 37, n = 50, k = 65;
                const two x = drawn(m * k, 1), w = drawn(n * k, 2), bias = drawn(n, 3), added = drawn(m * n, 4);
                two y = unset(m * n);
                gemm_bias(host, false, true, m, n, k, 1.0f, x.half.data(), k, w.half.data(), k, y.half.data(), n,
                          bias.half.data(), act, with_sum ? added.half.data() : nullptr);
                gemm_bias(host, false, true, m, n, k, 1.0f, x.wide.data(), k, w.wide.data(), k, y.wide.data(), n,
                          bias.wide.data(), act, with_sum ? added.wide.data() : nullptr);
                for (std::size_t i = 0; i < y.half.size(); ++i)
                    REQUIRE(std::abs(float{y.half[i]} - y.wide[i]) <= 0x1p-8f * std::abs(y.wide[i]) + 1e-5f * k);
                std::vector<float> dw(n * k, 1.0f), db(n, 2.0f), dw32 = dw, db32 = db;
                linear_gradients(host, m, n, k, added.half.data(), x.half.data(), dw.data(), db.data());
                linear_gradients(host, m, n, k, added.wide.data(), x.wide.data(), dw32.data(), db32.data());
                CHECK(same_bits(db, db32));
                CHECK(kernel_tests::distance(dw, dw32) <= 1e-5 * m);
            }
}

TEST_CASE("bfloat16: convolutions", "[bfloat16]") {
    conv_geometry g{.n = 3, .c_in = 24, .c_out = 40};
    g.kernel = {1, 3, 3};
    g.pad = {0, 1, 1};
    g.in = {1, 11, 9};
    g = g.with_output();
    conv_geometry pointwise = g, strided = g, deep = g, seven = g;
    pointwise.kernel = {1, 1, 1}, pointwise.pad = {0, 0, 0};
    strided.stride = {1, 2, 2};
    deep.kernel = {3, 3, 3}, deep.in = {5, 6, 7}, deep.pad = {1, 1, 1}, deep.c_in = 4;
    seven.kernel = {1, 7, 7}, seven.pad = {0, 3, 3}, seven.stride = {1, 2, 2}, seven.c_in = 3;
    for (conv_geometry* other : {&pointwise, &strided, &deep, &seven}) *other = other->with_output();
    for (const conv_geometry& c : {g, pointwise, strided, deep, seven})
        for (const char* algorithm : {"direct", "winograd4", "winograd2", "tiled", "im2col", "plain"}) {
            CAPTURE(algorithm, c.to_string());
            if (std::string_view(algorithm).starts_with("winograd") && !winograd_applies(c, 4)) continue;
            const kernel_tests::forced f("conv", algorithm);
            const two x = drawn(c.x_elements(), 1), w = drawn(c.w_elements(), 2), bias = drawn(c.c_out, 3),
                      dy = drawn(c.y_elements(), 4);
            two y = unset(c.y_elements()), dx = unset(c.x_elements());
            std::vector<float> dw(w.wide.size(), 1.0f), dw32 = dw, db(bias.wide.size(), 2.0f), db32 = db;
            conv_forward(host, c, x.half.data(), w.half.data(), bias.half.data(), y.half.data());
            conv_backward_input(host, c, dy.half.data(), w.half.data(), dx.half.data());
            conv_backward_weight(host, c, x.half.data(), dy.half.data(), dw.data(), db.data());
            conv_forward(host, c, x.wide.data(), w.wide.data(), bias.wide.data(), y.wide.data());
            conv_backward_input(host, c, dy.wide.data(), w.wide.data(), dx.wide.data());
            conv_backward_weight(host, c, x.wide.data(), dy.wide.data(), dw32.data(), db32.data());
            CHECK(same_bits(db, db32));
            const bool direct = std::string_view(algorithm) == "direct",
                       im2col = std::string_view(algorithm) == "im2col";
            if (direct) {  // oneDNN orders its sums in its own way
                for (const two* t : {&y, &dx})
                    for (std::size_t i = 0; i < t->half.size(); ++i)
                        REQUIRE(std::abs(float{t->half[i]} - t->wide[i]) <= 0x1p-8f * std::abs(t->wide[i]) + 1e-3f);
            } else {
                check_rounded(y);
                check_rounded(dx);
            }
            if (direct || im2col)
                CHECK(kernel_tests::distance(dw, dw32) <= 1e-4);
            else
                CHECK(same_bits(dw, dw32));
        }
}

}  // namespace bfloat16_kernels
