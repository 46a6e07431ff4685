// Winograd convolution against the plain-loop oracle, with bounds derived from the transforms themselves.
//
// With u = eps / 2 every intermediate passes through n roundings: 2 axes of at most 6 in each of the three transforms
// (two of them from rounded constants), one product and K additions, so to first order
//   |error| <= n u K A^2 max|x| max|w|,   n = K + 40,   A = max_i sum_p |A_pi| |G_p|_1 |B_p|_1
// where K is the number of summed tiles of data (depth x c_in forward, tiles for weights). A^2 is the amplification
// constant: F(4x4, 3x3) has 564 forward and 802 for weights at our points, 2304 and 2844 at the textbook's. Random
// errors cancel: an error made at size s counts with its mean square s^2 u^2 / 3, which leads to
//   rms error <= u s sqrt(K (K / 2 + 40) / 3) a^2,   a^2 = sum_p (A_pi |G_p|_2 |B_p|_2)^2, squared for two axes
// with s the product of the two operands' standard deviations. Both are checked.

#include "catch.hpp"
#include "oracle/conv.hpp"

#include <cairn/core/random.hpp>
#include <cairn/device/cpu/winograd.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using cairn::conv_geometry;
using cairn::conv_phase;
using cairn::index_t;

// The three matrices of F(m, 3), read off the 1-D transforms by feeding unit vectors.
struct matrices {
    std::vector<std::vector<double>> a, g, bt;  // (m + 2, m), (m + 2, 3), (m + 2, m + 2)
};

template <int In, int Out, class Transform>
std::vector<std::vector<double>> matrix_of(Transform transform) {
    std::vector<std::vector<double>> result(Out, std::vector<double>(In));
    for (int j = 0; j < In; ++j) {
        cairn::winograd::vec<double> in[In] = {}, out[Out];
        in[j] += 1.0;
        transform(in, out);
        for (int i = 0; i < Out; ++i) result[std::size_t(i)][std::size_t(j)] = out[i][0];
    }
    return result;
}

template <int M>
matrices matrices_of() {
    namespace w = cairn::winograd;
    return {matrix_of<M, M + 2>([](auto& in, auto& out) { w::transform_output_gradient<M, double>(in, out); }),
            matrix_of<3, M + 2>([](auto& in, auto& out) { w::transform_filter<M, double>(in, out); }),
            matrix_of<M + 2, M + 2>([](auto& in, auto& out) { w::transform_data<M, double>(in, out); })};
}

double norm1(const std::vector<double>& v) {
    double sum = 0;
    for (double e : v) sum += std::abs(e);
    return sum;
}
double norm2(const std::vector<double>& v) {
    double sum = 0;
    for (double e : v) sum += e * e;
    return std::sqrt(sum);
}

// max_i sum_p |last_pi| |first_p| |data_p|, in absolute values and in mean squares.
struct amplification {
    double worst = 0, mean = 0;
    amplification(const std::vector<std::vector<double>>& last, const std::vector<std::vector<double>>& first,
                  const std::vector<std::vector<double>>& data) {
        for (std::size_t i = 0; i < last[0].size(); ++i) {
            double absolute = 0, square = 0;
            for (std::size_t p = 0; p < last.size(); ++p) {
                absolute += std::abs(last[p][i]) * norm1(first[p]) * norm1(data[p]);
                square += std::pow(last[p][i] * norm2(first[p]) * norm2(data[p]), 2);
            }
            worst = std::max(worst, absolute * absolute);
            mean = std::max(mean, square);  // squared by two axes, rooted by the square
        }
    }
};

amplification forward_amplification(int tile) {
    const matrices m = tile == 4 ? matrices_of<4>() : matrices_of<2>();
    return {m.a, m.g, m.bt};
}
amplification weight_amplification(int tile) {
    const matrices m = tile == 4 ? matrices_of<4>() : matrices_of<2>();
    return {m.g, m.a, m.bt};
}

template <class T>
std::vector<T> uniform(index_t elements, cairn::random_stream random) {
    std::vector<T> v(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<T>(2 * random.uniform(i) - 1);
    return v;
}

// Checks both bounds for operands uniform in [-1, 1) (mean square 1/3), sums over `terms` tiles.
template <class T>
void check_close(const std::vector<T>& result, const std::vector<T>& expected, double terms, const amplification& a) {
    const double u = std::numeric_limits<T>::epsilon() / 2;
    double worst = 0, squares = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double error = std::abs(double(result[i]) - double(expected[i]));
        worst = std::max(worst, error);
        squares += error * error;
    }
    REQUIRE(std::isfinite(squares));
    CHECK(worst <= (terms + 40) * u * a.worst * terms);
    if (result.size() >= 64)
        CHECK(std::sqrt(squares / double(result.size())) <= u / 3 * std::sqrt(terms * (terms / 2 + 40) / 3) * a.mean);
}

