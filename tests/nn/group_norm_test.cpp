// Group norm: the laws of layers, plain loops over its definition, and what K-FAC is told.

#include "layer_laws.hpp"

#include <cairn/nn/group_norm.hpp>

namespace cairn::group_norm_tests {

TEST_CASE("group_norm: laws", "[laws][group_norm]") {
    for (const auto& [in, groups] : std::vector<std::pair<shape, index_t>>{
             {{3, 4, 5, 6}, 2}, {{2, 3, 8}, 8}, {{2, 2, 3, 2, 4}, 1}, {{4, 5, 6}, 3}})
        laws::check_laws(laws::make_case(concat("group_norm in ", groups), in, [c = in.back(), g = groups](auto t) {
            return group_norm<decltype(t)>({.channels = c, .groups = g});
        }));
    CHECK_THROWS_WITH(group_norm<float>({.channels = 6, .groups = 4}), Catch::Contains("6 channels in 4 groups"));
}

TEST_CASE("group_norm: each group of a sample by itself", "[group_norm]") {
    constexpr index_t samples = 2, rows = 6, channels = 6, each = 3;
    laws::bench<double> b(any_layer<double>(group_norm<double>({.channels = channels, .groups = channels / each})));
    const tensor<double> x = laws::numbers<double>({samples, 2, 3, channels}, 1);
    const tensor<double> y = b.forward(x.clone());
    const auto& gamma = b.arena.parameters()[0].p->value;
    const auto& beta = b.arena.parameters()[1].p->value;
    for (index_t n = 0; n < samples; ++n)
        for (index_t first = 0; first < channels; first += each) {
            double mean = 0, var = 0;
            const auto value = [&](index_t r, index_t c) { return x[(n * rows + r) * channels + first + c]; };
            for (index_t r = 0; r < rows; ++r)
                for (index_t c = 0; c < each; ++c) mean += value(r, c) / (rows * each);
            for (index_t r = 0; r < rows; ++r)
                for (index_t c = 0; c < each; ++c) var += std::pow(value(r, c) - mean, 2) / (rows * each);
            for (index_t r = 0; r < rows; ++r)
                for (index_t c = 0; c < each; ++c)
                    CHECK(y[(n * rows + r) * channels + first + c] ==
                          Approx(gamma[first + c] * (value(r, c) - mean) / std::sqrt(var + 1e-5) + beta[first + c])
                              .margin(1e-12));
        }
}

TEST_CASE("group_norm: K-FAC is told each sample's gradients", "[group_norm]") {
    struct listener final : curvature_listener {
        std::vector<double> scale, shift;
        bool wants(int, rows_kind kind) const override { return kind == rows_kind::norm; }
        void take(const curvature_samples<double>& rows) override {
            scale.assign(rows.x, rows.x + rows.examples * rows.in);
            shift.assign(rows.dy, rows.dy + rows.examples * rows.out);
        }
    } heard;
    constexpr index_t samples = 3, channels = 4;
    laws::bench<double> b(any_layer<double>(group_norm<double>({.channels = channels, .groups = 2})));
    const tensor<double> x = laws::numbers<double>({samples, 5, channels}, 1), dy = laws::numbers<double>(x.shape(), 2);
    b.p.curvature = &heard;
    b.run(x.clone(), dy.clone());
    b.p.curvature = nullptr;
    REQUIRE(heard.scale.size() == samples * channels);
    for (index_t n = 0; n < samples; ++n) {
        const shape one{1, 5, channels};
        const auto alone = b.run(x.slice(n * 20, one).clone(), dy.slice(n * 20, one).clone());
        for (index_t c = 0; c < channels; ++c) {
            const auto at = static_cast<std::size_t>(n * channels + c);
            CHECK(heard.scale[at] == Approx(alone.grads[0][c]).margin(1e-12));
            CHECK(heard.shift[at] == Approx(alone.grads[1][c]).margin(1e-12));
        }
    }
}

}  // namespace cairn::group_norm_tests
