#include "catch.hpp"

#include <cairn/device/cpu/pool.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/pool.hpp"

namespace cairn {

using namespace kernel_tests;
using extents = std::array<index_t, 3>;

namespace {

struct pool_case {
    index_t n, channels;
    extents in, kernel, stride, pad;
};

const std::vector<pool_case> cases{
    {1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},      // nothing to pool
    {2, 3, {1, 1, 10}, {1, 1, 3}, {1, 1, 3}, {0, 0, 0}},     // 1D, a rest at the end
    {2, 64, {1, 8, 6}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},     // tiles
    {1, 17, {1, 9, 7}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},     // odd size, uncovered edge
    {2, 20, {1, 11, 13}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},   // overlapping and cut
    {1, 5, {1, 9, 9}, {1, 3, 2}, {1, 1, 1}, {0, 1, 1}},      // stride 1
    {2, 16, {1, 9, 10}, {1, 2, 2}, {1, 3, 4}, {0, 0, 0}},    // stride > kernel
    {1, 32, {4, 6, 4}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}},     // 3D tiles
    {2, 6, {5, 4, 7}, {3, 3, 3}, {2, 1, 2}, {1, 1, 1}},      // 3D overlapping
    {1, 3, {1, 20, 21}, {1, 17, 16}, {1, 3, 2}, {0, 0, 8}},  // 272 elements in a window
};

pool_geometry geometry_of(const pool_case& c, bool count_pad = true) {
    pool_geometry g;
    g.n = c.n;
    g.channels = c.channels;
    g.count_pad = count_pad;
    for (std::size_t a = 0; a < 3; ++a) g.axis[a] = pool_axis::sliding(c.in[a], c.kernel[a], c.stride[a], c.pad[a]);
    return g;
}

std::array<oracle::pool_windows, 3> windows_of(const pool_case& c) {
    std::array<oracle::pool_windows, 3> w;
    for (std::size_t a = 0; a < 3; ++a) w[a] = oracle::sliding(c.in[a], c.kernel[a], c.stride[a], c.pad[a]);
    return w;
}

}  // namespace

TEMPLATE_TEST_CASE("pool: maximum and its gradient", "[pool]", float, double) {
    using T = TestType;
    for (const pool_case& c : cases)
        for (const bool ties : {false, true}) {
            CAPTURE(c.in, c.kernel, c.stride, c.pad, c.channels, ties);
            const pool_geometry g = geometry_of(c);
            auto x = draw<T>(g.x_elements(), 1);
            if (ties)
                for (T& v : x) v = std::round(v);
            const auto dy = draw<T>(g.y_elements(), 2);
            const auto o =
                oracle::pool(oracle::pooling::max, c.n, c.in, windows_of(c), c.channels, doubles(x), doubles(dy));
            const auto check = [&](auto code_type) {
                std::vector<T> y(dy.size()), dx(x.size(), T(9)), y_alone(dy.size());
                std::vector<decltype(code_type)> code(dy.size());
                max_pool_forward(cpu{}, g, x.data(), y.data(), code.data());
                max_pool_backward(cpu{}, g, dy.data(), code.data(), dx.data());
                max_pool_forward(cpu{}, g, x.data(), y_alone.data(), static_cast<std::uint8_t*>(nullptr));
                CHECK(distance(y, o.y) == 0);
                CHECK(distance(y_alone, o.y) == 0);
                CHECK(distance(dx, o.dx) <= eps<T>(8));
            };
            check(std::int32_t{});
            if (g.window() <= 256) check(std::uint8_t{});
        }
}

TEMPLATE_TEST_CASE("pool: average over windows", "[pool]", float, double) {
    using T = TestType;
    for (const pool_case& c : cases)
        for (const bool count_pad : {true, false}) {
            CAPTURE(c.in, c.kernel, c.stride, c.pad, c.channels, count_pad);
            const pool_geometry g = geometry_of(c, count_pad);
            const auto x = draw<T>(g.x_elements(), 1), dy = draw<T>(g.y_elements(), 2);
            const auto kind = count_pad ? oracle::pooling::average : oracle::pooling::average_inside;
            const auto o = oracle::pool(kind, c.n, c.in, windows_of(c), c.channels, doubles(x), doubles(dy));
            std::vector<T> y(dy.size()), dx(x.size(), T(9));
            average_pool_forward(cpu{}, g, x.data(), y.data());
            average_pool_backward(cpu{}, g, dy.data(), dx.data());
            CHECK(distance(y, o.y) <= eps<T>(64));
            CHECK(distance(dx, o.dx) <= eps<T>(16));
        }
}

