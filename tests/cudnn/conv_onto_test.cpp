// The graphs that add a convolution's input gradient onto one that is there, on an interpreter of them: the sum is that
// of plain loops, rounded once, and what is chosen among them and a pass that adds is what may be chosen.

#include "cudnn/conv_world.hpp"

#include <cairn/device/cuda/conv_onto.hpp>

namespace cairn {

namespace {

struct onto_world : conv_world {
    explicit onto_world(const char* name, std::vector<emulated::cudnn_engine> engines = {{}})
        : conv_world("conv_onto_gpu", name, std::move(engines)) {}
};

/// Largest error over what one rounding of the sum may cost, or, `twice`, that of the gradient before it; of two calls,
/// of which the first chooses.
template <class T>
double onto_error(const conv_geometry& shape, bool twice = false) {
    const conv_geometry g = shape.with_output();
    const auto drawn = [](index_t n, std::uint32_t stream) { return kernel_laws::drawn<T>({n}, stream, 1); };
    using kernel_laws::doubles;
    const tensor<T> dy = drawn(g.y_elements(), 81), w = drawn(g.w_elements(), 82), base = drawn(g.x_elements(), 83);
    std::vector<double> gradient(static_cast<std::size_t>(g.x_elements()));
    oracle::conv_backward_input<double>(g, doubles(dy).data(), doubles(w).data(), gradient.data());
    const auto d_dy = tensor<T, streamed_gpu>::copy_of(dy), d_w = tensor<T, streamed_gpu>::copy_of(w);
    double worst = 0;
    for (int call = 0; call < 2; ++call) {
        auto d_dx = tensor<T, streamed_gpu>::copy_of(base);
        detail::conv_onto_by_choice<streamed_gpu>(g, d_dy.data(), d_w.data(), d_dx.data(), [&](T* to) {
            conv_backward_input(streamed_gpu{}, g, static_cast<const T*>(d_dy.data()),
                                static_cast<const T*>(d_w.data()), to);
        });
        const std::vector<double> got = doubles(d_dx.on_host()), before = doubles(base);
        constexpr double unit = std::is_same_v<T, bfloat16> ? 0x1p-8 : 0x1p-11;
        for (std::size_t i = 0; i < got.size(); ++i) {
            const double expected = before[i] + gradient[i];
            worst = std::max(worst, (std::abs(got[i] - expected) - 1e-6) / unit /
                                        (std::abs(expected) + (twice ? 1.01 * std::abs(gradient[i]) : 0)));
        }
    }
    return worst;
}

constexpr conv_geometry onto_shape{
    .n = 2, .in = {1, 5, 6}, .c_in = 8, .c_out = 8, .kernel = {1, 3, 3}, .stride = {1, 2, 1}, .pad = {0, 1, 1}};

}  // namespace

TEMPLATE_TEST_CASE("gradients onto gradients, emulated: the sum is rounded once", "[cudnn]", bfloat16, float16) {
    const onto_world world("onto0");
    const std::size_t before = emulated::cudnn_runs().size();
    // half a unit in the last place, of numbers up to twice as far from it
    CHECK(onto_error<TestType>(onto_shape) <= 2);
    CHECK(onto_error<TestType>({.n = 3, .in = {1, 4, 3}, .c_in = 16, .c_out = 8}) <= 1);
    CHECK(emulated::cudnn_runs().size() == before + 2 * (1 + 2));  // tried once each
}

TEST_CASE("gradients onto gradients, emulated: measured without adding to what was there", "[cudnn]") {
    const onto_world world("", {{}, {}});
    CHECK(onto_error<bfloat16>(onto_shape, true) <= 1);
    const auto names = names_measured("conv_onto_gpu/backward_input emulated cudnn 91900 bfloat16 ");
    CHECK(names == std::vector<std::string>{"apart", "onto0", "onto1"});
}

TEST_CASE("gradients onto gradients, emulated: plans that may not run do not", "[cudnn]") {
    SECTION("other bits every time, engines that cannot, or that want too much memory") {
        const onto_world world("onto0", engines_that_may_not_run());
        const std::size_t before = emulated::cudnn_runs().size();
        CHECK(onto_error<bfloat16>(onto_shape, true) <= 1);
        CHECK(emulated::cudnn_runs().size() == before);
    }
    SECTION("one that forgets what was there") {
        for (const char* name : {"", "onto0"}) {
            const onto_world world(name);
            emulated::cudnn_ignores_beta() = true;
            const std::size_t before = emulated::cudnn_runs().size();
            CHECK(onto_error<bfloat16>(onto_shape, true) <= 1);
            CHECK(emulated::cudnn_runs().size() == before + 1);
        }
    }
}

}  // namespace cairn
