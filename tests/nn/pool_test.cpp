#include "layer_laws.hpp"

#include <cairn/nn/pool.hpp>

namespace cairn {

namespace {

/// Pools take any number of channels: an axis too many is what they refuse.
template <class Make>
void check(std::string name, shape in, Make make) {
    laws::law_case c = laws::make_case(std::move(name), in, make);
    c.wrong = shape{in[0], in.back()};
    laws::check_laws(c);
}

}  // namespace

TEST_CASE("max_pool: laws", "[laws][pool]") {
    check("max_pool 2", {2, 6, 8, 5}, [](auto t) { return max_pool<decltype(t)>({.kernel = 2}); });
    check("max_pool 2, odd image", {3, 7, 5, 4}, [](auto t) { return max_pool<decltype(t)>({.kernel = 2}); });
    check("max_pool 3 stride 2 pad 1", {2, 9, 8, 16},
          [](auto t) { return max_pool<decltype(t)>({.kernel = 3, .stride = 2, .pad = 1}); });
    check("max_pool, overlapping", {1, 6, 6, 3},
          [](auto t) { return max_pool<decltype(t)>({.kernel = 3, .stride = 1}); });
    check("max_pool, stride larger than the kernel", {1, 9, 10, 3},
          [](auto t) { return max_pool<decltype(t)>({.kernel = 2, .stride = 4}); });
    check("max_pool 1D", {2, 11, 3}, [](auto t) { return max_pool<decltype(t)>({.kernel = 3, .dims = 1}); });
    check("max_pool 3D", {2, 4, 5, 6, 3}, [](auto t) { return max_pool<decltype(t)>({.kernel = 2, .dims = 3}); });
    check("max_pool of more than 256 positions", {2, 17, 18, 2},
          [](auto t) { return max_pool<decltype(t)>({.kernel = 17}); });
}

TEST_CASE("average pooling: laws", "[laws][pool]") {
    check("average_pool 2", {2, 6, 8, 5}, [](auto t) { return average_pool<decltype(t)>({.kernel = 2}); });
    check("average_pool 3 stride 2 pad 1", {2, 7, 8, 4},
          [](auto t) { return average_pool<decltype(t)>({.kernel = 3, .stride = 2, .pad = 1}); });
    check("average_pool 3 stride 2 pad 1, inside only", {2, 7, 8, 4}, [](auto t) {
        return average_pool<decltype(t)>({.kernel = 3, .stride = 2, .pad = 1, .count_include_pad = false});
    });
    check("average_pool 3D", {1, 4, 6, 5, 3}, [](auto t) {
        return average_pool<decltype(t)>({.kernel = {2, 3, 2}, .dims = 3});
    });
    check("adaptive_average_pool 3x2", {2, 7, 5, 4}, [](auto t) {
        return adaptive_average_pool<decltype(t)>({.out = {3, 2}});
    });
    check("adaptive_average_pool, more results than positions", {1, 3, 2, 4}, [](auto t) {
        return adaptive_average_pool<decltype(t)>({.out = {5, 4}});
    });
    check("global_average_pool", {3, 5, 7, 6}, [](auto t) { return global_average_pool<decltype(t)>(); });
    check("global_average_pool of volumes", {1, 3, 2, 3, 33},
          [](auto t) { return global_average_pool<decltype(t)>(); });
}

TEST_CASE("adaptive_average_pool: no images at all", "[pool]") {
    adaptive_average_pool<float> layer({.out = 2});
    CHECK(layer.output_shape({0, 5, 4, 3}) == shape{0, 2, 2, 3});
    CHECK_THROWS_WITH(layer.output_shape({2, 0, 4, 3}), Catch::Contains("(2, 0, 4, 3)"));
}

}  // namespace cairn
