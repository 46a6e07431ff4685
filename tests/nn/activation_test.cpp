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

}  // namespace cairn
