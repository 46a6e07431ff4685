#pragma once
// Laws of poolings of every grid device, besides kernel_laws.hpp: windows of every kind against plain loops, equal
// maxima, NaN, nothing to pool.

#include "device/cuda/law_numbers.hpp"
#include "oracle/pool.hpp"

namespace cairn::pool_laws {

using namespace kernel_laws;
using extents = std::array<index_t, 3>;

struct pool_case {
    index_t n, channels;
    extents in, kernel, stride, pad;
};

inline const std::vector<pool_case>& cases() {
    static const std::vector<pool_case> all{
        {1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},      // nothing to pool
        {2, 3, {1, 1, 10}, {1, 1, 3}, {1, 1, 3}, {0, 0, 0}},     // 1D, a rest at the end
        {2, 8, {1, 1, 9}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}},      // 1D, overlapping, in packets
        {2, 24, {1, 8, 6}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},     // tiles
        {1, 17, {1, 9, 7}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}},     // odd size, uncovered edge
        {1, 5, {1, 9, 9}, {1, 3, 2}, {1, 1, 1}, {0, 1, 1}},      // stride 1
        {2, 16, {1, 9, 10}, {1, 2, 2}, {1, 3, 4}, {0, 0, 0}},    // stride > kernel
        {1, 8, {4, 6, 4}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}},      // 3D tiles
        {2, 6, {5, 4, 7}, {3, 3, 3}, {2, 1, 2}, {1, 1, 1}},      // 3D overlapping
        {1, 3, {1, 20, 21}, {1, 17, 16}, {1, 3, 2}, {0, 0, 8}},  // 272 elements in a window
    };
    return all;
}

inline pool_geometry geometry_of(const pool_case& c, bool count_pad = true) {
    pool_geometry g;
    g.n = c.n;
    g.channels = c.channels;
    g.count_pad = count_pad;
    for (std::size_t a = 0; a < 3; ++a) g.axis[a] = pool_axis::sliding(c.in[a], c.kernel[a], c.stride[a], c.pad[a]);
    return g;
}

inline std::array<oracle::pool_windows, 3> windows_of(const pool_case& c) {
    std::array<oracle::pool_windows, 3> w;
    for (std::size_t a = 0; a < 3; ++a) w[a] = oracle::sliding(c.in[a], c.kernel[a], c.stride[a], c.pad[a]);
    return w;
}

template <class Code, class D, class T>
void check_maximum(const pool_geometry& g, const tensor<T>& x, const tensor<T>& dy, const oracle::pool_result& o) {
    const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
    tensor<T, D> y(dy.shape()), alone(dy.shape());
    auto dx = on_device<D>(tensor<T>::filled(x.shape(), T(9)));
    tensor<Code, D> code(dy.shape());
    max_pool_forward(D{}, g, d_x.data(), y.data(), code.data());
    max_pool_backward(D{}, g, d_dy.data(), code.data(), dx.data());
    max_pool_forward(D{}, g, d_x.data(), alone.data(), static_cast<std::uint8_t*>(nullptr));
    check_near(y, o.y, 0);
    check_near(alone, o.y, 0);
    check_near(dx, o.dx, eps<T>(8));
}

template <class D, class T>
void maxima() {
    for (const pool_case& c : cases())
        for (const bool ties : {false, true}) {
            CAPTURE(c.in[0], c.in[1], c.in[2], c.channels, ties);
            const pool_geometry g = geometry_of(c);
            tensor<T> x = drawn<T>({g.x_elements()}, 1);
            if (ties)
                for (T& v : x.span()) v = std::round(v);
            const tensor<T> dy = drawn<T>({g.y_elements()}, 2);
            const auto o =
                oracle::pool(oracle::pooling::max, c.n, c.in, windows_of(c), c.channels, doubles(x), doubles(dy));
            check_maximum<std::int32_t, D>(g, x, dy, o);
            if (g.window() <= 256) check_maximum<std::uint8_t, D>(g, x, dy, o);
        }
}

template <class D, class T>
void check_average(const pool_geometry& g, const oracle::pool_result& o, const tensor<T>& x, const tensor<T>& dy) {
    const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
    tensor<T, D> y(dy.shape());
    auto dx = on_device<D>(tensor<T>::filled(x.shape(), T(9)));
    average_pool_forward(D{}, g, d_x.data(), y.data());
    average_pool_backward(D{}, g, d_dy.data(), dx.data());
    check_near(y, o.y, eps<T>(64));
    check_near(dx, o.dx, eps<T>(16));
}