// 64-byte aligned workspace with guard bytes behind it.
class workspace {
public:
    explicit workspace(index_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        start_ = static_cast<unsigned char*>(std::aligned_alloc(64, (bytes_ + 64 + 63) / 64 * 64));
        std::memset(start_, 0xFF, bytes_ + 64);  // NaNs: nothing may be read before it is written
    }
    ~workspace() {
        bool intact = true;
        for (std::size_t i = bytes_; i < bytes_ + 64; ++i) intact = intact && start_[i] == 0xFF;
        CHECK(intact);
        std::free(start_);
    }
    workspace(const workspace&) = delete;
    workspace& operator=(const workspace&) = delete;
    operator void*() const { return start_; }

private:
    std::size_t bytes_;
    unsigned char* start_;
};

template <class T>
struct problem {
    conv_geometry g;
    std::vector<T> x, w, bias, dy;
    problem(const conv_geometry& geometry, std::uint64_t seed)
        : g(geometry),
          x(uniform<T>(g.x_elements(), {seed, 1})),
          w(uniform<T>(g.w_elements(), {seed, 2})),
          bias(uniform<T>(g.c_out, {seed, 3})),
          dy(uniform<T>(g.y_elements(), {seed, 4})) {}

    std::vector<T> forward(int tile, int threads) const {
        std::vector<T> y(dy.size(), T(7));
        const workspace space(cairn::winograd_workspace_bytes<T>(g, conv_phase::forward, tile, threads));
        cairn::winograd_forward(g, x.data(), w.data(), bias.data(), y.data(), tile, space, threads);
        return y;
    }
    std::vector<T> backward_input(int tile, int threads) const {
        std::vector<T> dx(x.size(), T(7));
        const workspace space(cairn::winograd_workspace_bytes<T>(g, conv_phase::backward_input, tile, threads));
        cairn::winograd_backward_input(g, dy.data(), w.data(), dx.data(), tile, space, threads);
        return dx;
    }
    std::vector<T> backward_weight(int tile, int threads, T start, bool accumulate) const {
        std::vector<T> dw(w.size(), start);
        const workspace space(cairn::winograd_workspace_bytes<T>(g, conv_phase::backward_weight, tile, threads));
        cairn::winograd_backward_weight(g, x.data(), dy.data(), dw.data(), accumulate, tile, space, threads);
        return dw;
    }
};

template <class T>
void check_against_oracle(const conv_geometry& g, std::uint64_t seed) {
    const problem<T> p(g, seed);
    std::vector<T> y(p.dy.size()), dx(p.x.size()), dw(p.w.size());
    oracle::conv_forward(g, p.x.data(), p.w.data(), p.bias.data(), y.data());
    oracle::conv_backward_input(g, p.dy.data(), p.w.data(), dx.data());
    oracle::conv_backward_weight<T>(g, p.x.data(), p.dy.data(), dw.data(), nullptr);
    for (int tile : {2, 4}) {
        INFO(g.to_string() << " F(" << tile << "x" << tile << ", 3x3) " << sizeof(T) << " bytes");
        REQUIRE(cairn::winograd_applies(g, tile));
        const amplification forward = forward_amplification(tile), weight = weight_amplification(tile);
        const double depth = double(g.kernel[0]);
        const double tiles =
            double(g.n * g.out[0]) * std::ceil(double(g.out[1]) / tile) * std::ceil(double(g.out[2]) / tile);
        check_close(p.forward(tile, 2), y, depth * double(g.c_in), forward);
        check_close(p.backward_input(tile, 2), dx, depth * double(g.c_out), forward);
        const std::vector<T> gradient = p.backward_weight(tile, 2, T(3), false);
        check_close(gradient, dw, tiles, weight);
        const std::vector<T> added = p.backward_weight(tile, 2, T(3), true);
        const bool accumulated = std::equal(added.begin(), added.end(), gradient.begin(),
                                            [](T sum, T term) { return sum == T(term + T(3)); });
        CHECK(accumulated);
    }
}

