// The graphs of convolutions with totals that cuDNN is given, on an interpreter of them: results and totals are those
// of plain loops, and what is chosen among them and a pass over the result is what may be chosen.

#include "cudnn/conv_world.hpp"

#include <cairn/device/cuda/conv_totals.hpp>

namespace cairn {

namespace {

struct totals_world : conv_world {
    explicit totals_world(const char* name, std::vector<emulated::cudnn_engine> engines = {{}})
        : conv_world("conv_totals_gpu", name, std::move(engines)) {}
};

/// One convolution, as it comes from the choice, and from plain loops.
template <class T>
struct convolution_with_totals {
    std::vector<double> y, totals, expected_y, expected_totals;
    bool made;

    explicit convolution_with_totals(const conv_geometry& shape) {
        const conv_geometry g = shape.with_output();
        const auto drawn = [](index_t n, std::uint32_t stream) { return kernel_laws::drawn<T>({n}, stream, 1); };
        const tensor<T> x = drawn(g.x_elements(), 71), w = drawn(g.w_elements(), 72);
        const auto d_x = tensor<T, streamed_gpu>::copy_of(x), d_w = tensor<T, streamed_gpu>::copy_of(w);
        tensor<T, streamed_gpu> d_y({g.y_elements()});
        tensor<float, streamed_gpu> d_totals({2 * g.c_out});
        made = detail::conv_totals_by_choice<streamed_gpu>(g, d_x.data(), d_w.data(), d_y.data(), d_totals.data(), [&] {
            conv_forward(streamed_gpu{}, g, static_cast<const T*>(d_x.data()), static_cast<const T*>(d_w.data()),
                         static_cast<const T*>(nullptr), d_y.data());
        });
        using kernel_laws::doubles;
        y = doubles(d_y.on_host());
        totals = doubles(d_totals.on_host());
        expected_y.resize(y.size());
        oracle::conv_forward<double>(g, doubles(x).data(), doubles(w).data(), nullptr, expected_y.data());
        expected_totals.resize(totals.size());
        const auto channels = static_cast<std::size_t>(g.c_out);
        for (std::size_t i = 0; i < y.size(); ++i) {
            expected_totals[i % channels] += expected_y[i];
            expected_totals[channels + i % channels] += expected_y[i] * expected_y[i];
        }
    }

    /// y is rounded once. Totals: of what y was before that, or, where it lies in memory, of y; then in float.
    void check(bool of_sums) const {
        constexpr double unit = std::is_same_v<T, bfloat16> ? 0x1p-8 : 0x1p-11;
        for (std::size_t i = 0; i < y.size(); ++i)
            REQUIRE(std::abs(y[i] - expected_y[i]) <= unit * std::abs(expected_y[i]) + 1e-6);
        if (!made) return;
        const std::size_t channels = totals.size() / 2;
        const double rows = double(y.size() / channels), each = of_sums ? 1e-6 : unit;
        for (std::size_t c = 0; c < channels; ++c) {
            const double squares = expected_totals[channels + c];
            CHECK(std::abs(totals[c] - expected_totals[c]) <= each * std::sqrt(rows * squares));
            CHECK(std::abs(totals[channels + c] - squares) <= 2 * each * squares);
        }
    }
};

constexpr conv_geometry few_points{
    .n = 2, .in = {1, 5, 6}, .c_in = 4, .c_out = 8, .kernel = {1, 3, 3}, .stride = {1, 2, 1}, .pad = {0, 1, 1}};

}  // namespace

TEMPLATE_TEST_CASE("convolutions with totals, emulated: results are those of plain loops", "[cudnn]", bfloat16,
                   float16) {
    for (const char* name : {"apart", "result0", "sums0"}) {
        CAPTURE(name);
        const totals_world world(name);
        for (conv_geometry g : {few_points, conv_geometry{.n = 3, .in = {1, 4, 3}, .c_in = 8, .c_out = 16}}) {
            const convolution_with_totals<TestType> one(g);
            CHECK(one.made == (name != std::string("apart")));
            one.check(name == std::string("sums0"));
        }
    }
}

TEST_CASE("convolutions with totals, emulated: chosen by measurement, written down, and taken again", "[cudnn]") {
    const totals_world world("", {{}, {}});
    const convolution_with_totals<bfloat16> measured(few_points);
    measured.check(false);
    CHECK(names_measured("conv_totals_gpu/") ==
          std::vector<std::string>{"apart", "result0", "result1", "sums0", "sums1"});
    std::string key;
    for (const auto& entry : autotune_cache::global().entries())
        if (entry.first.starts_with("conv_totals_gpu/")) key = entry.first;
    CHECK(key.starts_with("conv_totals_gpu/forward emulated cudnn 91900 bfloat16 "));
    for (const char* name : {"apart", "sums1"}) {
        autotune_cache::global().set(key, {.choice = name, .seconds = {}});
        CHECK(convolution_with_totals<bfloat16>(few_points).made == (name != std::string("apart")));
        const std::size_t before = emulated::cudnn_runs().size();
        CHECK(convolution_with_totals<bfloat16>(few_points).made == (name != std::string("apart")));
        CHECK(emulated::cudnn_runs().size() == before + (name != std::string("apart")));  // tried once
    }
}

TEST_CASE("convolutions with totals, emulated: plans that may not run do not", "[cudnn]") {
    SECTION("other bits every time, engines that cannot, or that want too much memory") {
        const totals_world world("result0", engines_that_may_not_run());
        const std::size_t before = emulated::cudnn_runs().size();
        const convolution_with_totals<bfloat16> one(few_points);
        CHECK_FALSE(one.made);
        one.check(false);
        CHECK(emulated::cudnn_runs().size() == before);
    }
    SECTION("totals of something else, measured or taken from a record") {
        for (const char* name : {"", "sums0"}) {
            const totals_world world(name);
            emulated::cudnn_totals_factor() = 1.1;
            const convolution_with_totals<bfloat16> one(few_points);
            CHECK_FALSE(one.made);
            one.check(false);
        }
    }
    SECTION("totals on top of what was there") {
        const totals_world world("sums0");
        emulated::cudnn_adds_to_totals() = true;
        const convolution_with_totals<bfloat16> one(few_points);
        CHECK_FALSE(one.made);
        one.check(false);
    }
    SECTION("addresses that are no multiples of 16 bytes") {
        const totals_world world("sums0");
        conv_geometry odd = few_points;
        odd.c_out = 6;  // the second totals begin at 24 bytes
        const std::size_t before = emulated::cudnn_runs().size();
        const convolution_with_totals<bfloat16> one(odd);
        CHECK_FALSE(one.made);
        one.check(false);
        CHECK(emulated::cudnn_runs().size() == before);
    }
}

}  // namespace cairn
