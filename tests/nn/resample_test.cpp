// Padding and up-sampling: the laws of layers, and plain loops over their definitions.

#include "layer_laws.hpp"

#include <cairn/nn/resample.hpp>

namespace cairn::resample_tests {

// An axis too many is what they refuse.
template <class Make>
void check(std::string name, shape in, Make make) {
    laws::law_case c = laws::make_case(std::move(name), in, make);
    c.wrong = shape{in[0], in.back()};
    laws::check_laws(c);
}

index_t modulo(index_t a, index_t n) { return (a % n + n) % n; }

// Linear interpolation of a row at the points (o + ½) / 2 − ½.
double interpolated(const std::vector<double>& row, index_t o, bool periodic) {
    const auto n = static_cast<index_t>(row.size());
    const double at = (static_cast<double>(o) + 0.5) / 2 - 0.5, below = std::floor(at), share = at - below;
    const auto value = [&](index_t i) {
        return row[static_cast<std::size_t>(periodic ? modulo(i, n) : std::clamp<index_t>(i, 0, n - 1))];
    };
    return (1 - share) * value(static_cast<index_t>(below)) + share * value(static_cast<index_t>(below) + 1);
}

TEST_CASE("resample: laws", "[laws][resample]") {
    check("circular_pad of the second axis", {2, 3, 5, 2}, [](auto t) {
        return circular_pad<decltype(t)>({.pad = 1, .periodic = {false, true}});
    });
    check("circular_pad by a whole axis", {1, 2, 3, 4, 3}, [](auto t) {
        return circular_pad<decltype(t)>({.pad = 2, .periodic = {true, false, true}, .dims = 3});
    });
    check("linear_upsample", {2, 3, 4, 2}, [](auto t) { return linear_upsample<decltype(t)>({}); });
    check("linear_upsample 1D, periodic", {2, 5, 3},
          [](auto t) { return linear_upsample<decltype(t)>({.periodic = {true}, .dims = 1}); });
    check("linear_upsample 3D of single points", {2, 1, 3, 2, 2}, [](auto t) {
        return linear_upsample<decltype(t)>({.periodic = {true, true, false}, .dims = 3});
    });
}

TEST_CASE("resample: a padded grid continues at its other end", "[resample]") {
    const tensor<double> x = laws::numbers<double>({2, 4, 3, 2}, 1);
    circular_pad<double> layer({.pad = 2, .periodic = {false, true}});
    saved_tensors<double> saved;
    const tensor<double> y = layer.forward(x.clone(), saved, {});
    REQUIRE(y.shape() == shape{2, 8, 7, 2});
    for (index_t n = 0; n < 2; ++n)
        for (index_t a = 0; a < 8; ++a)
            for (index_t b = 0; b < 7; ++b)
                for (index_t c = 0; c < 2; ++c) {
                    const bool inside = a >= 2 && a < 6;
                    CHECK(y(n, a, b, c) == (inside ? x(n, a - 2, modulo(b - 2, 3), c) : 0));
                }
    CHECK_THROWS_WITH(layer.output_shape({2, 4, 1, 2}), Catch::Contains("shorter than its padding"));
}

TEST_CASE("resample: linear interpolation halves the distance of points", "[resample]") {
    for (const bool periodic : {false, true}) {
        const tensor<double> x = laws::numbers<double>({1, 4, 3, 1}, 2);
        linear_upsample<double> layer({.periodic = {periodic, false}});
        saved_tensors<double> saved;
        const tensor<double> y = layer.forward(x.clone(), saved, {});
        REQUIRE(y.shape() == shape{1, 8, 6, 1});
        for (index_t a = 0; a < 8; ++a)
            for (index_t b = 0; b < 6; ++b) {
                std::vector<double> column;
                for (index_t i = 0; i < 4; ++i) {
                    const std::vector<double> row{x(0, i, 0, 0), x(0, i, 1, 0), x(0, i, 2, 0)};
                    column.push_back(interpolated(row, b, false));
                }
                CHECK(y(0, a, b, 0) == Approx(interpolated(column, a, periodic)).margin(1e-14));
            }
    }
}

}  // namespace cairn::resample_tests