conv_geometry geometry(index_t n, std::array<index_t, 3> in, index_t c_in, index_t c_out, index_t kernel_depth,
                       std::array<index_t, 3> pad) {
    conv_geometry g;
    g.n = n;
    g.in = in;
    g.c_in = c_in;
    g.c_out = c_out;
    g.kernel = {kernel_depth, 3, 3};
    g.pad = pad;
    return g.with_output();
}

}  // namespace

TEST_CASE("Winograd's 1-D algorithms are convolutions, and their transposes are adjoint") {
    const auto check = [](const matrices& m, std::size_t tile) {
        for (std::size_t i = 0; i < tile; ++i)
            for (std::size_t j = 0; j < 3; ++j)
                for (std::size_t k = 0; k < tile + 2; ++k) {
                    double sum = 0;  // y_i = sum_j g_j d_(i+j)
                    for (std::size_t p = 0; p < tile + 2; ++p) sum += m.a[p][i] * m.g[p][j] * m.bt[p][k];
                    CHECK(std::abs(sum - (i + j == k ? 1.0 : 0.0)) < 1e-14);
                }
    };
    check(matrices_of<2>(), 2);
    check(matrices_of<4>(), 4);
    CHECK(forward_amplification(4).worst == Approx(564).epsilon(0.01));
    CHECK(weight_amplification(4).worst == Approx(802).epsilon(0.01));

    namespace w = cairn::winograd;
    const auto a = matrices_of<4>().a, g = matrices_of<4>().g;
    const auto at = matrix_of<6, 4>([](auto& in, auto& out) { w::collect_output<4, double>(in, out); });
    const auto gt = matrix_of<6, 3>([](auto& in, auto& out) { w::collect_filter<4, double>(in, out); });
    for (std::size_t p = 0; p < 6; ++p) {
        for (std::size_t i = 0; i < 4; ++i) CHECK(at[i][p] == Approx(a[p][i]).epsilon(1e-14));
        for (std::size_t i = 0; i < 3; ++i) CHECK(gt[i][p] == Approx(g[p][i]).epsilon(1e-14));
    }
}

TEST_CASE("Winograd convolution equals the oracle on random shapes") {
    constexpr int cases = 60;
    for (int i = 0; i < cases; ++i) {
        const cairn::random_stream random{std::uint64_t(i), 99};
        auto draw = [&, k = std::uint64_t(0)](cairn::index_t low, cairn::index_t high) mutable {
            return low + cairn::index_t(random.below(std::uint64_t(high - low + 1), k++));
        };
        const bool volume = draw(0, 2) == 0;
        const cairn::index_t kernel_depth = volume ? draw(1, 3) : 1;
        const std::array<cairn::index_t, 3> pad{draw(0, kernel_depth - 1), draw(0, 2), draw(0, 2)};
        const auto extent = [&](std::size_t axis, cairn::index_t kernel, cairn::index_t most) {
            return draw(std::max<cairn::index_t>(1, kernel - 2 * pad[axis]), most);
        };
        const cairn::index_t depth = volume ? extent(0, kernel_depth, 7) : 1;
        const cairn::index_t height = extent(1, 3, volume ? 9 : 19), width = extent(2, 3, volume ? 9 : 19);
        const conv_geometry g = geometry(draw(1, 3), {depth, height, width}, draw(1, volume ? 40 : 70),
                                         draw(1, volume ? 40 : 70), kernel_depth, pad);
        check_against_oracle<float>(g, std::uint64_t(i));
        if (i % 3 == 0) check_against_oracle<double>(g, std::uint64_t(i));
    }
}

TEST_CASE("Winograd convolution equals the oracle where each way of cutting it is used") {
    using cairn::winograd::forward_plan;
    using cairn::winograd::weight_plan;
    // Many blocks with ragged ends, kept filters, chunked sums.
    const conv_geometry many = geometry(2, {1, 67, 59}, 17, 33, 1, {0, 1, 1});
    CHECK(!forward_plan<float>(many, 4, 2, nullptr).fused);
    CHECK(weight_plan<float>(many, 4, 2, nullptr).chunks > 1);
    check_against_oracle<float>(many, 1);
    // Many channels: fused filters in several pieces, joint sums in several blocks.
    const conv_geometry wide = geometry(200, {1, 2, 1}, 272, 336, 1, {0, 1, 1});
    CHECK(forward_plan<float>(wide, 4, 2, nullptr).fused);
    CHECK(forward_plan<float>(wide, 4, 2, nullptr).count() > 1);
    CHECK(weight_plan<float>(wide, 4, 2, nullptr).joint);
    CHECK(weight_plan<float>(wide, 4, 2, nullptr).count() > 1);
    check_against_oracle<float>(wide, 2);
    // The same in three dimensions, the depth cut into blocks.
    const conv_geometry deep = geometry(8, {9, 1, 2}, 170, 180, 3, {1, 1, 1});
    CHECK(forward_plan<float>(deep, 4, 2, nullptr).fused);
    CHECK(weight_plan<float>(deep, 4, 2, nullptr).joint);
    check_against_oracle<float>(deep, 3);
    const conv_geometry volume = geometry(2, {21, 12, 7}, 20, 24, 3, {2, 0, 2});
    CHECK(forward_plan<float>(volume, 4, 2, nullptr).shape.count_depths > 1);
    check_against_oracle<float>(volume, 4);
}

