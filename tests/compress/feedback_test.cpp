#include "compress/compressor_laws.hpp"

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>

namespace laws {

namespace {

// Σ sent + residual = Σ gradients, after many steps, to rounding of the sums.
template <class C>
void check_telescope(C inner, index_t n, int steps) {
    error_feedback<C> c(std::move(inner));
    std::vector<double> sent(static_cast<std::size_t>(n)), wanted(sent), scale(sent);
    for (int t = 0; t < steps; ++t) {
        const floats g = numbers(t % 2 ? "heavy tail" : "normal", n, static_cast<std::uint32_t>(t + 1));
        const encode_step at{.seed = 3, .step = t};
        const floats y = decoded(c, encoded(c, g, at), n, at);
        for (std::size_t i = 0; i < g.size(); ++i) {
            sent[i] += y[i];
            wanted[i] += g[i];
            scale[i] += std::abs(g[i]) + std::abs(y[i]);
        }
    }
    const auto state = c.tensors();
    REQUIRE(state.size() == 1);
    REQUIRE(state[0].name == "residual");
    for (std::size_t i = 0; i < sent.size(); ++i)
        REQUIRE(std::abs(sent[i] + state[0].t[static_cast<index_t>(i)] - wanted[i]) <= 1e-6 * scale[i]);
}

}  // namespace

TEST_CASE("error feedback loses nothing: what was sent and the residual are all gradients", "[feedback]") {
    check_telescope(topk({.ratio = 0.05}), 1000, 60);
    check_telescope(bf16{}, 333, 60);
    check_telescope(topk({.ratio = 0.1, .values = sparse_value::bfloat16}), 1000, 60);
}

TEST_CASE("error feedback sends small values in the end", "[feedback]") {
    error_feedback c(topk({.ratio = 0.25}));
    const floats g{1, 0.3f, 0.3f, 0.3f};
    floats total(4);
    for (int t = 0; t < 40; ++t) {
        const floats y = decoded(c, encoded(c, g), 4);
        for (std::size_t i = 0; i < 4; ++i) total[i] += y[i] / 40;
    }
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(total[i] - g[i]) < 0.1f);
}

TEST_CASE("error feedback: an error leaves the residual alone, another size is refused", "[feedback]") {
    error_feedback c(topk({.ratio = 0.25}));
    message<> m;
    c.encode(floats{1, 2, 3, 4}, m, {});
    const floats before(c.tensors()[0].t.span().begin(), c.tensors()[0].t.span().end());
    REQUIRE(before == floats{1, 2, 3, 0});
    REQUIRE_THROWS_AS(c.encode(floats{1, 2, std::nanf(""), 4}, m, {}), error);
    const auto residual = c.tensors()[0].t.span();
    REQUIRE(floats(residual.begin(), residual.end()) == before);
    REQUIRE_THROWS_WITH(c.encode(floats{1}, m, {}), Catch::Contains("a bucket of 1 values after one of 4"));
}

TEST_CASE("error feedback: the state can be made before the first bucket, for a checkpoint", "[feedback]") {
    error_feedback c(topk({.ratio = 0.5}));
    REQUIRE(c.tensors().empty());
    c.prepare(2);
    c.tensors()[0].t[0] = 10;
    REQUIRE(decoded(c, encoded(c, {1, 2}), 2) == floats{11, 0});
}

TEST_CASE("what was kept back can be sent dense", "[feedback]") {
    error_feedback c(sign{});
    const floats g = numbers("normal", 500);
    floats next(500, 1.0f);
    c.flush_residual(next);  // nothing yet
    REQUIRE(next == floats(500, 1.0f));
    const floats sent = decoded(c, encoded(c, g), 500);
    c.flush_residual(next);
    for (std::size_t i = 0; i < next.size(); ++i) REQUIRE(next[i] == Approx(1 + g[i] - sent[i]).margin(1e-6));
    floats again(500, 1.0f), wrong(499);
    c.flush_residual(again);
    REQUIRE(again == floats(500, 1.0f));
    REQUIRE_THROWS_AS(c.flush_residual(wrong), error);
    sign without;
    without.flush_residual(again);
    REQUIRE(again == floats(500, 1.0f));
}

}  // namespace laws
