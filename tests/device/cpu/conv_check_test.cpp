// Convolution algorithms that are wrong, each in its own way, are found out before they may be chosen.
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/device/cpu/conv.hpp>

#include <functional>
#include <string>

namespace cairn {

namespace {

using conv_detail::algorithm, conv_detail::conv_checker, conv_detail::operands;
using change = std::function<void(const operands<float>&, index_t result)>;

conv_geometry small() {
    conv_geometry g;
    g.n = 2, g.c_in = 3, g.c_out = 5;
    g.in = {1, 6, 7}, g.kernel = {1, 3, 3}, g.pad = {0, 1, 1};
    return g.with_output();
}

// The checker's verdict on im2col followed by `faulty`, of a result of so many values.
std::string fault_of(conv_phase phase, const change& faulty) {
    const conv_geometry g = small();
    const index_t result = phase == conv_phase::forward          ? g.y_elements()
                           : phase == conv_phase::backward_input ? g.x_elements()
                                                                 : g.w_elements();
    const auto right = [&](const operands<float>& o) { conv_detail::run(algorithm::im2col, phase, g, o); };
    return conv_checker<float>(phase, g, right).fault([&](const operands<float>& o) {
        right(o);
        faulty(o, result);
    });
}

}  // namespace

TEST_CASE("convolution check: faults of an algorithm are told apart", "[conv]") {
    for (const conv_phase phase : {conv_phase::forward, conv_phase::backward_input, conv_phase::backward_weight}) {
        CAPTURE(name_of(phase));
        const auto fault = [&](const change& faulty) { return fault_of(phase, faulty); };
        CHECK(fault([](const operands<float>&, index_t) {}).empty());
        CHECK(test::contains(fault([](const auto& o, index_t n) { o.y[n / 2] += 0.5f; }), "relative error"));
        CHECK(test::contains(fault([](const auto& o, index_t n) { o.y[n - 1] = NAN; }), "relative error"));
        CHECK(test::contains(fault([](const auto& o, index_t n) { o.y[n] = 0; }), "beyond its result"));
        CHECK(test::contains(fault([](const auto& o, index_t) { o.y[-1] = 0; }), "beyond its result"));
        CHECK(test::contains(fault([](const auto& o, index_t) { const_cast<float*>(o.x)[1] = 0; }), "to its input"));
        CHECK(test::contains(fault([](const auto& o, index_t) { const_cast<float*>(o.w)[1] = 0; }), "to its input"));
    }
    // Nothing written, where results are overwritten; nothing kept, where they are added to.
    const conv_geometry g = small();
    const auto plain = [&](const operands<float>& o) {
        conv_detail::run(algorithm::im2col, conv_phase::forward, g, o);
    };
    CHECK(!conv_checker<float>(conv_phase::forward, g, plain).fault([](const operands<float>&) {}).empty());
    CHECK(!fault_of(conv_phase::backward_weight, [](const auto& o, index_t n) {
               std::fill(o.y, o.y + n, 0.0f);
           }).empty());
    CHECK(test::contains(conv_checker<float>(conv_phase::forward, g, plain).fault([&](operands<float> o) {
        o.bias = nullptr;  // forgets it
        plain(o);
    }),
                         "with bias"));
}

TEST_CASE("convolution check: a right kernel in bfloat16 is not rejected for its rounding", "[conv]") {
    for (index_t c_in = 1; c_in <= 32; ++c_in)
        for (index_t c_out = 1; c_out <= 4; ++c_out) {  // few values, so the bias may lift all of them
            conv_geometry g;
            g.n = 1, g.c_in = c_in, g.c_out = c_out;
            g = g.with_output();
            const auto tiled = [&](const operands<bfloat16>& o) {
                conv_detail::run(algorithm::tiled, conv_phase::forward, g, o);
            };
            CAPTURE(c_in, c_out);
            CHECK(conv_checker<bfloat16>(conv_phase::forward, g, tiled).fault(tiled) == "");
        }
}

}  // namespace cairn
