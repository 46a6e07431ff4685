#include "layer_laws.hpp"

#include <cairn/nn/activation.hpp>

namespace cairn {

TEST_CASE("activations: laws", "[laws][activation]") {
    for (const activation act : {activation::none, activation::relu, activation::leaky_relu, activation::sigmoid,
                                 activation::tanh, activation::gelu, activation::gelu_tanh, activation::silu}) {
        laws::law_case c = laws::make_case(name_of(act), {3, 5, 7, 3},
                                           [act](auto t) { return activation_layer<decltype(t)>(act, 0.3); });
        c.wrong = std::nullopt;  // an elementwise layer takes any shape
        laws::check_laws(c);
    }
}

TEST_CASE("leaky_relu: the slope is not rounded to what the layer computes in", "[activation]") {
    saved_tensors<bfloat16> saved;
    auto layer = leaky_relu<bfloat16>(0.3);
    const auto y = layer.forward(tensor<bfloat16>::filled({1}, bfloat16(-3.0f)), saved, {});
    CHECK(float{y.data()[0]} == float{bfloat16(-3.0f * 0.3f)});  // with 0.3 rounded: one step of bfloat16 further
}

}  // namespace cairn
