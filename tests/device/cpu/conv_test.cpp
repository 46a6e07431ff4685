// Convolutions: every algorithm against plain loops, on random and on awkward shapes, in float and double.
#include "oracle/conv.hpp"
#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"
#include "device/random_geometry.hpp"
#include "device/refusals.hpp"

#include <cairn/device/cpu/conv.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using cairn::conv_geometry;
using cairn::conv_phase;

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

/// Problem of an algorithm, and its largest distance from plain loops.
struct candidate {
    const char* algorithm;
    double tolerance;
};

template <class T>
void compare(const conv_geometry& g, const std::vector<candidate>& candidates) {
    const auto x = kernel_tests::draw_uniform<T>(g.x_elements(), 1),
               w = kernel_tests::draw_uniform<T>(g.w_elements(), 2);
    const auto b = kernel_tests::draw_uniform<T>(g.c_out, 3), dy = kernel_tests::draw_uniform<T>(g.y_elements(), 4);

    std::vector<T> expected_y(dy.size()), expected_y_with_bias(dy.size()), expected_dx(x.size());
    oracle::conv_forward<T>(g, x.data(), w.data(), nullptr, expected_y.data());
    oracle::conv_forward<T>(g, x.data(), w.data(), b.data(), expected_y_with_bias.data());
    oracle::conv_backward_input(g, dy.data(), w.data(), expected_dx.data());
    // Gradients are added to what is there: the sum of w and b.
    std::vector<T> expected_dw(w.size()), expected_db(b.size());
    oracle::conv_backward_weight(g, x.data(), dy.data(), expected_dw.data(), expected_db.data());
    for (std::size_t i = 0; i < w.size(); ++i) expected_dw[i] += w[i];
    for (std::size_t i = 0; i < b.size(); ++i) expected_db[i] += b[i];

    for (const auto& [algorithm, tolerance] : candidates) {
        INFO(algorithm << " " << g.to_string() << (sizeof(T) == 8 ? " double" : " float"));
        const kernel_tests::forced f("conv", algorithm);
        std::vector<T> y(dy.size(), T(NAN)), dx(x.size(), T(NAN)), dw = w, db = b, again = w;
        cairn::conv_forward<T>(cairn::cpu{}, g, x.data(), w.data(), nullptr, y.data());
        CHECK(error_of(y, expected_y) < tolerance);
        cairn::conv_forward<T>(cairn::cpu{}, g, x.data(), w.data(), b.data(), y.data());
        CHECK(error_of(y, expected_y_with_bias) < tolerance);
        cairn::conv_backward_input(cairn::cpu{}, g, dy.data(), w.data(), dx.data());
        CHECK(error_of(dx, expected_dx) < tolerance);
        cairn::conv_backward_weight(cairn::cpu{}, g, x.data(), dy.data(), dw.data(), db.data());
        CHECK(error_of(dw, expected_dw) < tolerance);
        CHECK(error_of(db, expected_db) < tolerance);
        cairn::conv_backward_weight<T>(cairn::cpu{}, g, x.data(), dy.data(), again.data(), nullptr);
        CHECK(error_of(again, expected_dw) < tolerance);
    }
}

/// All algorithms within the same tolerance.
std::vector<candidate> each(std::initializer_list<const char*> algorithms, double tolerance) {
    std::vector<candidate> all;
    for (const char* algorithm : algorithms) all.push_back({algorithm, tolerance});
    return all;
}

conv_geometry geometry2d(cairn::index_t n, cairn::index_t size, cairn::index_t c_in, cairn::index_t c_out,
                         cairn::index_t kernel, cairn::index_t stride, cairn::index_t pad) {
    conv_geometry g;
    g.n = n, g.c_in = c_in, g.c_out = c_out;
    g.in = {1, size, size}, g.kernel = {1, kernel, kernel}, g.stride = {1, stride, stride}, g.pad = {0, pad, pad};
    return g.with_output();
}

}  // namespace

TEST_CASE("convolution: each algorithm equals plain loops on random shapes", "[conv]") {
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
        const conv_geometry g = kernel_tests::random_geometry(seed);
        compare<float>(g, each({"plain", "im2col", "direct", "tiled"}, 2e-5));
        compare<double>(g, each({"plain", "im2col", "direct", "tiled"}, 1e-13));
    }
}

