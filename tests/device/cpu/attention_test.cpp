#include "catch.hpp"

#include <cairn/device/cpu/attention.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/attention.hpp"

namespace cairn {

using namespace kernel_tests;

namespace {

/// Forward and backward on parts of one array (batch, length, 3, heads, head_dim), as a projection leaves them.
template <class T>
struct run {
    std::vector<T> y, lse, dqkv;

    run(attention_geometry g, const std::vector<T>& qkv, const std::vector<T>& dy)
        : y(dy.size(), T(7)), lse(std::size_t(g.batch * g.heads * g.length), T(7)), dqkv(qkv.size(), T(7)) {
        g.stride = 3 * g.width();
        const index_t w = g.width();
        const index_t w2 = qkv.empty() ? 0 : 2 * w, w1 = w2 / 2;  // no address beside an array that is not there
        const T* const in = qkv.data();
        attention_forward(cpu{}, g, in, in + w1, in + w2, y.data(), lse.data());
        attention_backward(cpu{}, g, in, in + w1, in + w2, y.data(), lse.data(), dy.data(), dqkv.data(),
                           dqkv.data() + w1, dqkv.data() + w2);
    }
};

/// Part 0, 1 or 2 of (rows, 3, width), dense.
template <class T>
std::vector<T> part(const std::vector<T>& all, index_t width, index_t which) {
    std::vector<T> one;
    for (std::size_t at = std::size_t(which * width); at < all.size(); at += std::size_t(3 * width))
        one.insert(one.end(), all.begin() + std::ptrdiff_t(at), all.begin() + std::ptrdiff_t(at) + width);
    return one;
}

template <class T>
std::vector<double> part_in_double(const std::vector<T>& all, index_t width, index_t which) {
    return doubles(part(all, width, which));
}

oracle::attention_result expected(const attention_geometry& g, const std::vector<double>& qkv,
                                  const std::vector<double>& dy) {
    oracle::attention_case c{std::size_t(g.batch),
                             std::size_t(g.length),
                             std::size_t(g.heads),
                             std::size_t(g.head_dim),
                             g.causal,
                             g.factor(),
                             {}};
    if (g.lengths) c.lengths.assign(g.lengths, g.lengths + g.batch);
    if (g.dropout > 0)
        c.mask = oracle::attention_mask(c, g.dropout, [&](std::uint64_t block) { return g.random.bits4(block); });
    const auto of = [&](index_t which) { return part(qkv, g.width(), which); };
    return oracle::attention(c, of(0), of(1), of(2), dy);
}

template <class T>
void check(const attention_geometry& g, double size = 1) {
    CAPTURE(g.batch, g.length, g.heads, g.head_dim, g.causal, g.lengths != nullptr, g.dropout, size);
    const index_t n = g.batch * g.length * g.width();
    const auto qkv = draw<T>(3 * n, 1, size), dy = draw<T>(n, 2);
    const run<T> got(g, qkv, dy);
    const auto want = expected(g, doubles(qkv), doubles(dy));
    // A rounding error of a score is one of its summands' size, and changes a weight by as much.
    const double score = std::max(1.0, size * size * std::sqrt(double(g.head_dim)) * std::abs(g.factor()) * 4);
    const double bound = eps<T>(8 * score * std::sqrt(double(g.head_dim)) + 8 * std::sqrt(double(g.length)));
    CHECK(distance(got.y, want.y) <= bound * size);
    CHECK(distance(got.lse, want.lse) <= bound);
    CHECK(distance(part_in_double(got.dqkv, g.width(), 0), want.dq) <= 20 * bound * size * size);
    CHECK(distance(part_in_double(got.dqkv, g.width(), 1), want.dk) <= 20 * bound * size * size);
    CHECK(distance(part_in_double(got.dqkv, g.width(), 2), want.dv) <= 20 * bound);
}

}  // namespace

TEMPLATE_TEST_CASE("attention: values and gradients against plain loops", "[attention]", float, double) {
    using T = TestType;
    for (const bool causal : {false, true}) {
        for (const index_t length : {1, 2, 17, 111, 113, 129, 300})
            for (const index_t head_dim : {1, 5, 16, 64})
                if (length < 200 || head_dim == 16)
                    check<T>({.batch = 2, .length = length, .heads = 3, .head_dim = head_dim, .causal = causal});
        check<T>({.batch = 1, .length = 40, .heads = 1, .head_dim = 130, .causal = causal});
        check<T>({.batch = 1, .length = 140, .heads = 2, .head_dim = 8, .causal = causal, .scale = -0.7});
        const std::int32_t lengths[]{150, 0, 1, 113, 128};
        check<T>(
            {.batch = 5, .length = 150, .heads = 2, .head_dim = 9, .causal = causal, .scale = 0.5, .lengths = lengths});
        check<T>({.batch = 0, .length = 3, .heads = 1, .head_dim = 4, .causal = causal});
        check<T>({.batch = 2, .length = 0, .heads = 1, .head_dim = 4, .causal = causal});
    }
}

TEMPLATE_TEST_CASE("attention: dropout against plain loops, values and gradients", "[attention]", float, double) {
    using T = TestType;
    const random_stream random{.seed = 11, .stream = 5, .step = 3};
    for (const bool causal : {false, true}) {
        for (const index_t length : {1, 2, 17, 113, 131, 300})
            check<T>({.batch = 2,
                      .length = length,
                      .heads = 3,
                      .head_dim = 8,
                      .causal = causal,
                      .dropout = 0.25,
                      .random = random});
        const std::int32_t lengths[]{150, 0, 1, 113, 128};
        for (const double dropout : {0.1, 0.6})
            check<T>({.batch = 5,
                      .length = 150,
                      .heads = 2,
                      .head_dim = 5,
                      .causal = causal,
                      .scale = 0.5,
                      .lengths = lengths,
                      .dropout = dropout,
                      .random = random});
    }
}

TEST_CASE("attention: dropout keeps as many weights as it says, others every step, the step where it is told",
          "[attention]") {
    attention_geometry g{.batch = 1, .length = 200, .heads = 2, .head_dim = 1, .dropout = 0.3, .random = {1, 2, 3}};
    const std::vector<float> zero(400, 0), one(400, 1);  // all weights 1 / 200
    const auto kept = [&] {
        std::vector<float> y(400);
        attention_forward<float>(cpu{}, g, zero.data(), zero.data(), one.data(), y.data(), nullptr);
        return y;
    };
    const auto first = kept();
    double sum = 0;
    for (const float v : first) sum += double(v);
    CHECK(sum / 400 == Approx(1).margin(0.02));  // standard deviation of the mean 0.0023
    CHECK(kept() == first);
    g.random.step = 4;
    const auto second = kept();
    CHECK(second != first);
    g.random.step = 77;
    const std::uint32_t step = 4;
    g.step = &step;
    CHECK(kept() == second);
}

TEST_CASE("attention: scores of ten thousand and more do not overflow", "[attention]") {
    // Weights are 0 and 1 but for ties: the largest score of a row is far from the next.
    const attention_geometry g{.batch = 1, .length = 200, .heads = 1, .head_dim = 4, .scale = 1};
    check<double>(g, 100);
    auto qkv = draw<float>(3 * 200 * 4, 1, 100);
    const auto dy = draw<float>(200 * 4, 2);
    const run<float> got(g, qkv, dy);
    const auto want = expected(g, doubles(qkv), doubles(dy));
    double most = 0;
    for (const double log : want.lse) most = std::max(most, std::abs(log));
    CHECK(most > 1e4);
    CHECK(distance(got.lse, want.lse) <= eps<float>(10));
    for (const float v : got.dqkv) REQUIRE(std::isfinite(v));
    for (const float v : got.y) REQUIRE(std::isfinite(v));
}

TEST_CASE("attention: the same bits on any number of threads, heads whole or in tiles", "[attention]") {
    for (const bool causal : {false, true}) {
        const std::int32_t lengths[]{300, 261, 7};
        const attention_geometry g{.batch = 3,
                                   .length = 300,
                                   .heads = 2,
                                   .head_dim = 20,
                                   .causal = causal,
                                   .lengths = lengths,
                                   .dropout = causal ? 0.2 : 0.0,
                                   .random = {4, 5, 6}};
        const auto qkv = draw<float>(3 * g.batch * g.length * g.width(), 1),
                   dy = draw<float>(g.batch * g.length * g.width(), 2);
        const run<float> first(g, qkv, dy);
        on_several_threads([&](int) {
            const run<float> other(g, qkv, dy);
            CHECK(same_bits(other.y, first.y));
            CHECK(same_bits(other.lse, first.lse));
            CHECK(same_bits(other.dqkv, first.dqkv));
        });
        std::vector<float> y(first.y.size());
        attention_geometry packed = g;
        packed.stride = 3 * g.width();
        attention_forward<float>(cpu{}, packed, qkv.data(), qkv.data() + g.width(), qkv.data() + 2 * g.width(),
                                 y.data(), nullptr);
        CHECK(same_bits(y, first.y));
    }
}

TEST_CASE("attention: what is not a number is not hidden, and goes no further than it must", "[attention]") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::int32_t lengths[]{130, 20};
    const attention_geometry g{.batch = 2, .length = 150, .heads = 2, .head_dim = 4, .lengths = lengths};
    const index_t w = g.width();
    const auto clean = draw<float>(3 * 2 * 150 * w, 1), dy = draw<float>(2 * 150 * w, 2);
    const run<float> good(g, clean, dy);
    const auto head_is = [&](const run<float>& r, index_t n, index_t h, auto&& holds) {
        for (index_t i = 0; i < lengths[n]; ++i)
            for (index_t c = 0; c < 4; ++c) REQUIRE(holds(std::size_t(((n * 150 + i) * 2 + h) * 4 + c), r));
    };
    const auto same = [&](std::size_t at, const run<float>& r) { return r.y[at] == good.y[at]; };
    const auto broken = [](std::size_t at, const run<float>& r) { return std::isnan(r.y[at]); };
    for (const index_t what : {1, 2}) {  // a key, a value: of sequence 0, head 1
        auto qkv = clean;
        qkv[std::size_t((129 * 3 + what) * w + 4)] = nan;
        if (what == 2)
            for (index_t c = 1; c < 4; ++c) qkv[std::size_t((129 * 3 + what) * w + 4 + c)] = nan;
        const run<float> r(g, qkv, dy);
        head_is(r, 0, 0, same);
        head_is(r, 0, 1, broken);
        head_is(r, 1, 0, same);
        head_is(r, 1, 1, same);
    }
    auto padded = clean;  // nothing is read beyond a sequence's length
    for (std::size_t at = std::size_t(130 * 3 * w); at < std::size_t(150 * 3 * w); ++at) padded[at] = nan;
    const run<float> r(g, padded, dy);
    CHECK(same_bits(r.y, good.y));
    CHECK(same_bits(r.dqkv, good.dqkv));

