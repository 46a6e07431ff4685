// The graphs that add a convolution's input gradient onto one that is there, on an interpreter of them: the sum is that of plain loops, rounded once,
// and what is chosen among them and a pass that adds is what may be chosen.

#include "cudnn/emulated_cudnn.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/law_numbers.hpp"
#include "nccl/streamed_gpu.hpp"
#include "oracle/conv.hpp"

#include <cairn/device/cuda/conv_onto.hpp>

namespace cairn {

namespace {

struct onto_world {
    explicit onto_world(const char* name, std::vector<emulated::cudnn_engine> engines = {{}}) {
        emulated::cudnn_engines() = std::move(engines);
        choices::global().clear();
        choices::global().force("conv_onto_gpu", name);
    }
    ~onto_world() {
        emulated::cudnn_ignores_beta() = false;
        emulated::cudnn_engines() = {{}};
        choices::global().force("conv_onto_gpu", "");
        choices::global().clear();
    }
};

/// Largest error over what one rounding of the sum may cost, or, `twice`, that of the gradient before it; of two calls, of which the first chooses.
template <class T>
double onto_error(const conv_geometry& shape, bool twice = false) {
    const conv_geometry g = shape.with_output();
    const auto drawn = [](index n, std::uint32_t stream) {
        const tensor<float> wide = kernel_laws::drawn<float>({n}, stream);
        tensor<T> t({n});
        for (index i = 0; i < n; ++i) t[i] = T(wide[i]);
        return t;
    };
    const auto doubles = [](const tensor<T>& t) {
        std::vector<double> all;
        for (const T v : t.span()) all.push_back(double(float{v}));
        return all;
    };
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
    CHECK(onto_error<TestType>(onto_shape) <=
          2);  // half a unit in the last place, of numbers up to twice as far from it
    CHECK(onto_error<TestType>({.n = 3, .in = {1, 4, 3}, .c_in = 16, .c_out = 8}) <= 1);
    CHECK(emulated::cudnn_runs().size() == before + 2 * (1 + 2));  // tried once each
}

TEST_CASE("gradients onto gradients, emulated: measured without adding to what was there", "[cudnn]") {
    const onto_world world("", {{}, {}});
    CHECK(onto_error<bfloat16>(onto_shape, true) <= 1);
    std::vector<std::string> names;
    for (const auto& [key, entry] : choices::global().entries())
        if (key.starts_with("conv_onto_gpu/backward_input emulated cudnn 91900 bfloat16 "))
            for (const auto& one : entry.seconds) names.push_back(one.first);
    CHECK(names == std::vector<std::string>{"apart", "onto0", "onto1"});
}

TEST_CASE("gradients onto gradients, emulated: plans that may not run do not", "[cudnn]") {
    using emulated::cudnn_engine;
    SECTION("other bits every time, engines that cannot, or that want too much memory") {
        const onto_world world("onto0",
                               {cudnn_engine{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, cudnn_engine{.works = false},
                                cudnn_engine{.workspace = (std::int64_t{1} << 30) + 1}});
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