TEMPLATE_TEST_CASE("pool: adaptive average", "[pool]", float, double) {
    using T = TestType;
    for (const extents& in : {extents{1, 7, 9}, extents{4, 5, 6}, extents{1, 1, 3}})
        for (const extents& out : {extents{1, 1, 1}, extents{1, 3, 4}, extents{2, 5, 9}}) {
            CAPTURE(in, out);
            pool_geometry g;
            g.n = 2;
            g.channels = 19;
            g.count_pad = false;
            std::array<oracle::pool_windows, 3> w;
            for (std::size_t a = 0; a < 3; ++a) {
                g.axis[a] = pool_axis::adaptive(in[a], out[a]);
                w[a] = oracle::adaptive(in[a], out[a]);
            }
            const auto x = draw<T>(g.x_elements(), 1), dy = draw<T>(g.y_elements(), 2);
            const auto o = oracle::pool(oracle::pooling::average_inside, 2, in, w, 19, doubles(x), doubles(dy));
            std::vector<T> y(dy.size()), dx(x.size());
            average_pool_forward(cpu{}, g, x.data(), y.data());
            average_pool_backward(cpu{}, g, dy.data(), dx.data());
            CHECK(distance(y, o.y) <= eps<T>(64));
            CHECK(distance(dx, o.dx) <= eps<T>(16));
        }
}

TEMPLATE_TEST_CASE("pool: global average", "[pool]", float, double) {
    using T = TestType;
    for (const index_t channels : {1, 3, 64, 512})
        for (const index_t points : {1, 16, 49, 1000}) {
            CAPTURE(channels, points);
            const index_t n = 3;
            const auto x = draw<T>(n * points * channels, 1, 1, 2), dy = draw<T>(n * channels, 2);
            std::vector<T> y(dy.size()), dx(x.size());
            global_average_forward(cpu{}, n, points, channels, x.data(), y.data());
            global_average_backward(cpu{}, n, points, channels, dy.data(), dx.data());
            const auto o = oracle::pool(
                oracle::pooling::average, n, {1, 1, points},
                {oracle::sliding(1, 1, 1, 0), oracle::sliding(1, 1, 1, 0), oracle::sliding(points, points, 1, 0)},
                channels, doubles(x), doubles(dy));
            CHECK(distance(y, o.y) <= eps<T>(64));
            CHECK(distance(dx, o.dx) <= eps<T>(4));
        }
}

TEST_CASE("pool: a NaN in a window is its maximum and gets the gradient", "[pool]") {
    const pool_geometry g = geometry_of({1, 1, {1, 1, 4}, {1, 1, 4}, {1, 1, 4}, {0, 0, 0}});
    for (std::size_t at = 0; at < 4; ++at) {
        std::vector<float> x{1, 5, 2, 7}, dx(4);
        x[at] = std::numeric_limits<float>::quiet_NaN();
        float y = 0;
        std::uint8_t code = 99;
        max_pool_forward(cpu{}, g, x.data(), &y, &code);
        CHECK(std::isnan(y));
        CHECK(code == at);
        const float dy = 3;
        max_pool_backward(cpu{}, g, &dy, &code, dx.data());
        for (std::size_t i = 0; i < 4; ++i) CHECK(dx[i] == (i == at ? 3.0f : 0.0f));
    }
}

TEST_CASE("pool: the same bits on any number of threads", "[pool]") {
    const pool_geometry g = geometry_of({3, 24, {1, 61, 67}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}});
    const auto x = draw<float>(g.x_elements(), 1), dy = draw<float>(g.y_elements(), 2);
    std::vector<float> first_y, first_dx;
    on_several_threads([&](int n) {
        std::vector<float> y(dy.size()), dx(x.size());
        std::vector<std::uint8_t> code(dy.size());
        max_pool_forward(cpu{}, g, x.data(), y.data(), code.data());
        max_pool_backward(cpu{}, g, dy.data(), code.data(), dx.data());
        if (n == 1) first_y = y, first_dx = dx;
        CHECK(same_bits(y, first_y));
        CHECK(same_bits(dx, first_dx));
    });
}

}  // namespace cairn
