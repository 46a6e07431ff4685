#include "layer_laws.hpp"

#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>

namespace cairn {
using laws::make_case;

TEST_CASE("batch_norm: laws", "[laws][batch_norm]") {
    const auto check = [](const char* name, shape in, activation act) {
        laws::law_case c = make_case(name, in, [channels = in.back(), act](auto t) {
            return batch_norm<decltype(t)>({.channels = channels, .act = act, .slope = 0.2});
        });
        c.depth = 2;  // statistics, then values
        laws::check_laws(c);
    };
    check("batch_norm", {4, 5, 3, 6}, activation::none);
    check("batch_norm of rows", {9, 5}, activation::none);
    check("batch_norm of one channel", {2, 3, 3, 1}, activation::none);
    check("batch_norm + relu", {3, 4, 4, 8}, activation::relu);
    check("batch_norm + relu, one image", {1, 7, 5, 3}, activation::relu);
    check("batch_norm + leaky_relu, volume", {2, 3, 2, 4, 17}, activation::leaky_relu);
    check("batch_norm + relu, more rows than a chunk", {5, 31, 17, 32}, activation::relu);
}

namespace {

/// y = batch_norm of x + x: the residual seam with nothing else in it.
template <class T>
residual<T> added(index_t channels, activation act) {
    sequential<T> body;
    body.add("bn", batch_norm<T>({.channels = channels, .act = act, .slope = 0.2}));
    return residual<T>(std::move(body));
}

}  // namespace

TEST_CASE("batch_norm with a skip: laws", "[laws][batch_norm]") {
    const auto check = [](const char* name, shape in, activation act) {
        laws::law_case c =
            make_case(name, in, [channels = in.back(), act](auto t) { return added<decltype(t)>(channels, act); });
        c.depth = 3;  // statistics, values, sum
        laws::check_laws(c);
    };
    check("batch_norm + skip", {3, 4, 5, 6}, activation::none);
    check("batch_norm + skip + relu", {3, 4, 5, 6}, activation::relu);
    check("batch_norm + skip + relu, one channel", {2, 5, 5, 1}, activation::relu);
    check("batch_norm + skip + leaky_relu", {2, 9, 19}, activation::leaky_relu);
}

TEST_CASE("batch_norm: a channel that is not finite leaves its running statistics as they were", "[batch_norm]") {
    sequential<float> model;
    model.add("bn", batch_norm<float>({.channels = 3}));
    const arena<float> weights(model.parameters(), 1);
    saved_tensors<float> saved;
    const float largest = std::numeric_limits<float>::max(), infinite = std::numeric_limits<float>::infinity();
    // The second channel has a sample that is infinite; in the third the variance is too large for a float.
    tensor<float> x({2, 3});
    std::ranges::copy(std::array{1.0f, infinite, largest, 3.0f, 1.0f, -largest}, x.data());
    model.forward(std::move(x), saved, {});
    const auto buffers = model.buffers();
    REQUIRE(buffers.size() == 2);
    const tensor<float>&mean = *buffers[0].t, &variance = *buffers[1].t;
    CHECK(mean[0] == Approx(0.2));
    CHECK(variance[0] == Approx(0.9 + 0.1 * 2));
    for (index_t c = 1; c < 3; ++c) {
        CHECK(mean[c] == 0);
        CHECK(variance[c] == 1);
    }
}

TEST_CASE("batch_norm: numbers whose squares overflow are normalised", "[batch_norm]") {
    for (const float scale : {1e19f, 1e30f}) {
        sequential<float> model;
        model.add("bn", batch_norm<float>({.channels = 2}));
        const arena<float> weights(model.parameters(), 1);
        saved_tensors<float> saved;
        tensor<float> x({4, 2});
        for (index_t i = 0; i < 8; ++i) x[i] = scale * static_cast<float>(i / 2 % 2 ? 1 : -1);
        const tensor<float> y = model.forward(x.clone(), saved, {});
        for (index_t i = 0; i < 8; ++i) CHECK(y[i] == Approx(i / 2 % 2 ? 1 : -1));
    }
}

}  // namespace cairn
