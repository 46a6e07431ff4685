#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/nn/find_non_finite.hpp>
#include <cairn/nn/linear.hpp>

#include <limits>

using namespace cairn;
using Catch::Matchers::Contains;

TEST_CASE("the first layer with a result that is not finite is named") {
    sequential<float> inner, model;
    inner.add("a", linear<float>({.in = 4, .out = 5})).add("b", linear<float>({.in = 5, .out = 6}));
    model.add("first", linear<float>({.in = 3, .out = 4}))
        .add("block", std::move(inner))
        .add("last", linear<float>({.in = 6, .out = 2}));
    arena<float> memory(model.parameters(), 1);
    const auto find = [&](const tensor<float>& x) { return first_non_finite(model, x.share(), pass_context{}); };
    auto x = tensor<float>::filled({2, 3}, 1.0f);
    CHECK(find(x).empty());

    const auto parameter_named = [&](const std::string& name) {
        for (const auto& [n, p] : memory.parameters())
            if (n == name) return p;
        throw std::runtime_error("no " + name);
    };
    parameter_named("last/weight")->value[0] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THAT(find(x), Contains("the output of layer last") && Contains("(2, 2) is nan"));
    parameter_named("block/b/weight")->value[0] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THAT(find(x), Contains("the output of layer block/b") && Contains("(2, 6)"));
    x[4] = std::numeric_limits<float>::infinity();
    CHECK_THAT(find(x), Contains("the input (element 4 of (2, 3) is inf)"));
}