TEST_CASE("convolution: layers of real networks, small", "[conv]") {
    std::vector<conv_geometry> shapes{geometry2d(3, 28, 1, 6, 5, 1, 2),    geometry2d(2, 14, 6, 16, 5, 1, 0),
                                      geometry2d(2, 32, 3, 64, 3, 1, 1),   geometry2d(1, 56, 3, 64, 7, 2, 3),
                                      geometry2d(2, 16, 64, 128, 3, 2, 1), geometry2d(2, 16, 64, 128, 1, 2, 0),
                                      geometry2d(2, 9, 64, 256, 1, 1, 0),  geometry2d(1, 7, 40, 33, 3, 1, 1),
                                      geometry2d(1, 1, 5, 7, 1, 1, 0),     geometry2d(4, 19, 16, 16, 3, 1, 1)};
    conv_geometry cosmo;
    cosmo.n = 2, cosmo.c_in = 4, cosmo.c_out = 16;
    cosmo.in = {8, 9, 10}, cosmo.kernel = {3, 3, 3}, cosmo.pad = {1, 1, 1};
    shapes.push_back(cosmo.with_output());
    auto in_float = each({"plain", "im2col", "direct", "tiled", "winograd2"}, 2e-5);
    in_float.push_back({"winograd4", 1e-4});  // evaluates at points up to 2, which costs float about one digit
    in_float.push_back({"", 1e-4});           // chosen by measurement
    const auto in_double = each({"plain", "im2col", "direct", "tiled", "winograd2", "winograd4", ""}, 1e-12);
    for (const conv_geometry& g : shapes) {
        compare<float>(g, in_float);
        compare<double>(g, in_double);
    }
}

namespace {

// Results of the three phases, one after the other.
std::vector<float> all_phases(const conv_geometry& g, const char* algorithm, int threads) {
    const kernel_tests::forced f("conv", algorithm);
    const kernel_tests::threads_for_now t(threads);
    const auto x = kernel_tests::draw_uniform<float>(g.x_elements(), 1),
               w = kernel_tests::draw_uniform<float>(g.w_elements(), 2);
    const auto b = kernel_tests::draw_uniform<float>(g.c_out, 3),
               dy = kernel_tests::draw_uniform<float>(g.y_elements(), 4);
    std::vector<float> y(dy.size()), dx(x.size()), dw(w.size()), db(b.size());
    cairn::conv_forward(cairn::cpu{}, g, x.data(), w.data(), b.data(), y.data());
    cairn::conv_backward_input(cairn::cpu{}, g, dy.data(), w.data(), dx.data());
    cairn::conv_backward_weight(cairn::cpu{}, g, x.data(), dy.data(), dw.data(), db.data());
    for (const auto* part : {&dx, &dw, &db}) y.insert(y.end(), part->begin(), part->end());
    return y;
}

}  // namespace

TEST_CASE("convolution: the same bits again, and on any number of threads", "[conv]") {
    for (const conv_geometry& g :
         {geometry2d(5, 20, 24, 40, 3, 1, 1), geometry2d(9, 15, 16, 24, 3, 2, 1), geometry2d(6, 12, 32, 16, 1, 1, 0)}) {
        cairn::autotune_cache::global().force("gemm", "builtin");
        for (const char* algorithm : {"plain", "tiled", "im2col", "winograd4", "winograd2"}) {
            INFO(algorithm << ' ' << g.to_string());
            if (std::string(algorithm).rfind("winograd", 0) == 0 && !cairn::winograd_applies(g, 4)) continue;
            const auto once = all_phases(g, algorithm, 1);
            for (const int threads : {1, 2, 3}) CHECK((all_phases(g, algorithm, threads) == once));
        }
        cairn::autotune_cache::global().force("gemm", "");
        // oneDNN promises the same bits only for the same number of threads.
        for (const int threads : {1, 2}) CHECK((all_phases(g, "direct", threads) == all_phases(g, "direct", threads)));
    }
}

