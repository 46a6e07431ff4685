// Gradients of both ways through a residual block, added where the first layer of one of them makes its own, on the
// emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/law_numbers.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/residual.hpp>

namespace cairn {

namespace {

using onto_chain = sequential<bfloat16, emulated_gpu>;
using onto_tensor = tensor<bfloat16, emulated_gpu>;

onto_chain onto_kernel(bool adds) {
    onto_chain body;
    body.add(conv<bfloat16, emulated_gpu>({.in = 8, .out = 8, .pad = 1, .bias = false}));
    body.add(batch_norm<bfloat16, emulated_gpu>({.channels = 8, .act = activation::relu}));
    if (!adds) body.add(conv<bfloat16, emulated_gpu>({.in = 8, .out = 8, .pad = 1}));
    return body;
}
onto_chain onto_shortcut(bool projects) {
    onto_chain shortcut;
    if (projects) shortcut.add(conv<bfloat16, emulated_gpu>({.in = 8, .out = 8, .kernel = 1, .bias = false}));
    return shortcut;
}

onto_tensor onto_drawn(std::uint32_t stream) {
    const tensor<float> wide = kernel_laws::drawn<float>({2, 4, 4, 8}, stream);
    tensor<bfloat16> t(wide.shape());
    for (index_t i = 0; i < t.size(); ++i) t[i] = bfloat16(wide[i]);
    return onto_tensor::copy_of(t);
}

std::vector<float> floats(const onto_tensor& t) {
    const tensor<bfloat16> host = t.on_host();
    return {host.span().begin(), host.span().end()};
}

}  // namespace

TEST_CASE("GPU residual blocks, emulated: gradients of both ways are added before they are rounded", "[cuda]") {
    for (const bool adds : {true, false})
        for (const bool projects : {true, false}) {
            CAPTURE(adds, projects);
            const pass_context p{.seed = 1};
            // By hand: both gradients, each rounded.
            std::vector<float> dx, dskip;
            {
                onto_chain body = onto_kernel(adds), shortcut = onto_shortcut(projects);
                layer_parameters<bfloat16, emulated_gpu> both = body.parameters();
                append_prefixed(both, "shortcut", shortcut.parameters());
                arena<float, emulated_gpu> weights(both, 5);
                saved_tensors<bfloat16, emulated_gpu> first, second;
                const onto_tensor x = onto_drawn(91);
                onto_tensor skip = shortcut.forward(x.share(), second, p);
                onto_tensor gradient = onto_drawn(92);
                if (adds) {
                    body.forward_residual(x.share(), std::move(skip), first, p);
                    auto [a, b] = body.backward_residual(std::move(gradient), first, p);
                    dx = floats(a), dskip = floats(shortcut.backward(std::move(b), second, p));
                } else {
                    body.forward(x.share(), first, p);
                    dskip = floats(shortcut.backward(gradient.share(), second, p));
                    dx = floats(body.backward(std::move(gradient), first, p));
                }
            }
            residual<bfloat16, emulated_gpu> block(onto_kernel(adds), onto_shortcut(projects));
            arena<float, emulated_gpu> weights(block.parameters(), 5);
            const auto gradients_of = [&](bool at_once) {
                saved_tensors<bfloat16, emulated_gpu> saved;
                weights.zero_grad();
                block.forward(onto_drawn(91), saved, p);
                onto_tensor sum;
                if (at_once) {
                    sum = block.backward(onto_drawn(92), saved, p);
                } else {
                    sum = block.backward_input(onto_drawn(92), saved, p);
                    block.backward_weight(saved, p);
                }
                const tensor<float> g = weights.grads().on_host();
                return std::pair(floats(sum), std::vector<float>(g.span().begin(), g.span().end()));
            };
            const auto [sum, of_weights] = gradients_of(true);
            REQUIRE(sum.size() == dx.size());
            for (std::size_t i = 0; i < sum.size(); ++i) {
                const float unrounded = dx[i] + dskip[i], largest = std::max(std::abs(dx[i]), std::abs(dskip[i]));
                REQUIRE(std::abs(sum[i] - unrounded) <= 0x1p-8f * (std::abs(unrounded) + 1.01f * largest) + 1e-6f);
            }
            const auto halves = gradients_of(false);
            CHECK(halves.first == sum);
            CHECK(halves.second == of_weights);
        }
}

TEST_CASE("GPU convolutions, emulated: a gradient that somebody else holds is left alone", "[cuda]") {
    conv<bfloat16, emulated_gpu> layer({.in = 8, .out = 8, .pad = 1, .bias = false});
    arena<float, emulated_gpu> weights(layer.parameters(), 5);
    const pass_context p{.seed = 1};
    const auto run = [&](onto_tensor base) {
        saved_tensors<bfloat16, emulated_gpu> saved;
        layer.forward(onto_drawn(91), saved, p);
        return floats(layer.backward_onto(onto_drawn(92), std::move(base), saved, p));
    };
    const onto_tensor base = onto_drawn(93);
    const std::vector<float> before = floats(base), sum = run(base.share());
    CHECK(floats(base) == before);
    CHECK(run(onto_drawn(93)) == sum);
    saved_tensors<bfloat16, emulated_gpu> saved;
    layer.forward(onto_drawn(91), saved, p);
    const pass_context nobody_asks{.seed = 1, .input_gradient = false};
    CHECK(layer.backward_onto(onto_drawn(92), onto_drawn(93), saved, nobody_asks).empty());
    layer.forward(onto_drawn(91), saved, p);
    tensor<bfloat16, emulated_gpu> other({3});
    CHECK_THROWS_WITH(layer.backward_onto(onto_drawn(92), std::move(other), saved, p),
                      Catch::Contains("the gradient that dx is added to"));
}

}  // namespace cairn
