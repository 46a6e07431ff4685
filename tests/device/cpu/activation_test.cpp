#include "catch.hpp"

#include <cairn/device/cpu/activation.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/activation.hpp"

#include <limits>
#include <optional>

namespace cairn {

using namespace kernel_tests;

namespace {

constexpr activation activations[]{activation::relu, activation::leaky_relu, activation::sigmoid,  activation::tanh,
                                   activation::silu, activation::gelu,       activation::gelu_tanh};

/// Forward and backward as the layer calls them, in place where it would.
template <class T>
struct activation_run {
    std::vector<T> y, dx;

    activation_run(activation act, T slope, const std::vector<T>& x, const std::vector<T>& dy) : y(x), dx(dy) {
        const auto n = static_cast<index_t>(x.size());
        if (saves_of(act) == activation_saves::bits) {
            std::vector<std::uint8_t> bits(std::size_t(simd::mask_bytes<T>(n)));
            sign_activation_forward(cpu{}, n, slope, y.data(), y.data(), bits.data());
            sign_activation_backward(cpu{}, n, slope, dx.data(), bits.data(), dx.data());
        } else {
            activation_forward(cpu{}, act, n, y.data(), y.data());
            const bool from_output = saves_of(act) == activation_saves::output;
            activation_backward(cpu{}, act, n, from_output ? y.data() : x.data(), dx.data(), dx.data());
        }
    }
};

}  // namespace

TEMPLATE_TEST_CASE("activation: values and derivatives against the C library", "[activation]", float, double) {
    using T = TestType;
    for (const activation act : activations)
        for (const index_t n : {0, 1, 7, 16, 33, 1000, 70001}) {
            CAPTURE(name_of(act), n);
            const T slope = act == activation::leaky_relu ? T(0.125) : T(0);
            const auto x = draw<T>(n, 1, 3), dy = draw<T>(n, 2, 0.2);  // |dy| < 1
            const activation_run<T> k(act, slope, x, dy);
            std::vector<long double> y, dx;
            for (std::size_t i = 0; i < x.size(); ++i) {
                y.push_back(oracle::activation(act, x[i], slope));
                dx.push_back(dy[i] * oracle::activation_derivative(act, x[i], slope));
            }
            CHECK(distance(k.y, y) <= eps<T>(8));
            CHECK(distance(k.dx, dx) <= eps<T>(64));
            if (saves_of(act) == activation_saves::bits) {
                std::vector<T> without(x.size());
                sign_activation_forward<T>(cpu{}, n, slope, x.data(), without.data(), nullptr);
                CHECK(same_bits(without, k.y));
            }
        }
}

TEMPLATE_TEST_CASE("activation: zero, infinities and NaN", "[activation]", float, double) {
    using T = TestType;
    constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    for (const activation act : activations) {
        CAPTURE(name_of(act));
        const activation_run<T> k(act, T(0.5), {T(0), infinity, nan}, {T(1), T(1), T(1)});
        CHECK(k.y[0] == (act == activation::sigmoid ? T(0.5) : T(0)));
        CHECK(k.y[1] == (act == activation::sigmoid || act == activation::tanh ? T(1) : infinity));
        CHECK(std::isnan(k.y[2]));
        const T far = T(1e30);
        const activation_run<T> there(act, T(0.5), {far, -far}, {T(1), T(1)});
        const bool flat = act == activation::sigmoid || act == activation::tanh;
        CHECK(there.dx[0] == (flat ? T(0) : T(1)));
        CHECK(there.dx[1] == (saves_of(act) == activation_saves::bits ? T(0.5) : T(0)));
    }
}

TEST_CASE("activation: the same bits on any number of threads; unknown functions are refused", "[activation]") {
    const auto x = draw<float>(200001, 1), dy = draw<float>(200001, 2);
    for (const activation act : activations) {
        std::optional<activation_run<float>> first;
        on_several_threads([&](int) {
            const activation_run<float> k(act, 0.1f, x, dy);
            if (!first) first = k;
            CHECK(same_bits(k.y, first->y));
            CHECK(same_bits(k.dx, first->dx));
        });
    }
    std::vector<float> y(3);
    CHECK_THROWS_AS(activation_forward(cpu{}, activation::relu, 3, x.data(), y.data()), error);
}

}  // namespace cairn
