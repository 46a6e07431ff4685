// Totals of channels on their way from convolutions to batch norms, on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/totals_laws.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/models/resnet.hpp>

namespace cairn {

namespace {

template <class T = bfloat16>
using totals_network = sequential<T, emulated_gpu>;

struct without_totals {
    without_totals() { emulated_totals() = false; }
    ~without_totals() { emulated_totals() = true; }
};

template <class T>
totals_network<T> small_for_totals() {
    resnet_config c;
    c.widths = {8, 8};
    c.blocks = {1, 1};
    c.bottleneck = true;
    c.classes = 40;
    return resnet<T, emulated_gpu>(c);
}

/// Output, gradients and running statistics of one step.
template <class T = bfloat16>
struct totals_step {
    std::vector<float> y, gradients, running;

    template <class Change>
    explicit totals_step(Change&& change) {
        totals_network<T> net = small_for_totals<T>();
        change(net);
        arena<float, emulated_gpu> weights(net.parameters(), 3);
        saved_tensors<T, emulated_gpu> saved;
        const auto drawn = totals_laws::far_from_zero<bfloat16>(4, 6 * 6 * 3, 0, 63);
        tensor<T> input({4, 6, 6, 3});
        for (index_t i = 0; i < input.size(); ++i) input[i] = T(float{drawn[i]});
        const pass_context p{.seed = 1};
        const auto result = net.forward(tensor<T, emulated_gpu>::copy_of(input), saved, p).on_host();
        for (const T v : result.span()) y.push_back(float{v});
        weights.zero_grad();
        net.backward(tensor<T, emulated_gpu>::copy_of(result), saved, p);
        const auto g = weights.grads().on_host();
        gradients.assign(g.span().begin(), g.span().end());
        for (const auto& b : net.buffers()) {
            const auto t = b.t->on_host();
            running.insert(running.end(), t.span().begin(), t.span().end());
        }
    }
    totals_step() : totals_step([](totals_network<T>&) {}) {}
};

/// ‖a - b‖ / ‖b‖.
double far_apart(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        apart += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
        size += double(b[i]) * double(b[i]);
    }
    return std::sqrt(apart / size);
}

}  // namespace

TEST_CASE("GPU totals of channels, emulated: mean and variance are those of plain loops", "[cuda]") {
    check_both_ways(totals_laws::all<emulated_gpu>());
}

TEST_CASE("GPU totals of channels, emulated: a network with them is the network without", "[cuda]") {
    const totals_step<> with;
    const totals_step<> without = [] {
        const without_totals now;
        return totals_step<>();
    }();
    const totals_step<float> exact;
    CHECK(far_apart(with.running, without.running) <= 0x1p-8);  // of sums before and behind their rounding
    CHECK(far_apart(with.running, without.running) > 0);        // they were handed on
    // As far from the network in float as that which reads its results again, but for chance.
    for (const auto part : {&totals_step<>::y, &totals_step<>::gradients, &totals_step<>::running}) {
        const auto& goal = part == &totals_step<>::y           ? exact.y
                           : part == &totals_step<>::gradients ? exact.gradients
                                                               : exact.running;
        CHECK(far_apart(with.*part, goal) <= 1.5 * far_apart(without.*part, goal));
    }
}

TEST_CASE("GPU totals of channels, emulated: recomputation gives the same bits", "[cuda]") {
    const totals_step<> kept;
    const totals_step<> again([](totals_network<>& net) { net.recompute({{0, 2}, {2, 3}}); });
    CHECK(again.y == kept.y);
    CHECK(again.gradients == kept.gradients);
    CHECK(again.running == kept.running);
    // Where a convolution is recomputed without its batch norm, nothing is handed on between the two.
    const totals_step<> apart([](totals_network<>& net) { net.recompute({{0, 1}, {1, 2}}); });
    CHECK(far_apart(apart.running, kept.running) <= 0x1p-8);
    CHECK(far_apart(apart.running, kept.running) > 0);
}

TEST_CASE("GPU totals of channels, emulated: only convolutions without bias make them, only for who takes them",
          "[cuda]") {
    const auto layer = [](bool bias) {
        return conv<bfloat16, emulated_gpu>({.in = 3, .out = 4, .pad = 1, .bias = bias});
    };
    CHECK(layer(false).makes_totals());
    CHECK_FALSE(layer(true).makes_totals());
    CHECK_FALSE((conv<float, emulated_gpu>({.in = 3, .out = 4, .bias = false}).makes_totals()));
    CHECK(batch_norm<bfloat16, emulated_gpu>({.channels = 4}).takes_totals());
    CHECK_FALSE((batch_norm<float, emulated_gpu>({.channels = 4}).takes_totals()));
    CHECK_FALSE((batch_norm<double>({.channels = 4}).takes_totals()));
    any_layer<bfloat16, emulated_gpu> any = layer(false);
    CHECK(any.makes_totals());
    CHECK_FALSE(any.takes_totals());
}

}  // namespace cairn
