#include "layer_laws.hpp"

#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/residual.hpp>

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

}  // namespace cairn