    // Scores of −∞ in the first tile alone: those keys weigh nothing; in all of them: a row without weights.
    const attention_geometry one{.batch = 1, .length = 140, .heads = 1, .head_dim = 1, .scale = 1};
    std::vector<float> q(140, 1), k(140, -inf), v(140, 3), y(140), lse(140);
    k[135] = 1, v[135] = 5;
    attention_forward(cpu{}, one, q.data(), k.data(), v.data(), y.data(), lse.data());
    CHECK(y[0] == 5);
    CHECK(lse[139] == 1);
    k[135] = -inf;
    attention_forward(cpu{}, one, q.data(), k.data(), v.data(), y.data(), lse.data());
    CHECK(std::isnan(y[0]));
}

TEST_CASE("attention: errors say what does not fit", "[attention]") {
    std::vector<float> x(16), y(16);
    const auto call = [&](const attention_geometry& g) {
        attention_forward<float>(cpu{}, g, x.data(), x.data(), x.data(), y.data(), nullptr);
    };
    CHECK_THROWS_WITH(call({.batch = 1, .length = 2, .heads = 0, .head_dim = 4}), Catch::Contains("0 heads of 4"));
    CHECK_THROWS_WITH(call({.batch = 1, .length = 2, .heads = 2, .head_dim = 4, .stride = 7}),
                      Catch::Contains("7 elements"));
    CHECK_THROWS_WITH(call({.batch = 1, .length = 2, .heads = 2, .head_dim = 4, .dropout = 1}),
                      Catch::Contains("dropout 1 is not in [0, 1)"));
    const std::int32_t lengths[]{2, 3};
    CHECK_THROWS_WITH(call({.batch = 2, .length = 2, .heads = 1, .head_dim = 4, .lengths = lengths}),
                      Catch::Contains("sequence 1 has length 3"));
}

}  // namespace cairn