TEST_CASE("Winograd convolution writes large results past the caches, the same ones") {
    const conv_geometry g = geometry(1, {1, 515, 513}, 3, 16, 1, {0, 1, 1});
    const problem<float> p(g, 5);
    const auto y = p.forward(4, 2);
    std::vector<float> expected(y.size());
    oracle::conv_forward(g, p.x.data(), p.w.data(), p.bias.data(), expected.data());
    check_close(y, expected, 3, forward_amplification(4));
    float* aligned = static_cast<float*>(std::aligned_alloc(64, y.size() * sizeof(float) / 64 * 64 + 64));
    REQUIRE(cairn::winograd::stream_output(g, aligned));
    const workspace space(cairn::winograd_workspace_bytes<float>(g, conv_phase::forward, 4, 2));
    cairn::winograd_forward(g, p.x.data(), p.w.data(), p.bias.data(), aligned, 4, space, 2);
    const bool same = std::memcmp(aligned, y.data(), y.size() * sizeof(float)) == 0;
    CHECK(same);
    std::free(aligned);
}

TEST_CASE("Winograd convolution gives the same bits on any number of threads, and twice") {
    for (const conv_geometry& g :
         {geometry(5, {1, 30, 31}, 40, 24, 1, {0, 1, 1}), geometry(3, {1, 15, 9}, 272, 336, 1, {0, 1, 1}),
          geometry(2, {11, 8, 8}, 30, 20, 3, {1, 1, 1})})
        for (int tile : {2, 4}) {
            INFO(g.to_string() << " tile " << tile);
            const problem<float> p(g, 6);
            const auto y = p.forward(tile, 1), dx = p.backward_input(tile, 1),
                       dw = p.backward_weight(tile, 1, 0, false);
            for (int threads : {1, 2, 5}) {
                const bool same = p.forward(tile, threads) == y && p.backward_input(tile, threads) == dx &&
                                  p.backward_weight(tile, threads, 0, false) == dw;
                CHECK(same);
            }
        }
}

TEST_CASE("Winograd convolution says which shapes it cannot compute") {
    const conv_geometry good = geometry(1, {1, 8, 8}, 4, 4, 1, {0, 1, 1});
    CHECK(cairn::winograd_applies(good, 2));
    CHECK(cairn::winograd_applies(good, 4));
    CHECK(!cairn::winograd_applies(good, 3));
    const auto refused = [&](auto change) {
        conv_geometry g = good;
        change(g);
        const bool applies = cairn::winograd_applies(g.with_output(), 4);
        return !applies;
    };
    CHECK(refused([](conv_geometry& g) { g.stride[1] = 2; }));
    CHECK(refused([](conv_geometry& g) { g.dilation[2] = 2; }));
    CHECK(refused([](conv_geometry& g) { g.groups = 2; }));
    CHECK(refused([](conv_geometry& g) { g.kernel[2] = 5; }));
    CHECK(refused([](conv_geometry& g) { g.pad[1] = 3; }));
    CHECK(refused([](conv_geometry& g) { g.in[1] = 0; }));
    conv_geometry wrong_output = good;
    wrong_output.out[1] = 9;
    CHECK(!cairn::winograd_applies(wrong_output, 4));

    std::vector<float> data(1024);
    CHECK_THROWS_AS(
        cairn::winograd_forward<float>(wrong_output, data.data(), data.data(), nullptr, data.data(), 4, data.data(), 1),
        cairn::error);
    CHECK_THROWS_AS(cairn::winograd_forward<float>(good, data.data(), data.data(), nullptr, data.data(), 4, nullptr, 1),
                    cairn::error);
}