TEST_CASE("convolution: a measured choice is entered, saved and replayed", "[conv]") {
    auto& registry = cairn::autotune_cache::global();
    const conv_geometry g = geometry2d(4, 17, 16, 24, 3, 1, 1);
    const std::string key = "conv/forward f32 " + g.to_string() + " t" + std::to_string(cairn::threads());
    registry.clear();
    const auto first = all_phases(g, "", cairn::threads());
    REQUIRE(registry.entries().count(key) == 1);
    const auto made = registry.entries();
    CHECK(made.at(key).seconds.size() >= 2);
    const std::string path = "/tmp/cairn_conv_choices_" + std::to_string(::getpid());
    registry.save(path, "here");
    registry.clear();
    CHECK(registry.load(path, "here") == made.size());
    std::remove(path.c_str());
    CHECK((all_phases(g, "", cairn::threads()) == first));
    CHECK(registry.entries().size() == made.size());
    // Another choice put into the registry is obeyed.
    registry.set(key, {"tiled", {}});
    auto expected = first;
    {
        const kernel_tests::forced f("conv", "tiled");
        const auto x = kernel_tests::draw_uniform<float>(g.x_elements(), 1),
                   w = kernel_tests::draw_uniform<float>(g.w_elements(), 2);
        const auto b = kernel_tests::draw_uniform<float>(g.c_out, 3);
        cairn::conv_forward(cairn::cpu{}, g, x.data(), w.data(), b.data(), expected.data());
    }
    CHECK((all_phases(g, "", cairn::threads()) == expected));
}

TEST_CASE("convolution: policy first measures nothing", "[conv]") {
    auto& registry = cairn::autotune_cache::global();
    registry.clear();
    registry.set_policy(cairn::autotune_policy::first);
    all_phases(geometry2d(2, 9, 16, 16, 3, 1, 1), "", 1);
    for (const auto& [key, entry] : registry.entries()) CHECK(entry.seconds.empty());
    registry.set_policy(cairn::autotune_policy::measure);
    registry.clear();
}

TEST_CASE("convolution: calls from several threads at once", "[conv]") {
    const conv_geometry g = geometry2d(3, 14, 8, 16, 3, 2, 1);
    for (const char* algorithm : {"direct", "tiled", "im2col", ""}) {
        const auto expected = all_phases(g, algorithm, 1);
        const kernel_tests::forced f("conv", algorithm);
        std::vector<std::vector<float>> got(4);
        std::vector<std::thread> threads;
        for (auto& result : got)
            threads.emplace_back([&] {
                cairn::set_threads(1);  // of this thread's own parallel regions
                const auto x = kernel_tests::draw_uniform<float>(g.x_elements(), 1),
                           w = kernel_tests::draw_uniform<float>(g.w_elements(), 2);
                const auto b = kernel_tests::draw_uniform<float>(g.c_out, 3);
                result.resize(static_cast<std::size_t>(g.y_elements()));
                for (int i = 0; i < 5; ++i)
                    cairn::conv_forward(cairn::cpu{}, g, x.data(), w.data(), b.data(), result.data());
            });
        for (auto& t : threads) t.join();
        for (const auto& result : got) CHECK(std::equal(result.begin(), result.end(), expected.begin()));
    }
}

TEST_CASE("convolution: counts the direct algorithm's operations, and leaves no workspace", "[conv]") {
    const conv_geometry g = geometry2d(2, 12, 16, 16, 3, 1, 1);
    const auto x = kernel_tests::draw_uniform<float>(g.x_elements(), 1),
               w = kernel_tests::draw_uniform<float>(g.w_elements(), 2);
    std::vector<float> y(static_cast<std::size_t>(g.y_elements()));
    const auto& pool = cairn::memory_pool::host();
    const auto before = pool.use_of(cairn::memory_category::workspace).live;
    for (const char* algorithm : {"direct", "winograd4", "tiled", "im2col", "plain", ""}) {
        const kernel_tests::forced f("conv", algorithm);
        const cairn::flop_counter::scope counting;
        cairn::conv_forward<float>(cairn::cpu{}, g, x.data(), w.data(), nullptr, y.data());
        CHECK(cairn::flop_counter::total().flops == 2u * 2 * 12 * 12 * 16 * 9 * 16);
        CHECK(cairn::flop_counter::total().bytes == 4u * (x.size() + w.size() + y.size()));
        CHECK(pool.use_of(cairn::memory_category::workspace).live == before);
    }
}

TEST_CASE("convolution: an empty batch is no work", "[conv]") {
    const conv_geometry g = geometry2d(0, 12, 3, 4, 3, 1, 1);
    std::vector<float> w(static_cast<std::size_t>(g.w_elements()), 1.0f), dw = w;
    cairn::conv_forward<float>(cairn::cpu{}, g, nullptr, w.data(), nullptr, nullptr);
    cairn::conv_backward_input<float>(cairn::cpu{}, g, nullptr, w.data(), nullptr);
    cairn::conv_backward_weight<float>(cairn::cpu{}, g, nullptr, nullptr, dw.data(), nullptr);
    CHECK(dw == w);
}

TEST_CASE("convolution: impossible geometries are refused before any compute", "[conv]") {
    cairn::refusals::impossible_geometries<cairn::cpu>();
}
