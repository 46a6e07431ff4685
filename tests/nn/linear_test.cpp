#include "layer_laws.hpp"

#include <cairn/nn/linear.hpp>

namespace cairn {
using laws::make_case;

TEST_CASE("linear: laws", "[laws][linear]") {
    laws::check_laws(
        make_case("linear 5 -> 3", {4, 5}, [](auto t) { return linear<decltype(t)>({.in = 5, .out = 3}); }));
    laws::check_laws(
        make_case("linear, one row", {1, 33}, [](auto t) { return linear<decltype(t)>({.in = 33, .out = 17}); }));
    laws::check_laws(
        make_case("linear, one feature", {7, 1}, [](auto t) { return linear<decltype(t)>({.in = 1, .out = 1}); }));
    laws::check_laws(make_case("linear without bias", {3, 8},
                               [](auto t) { return linear<decltype(t)>({.in = 8, .out = 5, .bias = false}); }));
    laws::check_laws(make_case("linear over three axes", {2, 3, 4, 6},
                               [](auto t) { return linear<decltype(t)>({.in = 6, .out = 9}); }));
    laws::check_laws(
        make_case("linear, larger", {65, 130}, [](auto t) { return linear<decltype(t)>({.in = 130, .out = 70}); }));
}

TEST_CASE("linear: plain loops", "[linear]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    const auto [rows, in, out] =
        GENERATE(table<index_t, index_t, index_t>({{1, 1, 1}, {3, 5, 2}, {31, 17, 23}, {64, 100, 10}}));
    laws::bench<double> b(linear<double>({.in = in, .out = out}));
    const tensor<double> x = laws::numbers<double>({rows, in}, 1), dy = laws::numbers<double>({rows, out}, 2);
    const auto r = b.run(x.share(), dy.share());
    const auto& w = b.arena.parameters()[0].p->value;
    const auto& bias = b.arena.parameters()[1].p->value;
    for (index_t n = 0; n < rows; ++n)
        for (index_t o = 0; o < out; ++o) {
            double sum = bias[o];
            for (index_t i = 0; i < in; ++i) sum += x(n, i) * w(o, i);
            REQUIRE(r.y(n, o) == Approx(sum).margin(1e-12));
        }
    for (index_t n = 0; n < rows; ++n)
        for (index_t i = 0; i < in; ++i) {
            double sum = 0;
            for (index_t o = 0; o < out; ++o) sum += dy(n, o) * w(o, i);
            REQUIRE(r.dx(n, i) == Approx(sum).margin(1e-12));
        }
    for (index_t o = 0; o < out; ++o) {
        double column = 0;
        for (index_t n = 0; n < rows; ++n) column += dy(n, o);
        REQUIRE(r.grads[1][o] == Approx(column).margin(1e-12));
        for (index_t i = 0; i < in; ++i) {
            double sum = 0;
            for (index_t n = 0; n < rows; ++n) sum += dy(n, o) * x(n, i);
            REQUIRE(r.grads[0](o, i) == Approx(sum).margin(1e-12));
        }
    }
}

TEST_CASE("linear: errors", "[linear]") {
    CHECK_THROWS_AS(linear<float>({.in = 0, .out = 3}), error);
    linear<float> unbound({.in = 2, .out = 3});
    saved_tensors<float> saved;
    CHECK_THROWS_WITH(unbound.forward(tensor<float>::zeros({1, 2}), saved, {}), Catch::Contains("arena"));
}

}  // namespace cairn
