// Convolutions: every algorithm against plain loops, on random and on awkward shapes, in float and double.
#include "catch.hpp"
#include "oracle/conv.hpp"

#include <cairn/core/random.hpp>
#include <cairn/device/cpu/conv.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace {

using cairn::conv_geometry;
using cairn::conv_phase;

template <class T>
std::vector<T> random_values(cairn::index n, std::uint32_t stream) {
    const cairn::random_stream r{17, stream, 0};
    std::vector<T> v(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<T>(2 * r.uniform(i) - 1);
    return v;
}

// Largest error relative to the largest value: what rounding in any order of summation leaves.
template <class T>
double error_of(const std::vector<T>& got, const std::vector<T>& expected) {
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (!std::isfinite(static_cast<double>(got[i]))) return INFINITY;
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
        scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
    }
    return worst / scale;
}

// Makes one algorithm the choice for as long as it lives.
struct forced {
    explicit forced(const char* name) { cairn::choices::global().force("conv", name); }
    ~forced() { cairn::choices::global().force("conv", ""); }
};

template <class T>
void compare(const conv_geometry& g, const char* algorithm, double tolerance) {
    INFO(algorithm << " " << g.to_string() << (sizeof(T) == 8 ? " double" : " float"));
    const forced f(algorithm);
    const auto x = random_values<T>(g.x_elements(), 1), w = random_values<T>(g.w_elements(), 2);
    const auto b = random_values<T>(g.c_out, 3), dy = random_values<T>(g.y_elements(), 4);

    std::vector<T> y(dy.size(), T(NAN)), expected_y(dy.size());
    for (const T* bias : {b.data(), static_cast<const T*>(nullptr)}) {
        oracle::conv_forward(g, x.data(), w.data(), bias, expected_y.data());
        cairn::conv_forward(cairn::cpu{}, g, x.data(), w.data(), bias, y.data());
        CHECK(error_of(y, expected_y) < tolerance);
    }
    std::vector<T> dx(x.size(), T(NAN)), expected_dx(x.size());
    oracle::conv_backward_input(g, dy.data(), w.data(), expected_dx.data());
    cairn::conv_backward_input(cairn::cpu{}, g, dy.data(), w.data(), dx.data());
    CHECK(error_of(dx, expected_dx) < tolerance);

    // Gradients are added to what is there: the sum of w and b.
    std::vector<T> dw = w, db = b, expected_dw(w.size()), expected_db(b.size());
    oracle::conv_backward_weight(g, x.data(), dy.data(), expected_dw.data(), expected_db.data());
    for (std::size_t i = 0; i < w.size(); ++i) expected_dw[i] += w[i];
    for (std::size_t i = 0; i < b.size(); ++i) expected_db[i] += b[i];
    cairn::conv_backward_weight(cairn::cpu{}, g, x.data(), dy.data(), dw.data(), db.data());
    CHECK(error_of(dw, expected_dw) < tolerance);
    CHECK(error_of(db, expected_db) < tolerance);
    std::vector<T> again = w;
    cairn::conv_backward_weight<T>(cairn::cpu{}, g, x.data(), dy.data(), again.data(), nullptr);
    CHECK(error_of(again, expected_dw) < tolerance);
}

// A small random shape; every third one grouped, every fifth depthwise, dimensions 1 to 3.
conv_geometry random_geometry(std::uint32_t seed) {
    const cairn::random_stream r{99, seed, 0};
    std::uint64_t at = 0;
    const auto draw = [&](cairn::index low, cairn::index high) {
        return low + static_cast<cairn::index>(r.below(static_cast<std::uint64_t>(high - low + 1), at++));
    };
    conv_geometry g;
    g.n = draw(1, 3);
    g.groups = seed % 5 == 0 ? draw(2, 5) : seed % 3 == 0 ? draw(2, 3) : 1;
    g.c_in = g.groups * (seed % 5 == 0 ? 1 : draw(1, 9));
    g.c_out = g.groups * (seed % 5 == 0 ? draw(1, 2) : draw(1, 20));
    for (std::size_t axis = static_cast<std::size_t>(draw(0, 2)); axis < 3; ++axis) {
        g.kernel[axis] = draw(1, 4);
        g.stride[axis] = draw(1, 5);  // now and then larger than the kernel
        g.dilation[axis] = draw(1, 2);
        g.pad[axis] = draw(0, 2);
        g.in[axis] = (g.kernel[axis] - 1) * g.dilation[axis] + draw(1, 9);
    }
    return g.with_output();
}

conv_geometry geometry2d(cairn::index n, cairn::index size, cairn::index c_in, cairn::index c_out, cairn::index kernel,
                         cairn::index stride, cairn::index pad) {
    conv_geometry g;
    g.n = n, g.c_in = c_in, g.c_out = c_out;
    g.in = {1, size, size}, g.kernel = {1, kernel, kernel}, g.stride = {1, stride, stride}, g.pad = {0, pad, pad};
    return g.with_output();
}

}  // namespace

TEST_CASE("convolution: each algorithm equals plain loops on random shapes", "[conv]") {
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
        const conv_geometry g = random_geometry(seed);
        for (const char* algorithm : {"plain", "im2col", "direct", "tiled"}) {
            compare<float>(g, algorithm, 2e-5);
            compare<double>(g, algorithm, 1e-13);
        }
    }
}

TEST_CASE("convolution: layers of real networks, small", "[conv]") {
    std::vector<conv_geometry> shapes{
        geometry2d(3, 28, 1, 6, 5, 1, 2),    geometry2d(2, 14, 6, 16, 5, 1, 0),   geometry2d(2, 32, 3, 64, 3, 1, 1),
        geometry2d(1, 56, 3, 64, 7, 2, 3),   geometry2d(2, 16, 64, 128, 3, 2, 1), geometry2d(2, 16, 64, 128, 1, 2, 0),
        geometry2d(2, 9, 64, 256, 1, 1, 0),  geometry2d(1, 7, 40, 33, 3, 1, 1),   geometry2d(1, 1, 5, 7, 1, 1, 0),
        geometry2d(4, 19, 16, 16, 3, 1, 1)};
    conv_geometry cosmo;
    cosmo.n = 2, cosmo.c_in = 4, cosmo.c_out = 16;
    cosmo.in = {8, 9, 10}, cosmo.kernel = {3, 3, 3}, cosmo.pad = {1, 1, 1};
    shapes.push_back(cosmo.with_output());
    for (const conv_geometry& g : shapes)
        for (const char* algorithm : {"plain", "im2col", "direct", "tiled", "winograd2", "winograd4", ""}) {
            // F(4×4) evaluates at points up to 2, which costs float about one digit.
            compare<float>(g, algorithm, std::string(algorithm) == "winograd4" || !*algorithm ? 1e-4 : 2e-5);
            compare<double>(g, algorithm, 1e-12);
        }
}
