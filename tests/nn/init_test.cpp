#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/linear.hpp>

namespace cairn {

namespace {

/// Mean and variance of numbers that `rule` gives to a tensor with these fans.
std::pair<double, double> moments(const init_rule& rule, index_t in, index_t out) {
    std::vector<double> v(200'000);
    fill(std::span<double>(v), rule(in, out), random_stream{1, 2, 3});
    double sum = 0, squares = 0;
    for (double x : v) sum += x;
    for (double x : v) squares += x * x;
    const double n = static_cast<double>(v.size()), mean = sum / n;
    return {mean, squares / n - mean * mean};
}

}  // namespace

TEST_CASE("init: variance is gain / fan", "[init]") {
    const auto check = [](const init_rule& rule, double variance) {
        const auto [mean, var] = moments(rule, 300, 100);
        CHECK(mean == Approx(0).margin(5 * std::sqrt(variance / 200'000)));
        CHECK(var == Approx(variance).epsilon(0.02));
    };
    check(init::kaiming_normal, 2.0 / 300);
    check(init::kaiming_uniform, 2.0 / 300);
    check(init::kaiming_normal_fan_out, 2.0 / 100);
    check(init::xavier_normal, 2.0 / 400);
    check(init::xavier_uniform, 2.0 / 400);
    check(init::lecun_normal, 1.0 / 300);
    check(init::lecun_uniform, 1.0 / 300);
    check(init::pytorch, 1.0 / 900);
    check(init::kaiming_normal.scaled(0.25), 0.5 / 300);
    CHECK(moments(init::zeros, 300, 100).second == 0);
}

TEST_CASE("init: PyTorch's rule is uniform within 1 / sqrt(fan in)", "[init]") {
    CHECK(init::pytorch(100, 7).kind == initializer::distribution::uniform);
    CHECK(init::pytorch(100, 7).scale == Approx(0.1));
}

TEST_CASE("init: fans of layers", "[init]") {
    linear<float> fc({.in = 50, .out = 10, .init = init::kaiming_normal});
    CHECK(fc.parameters()[0].p->init.scale == Approx(std::sqrt(2.0 / 50)));
    conv<float> c({.in = 8, .out = 12, .kernel = 3, .groups = 2, .init = init::kaiming_normal_fan_out});
    CHECK(c.parameters()[0].p->init.scale == Approx(std::sqrt(2.0 / (6 * 9))));
    CHECK(c.parameters()[1].p->init.scale == Approx(1 / std::sqrt(4.0 * 9)));
    CHECK(c.parameters()[0].p->decay);
    CHECK_FALSE(c.parameters()[1].p->decay);
}

TEST_CASE("init: orthogonal rows or columns", "[init]") {
    const auto check = [](index_t rows, index_t cols) {
        tensor<double> w({rows, cols});
        fill_orthogonal(w, 2.0, random_stream{1, 0, 0});
        const bool wide = rows <= cols;
        const index_t vectors = wide ? rows : cols, length = wide ? cols : rows;
        for (index_t a = 0; a < vectors; ++a)
            for (index_t b = 0; b < vectors; ++b) {
                double dot = 0;
                for (index_t i = 0; i < length; ++i) dot += wide ? w(a, i) * w(b, i) : w(i, a) * w(i, b);
                CHECK(dot == Approx(a == b ? 4.0 : 0.0).margin(1e-12));
            }
    };
    check(3, 7);
    check(8, 8);
    check(9, 4);
}

}  // namespace cairn