template <class D, class T>
void averages() {
    for (const pool_case& c : cases())
        for (const bool count_pad : {true, false}) {
            CAPTURE(c.in[0], c.in[1], c.in[2], c.channels, count_pad);
            const pool_geometry g = geometry_of(c, count_pad);
            const tensor<T> x = drawn<T>({g.x_elements()}, 3), dy = drawn<T>({g.y_elements()}, 4);
            check_average<D>(g,
                             oracle::pool(count_pad ? oracle::pooling::average : oracle::pooling::average_inside, c.n,
                                          c.in, windows_of(c), c.channels, doubles(x), doubles(dy)),
                             x, dy);
        }
    for (const extents& in : {extents{1, 7, 9}, extents{4, 5, 6}, extents{1, 1, 3}})
        for (const extents& out : {extents{1, 1, 1}, extents{1, 3, 4}, extents{2, 5, 9}})  // more than positions, too
            for (const index_t channels : {3, 8}) {
                CAPTURE(in[0], in[1], in[2], out[0], out[1], out[2], channels);
                pool_geometry g;
                g.n = 2;
                g.channels = channels;
                g.count_pad = false;
                std::array<oracle::pool_windows, 3> w;
                for (std::size_t a = 0; a < 3; ++a) {
                    g.axis[a] = pool_axis::adaptive(in[a], out[a]);
                    w[a] = oracle::adaptive(in[a], out[a]);
                }
                const tensor<T> x = drawn<T>({g.x_elements()}, 5), dy = drawn<T>({g.y_elements()}, 6);
                check_average<D>(
                    g, oracle::pool(oracle::pooling::average_inside, 2, in, w, channels, doubles(x), doubles(dy)), x,
                    dy);
            }
}

template <class D, class T>
void global_averages() {
    for (const index_t channels : {1, 3, 64, 512})
        for (const index_t points : {1, 16, 1000}) {
            if (channels > 3 && channels * points > 65000) continue;
            CAPTURE(channels, points);
            const index_t n = channels > 64 ? 1 : 3;
            const tensor<T> x = drawn<T>({n * points * channels}, 7, 1, 2), dy = drawn<T>({n * channels}, 8);
            const auto o = oracle::pool(
                oracle::pooling::average, n, {1, 1, points},
                {oracle::sliding(1, 1, 1, 0), oracle::sliding(1, 1, 1, 0), oracle::sliding(points, points, 1, 0)},
                channels, doubles(x), doubles(dy));
            const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
            tensor<T, D> y(dy.shape()), dx(x.shape());
            global_average_forward(D{}, n, points, channels, d_x.data(), y.data());
            global_average_backward(D{}, n, points, channels, d_dy.data(), dx.data());
            check_near(y, o.y, eps<T>(64));
            check_near(dx, o.dx, eps<T>(4));
        }
}

/// The NaN of a window is its maximum and gets the gradient; of two, as on the host.
template <class D>
void maximum_of_nan() {
    for (const index_t channels : {1, 8}) {  // one by one, and in packets
        const pool_geometry g = geometry_of({1, channels, {1, 1, 4}, {1, 1, 4}, {1, 1, 4}, {0, 0, 0}});
        for (index_t at = 0; at < 4; ++at)
            for (index_t other = at; other < 4; ++other) {
                CAPTURE(channels, at, other);
                tensor<float> x({4 * channels}), host_y({channels}), host_dx(x.shape());
                for (index_t i = 0; i < x.size(); ++i) {
                    const index_t point = i / channels;
                    x[i] = point == at || point == other ? std::numeric_limits<float>::quiet_NaN()
                                                         : static_cast<float>(point * point % 5);
                }
                const auto d_x = on_device<D>(x), dy = on_device<D>(tensor<float>::filled({channels}, 3));
                tensor<float, D> y({channels}), dx(x.shape());
                tensor<std::uint8_t, D> code({channels});
                max_pool_forward(D{}, g, d_x.data(), y.data(), code.data());
                max_pool_backward(D{}, g, dy.data(), code.data(), dx.data());
                tensor<std::uint8_t> host_code({channels});
                max_pool_forward(cpu{}, g, x.data(), host_y.data(), host_code.data());
                const auto got_y = on_host(y), got_dx = on_host(dx);
                const auto got_code = on_host(code);
                for (index_t c = 0; c < channels; ++c) {
                    CHECK(std::isnan(got_y[c]));
                    CHECK(got_code[c] == host_code[c]);
                    for (index_t p = 0; p < 4; ++p)
                        CHECK(got_dx[p * channels + c] == (p == static_cast<index_t>(got_code[c]) ? 3.0f : 0.0f));
                }
            }
    }
}

/// No images: nothing is launched and nothing written.
template <class D>
void no_images() {
    pool_geometry g = geometry_of({1, 8, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}});
    g.n = 0;
    auto kept = on_device<D>(tensor<float>::filled({64}, 7));
    auto code = on_device<D>(tensor<std::uint8_t>::filled({64}, 7));
    max_pool_forward(D{}, g, kept.data(), kept.data(), code.data());
    max_pool_backward(D{}, g, kept.data(), code.data(), kept.data());
    average_pool_forward(D{}, g, kept.data(), kept.data());
    average_pool_backward(D{}, g, kept.data(), kept.data());
    global_average_forward(D{}, 0, 4, 8, kept.data(), kept.data());
    global_average_backward(D{}, 0, 4, 8, kept.data(), kept.data());
    check_close(kept, tensor<float>::filled({64}, 7), 0);
    check_close(code, tensor<std::uint8_t>::filled({64}, 7), 0);
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"maxima, float", maxima<D, float>},
                                       {"maxima, double", maxima<D, double>},
                                       {"averages, float", averages<D, float>},
                                       {"averages, double", averages<D, double>},
                                       {"global averages, float", global_averages<D, float>},
                                       {"global averages, double", global_averages<D, double>},
                                       {"maximum of NaN", maximum_of_nan<D>},
                                       {"pooling of no images", no_images<D>}};
    return laws;
}

}  // namespace cairn::pool_laws
