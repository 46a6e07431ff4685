#pragma once
// Lab 7, given: matrices, volumes, and a convolution of a volume on one rank. Nothing here is to be written.
//
// What you have (cairn/comm), for a communicator c; a span of doubles is std::span<double>(a.values):
//   c.rank(), c.size()                           this rank's number, and how many ranks there are
//   cairn::ring_all_reduce(c, span)              every rank has the sums over all ranks, in place
//   cairn::send(c, span, to, tag)                sends all elements, waits until they are received
//   cairn::recv(c, span, from, tag)              waits for a message of exactly that many elements
//   cairn::sendrecv(c, out, to, in, from, tag)   both at once; the spans must not overlap
// Tags are yours, 0 to 8191.

#include <cairn/comm/collectives/ring.hpp>
#include <cairn/comm/communicator.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace student {

/// rows × cols numbers, row by row.
struct matrix {
    std::size_t rows = 0, cols = 0;
    std::vector<double> values;

    matrix() = default;
    matrix(std::size_t r, std::size_t c) : rows(r), cols(c), values(r * c) {}
    double& operator()(std::size_t r, std::size_t c) { return values[r * cols + c]; }
    double operator()(std::size_t r, std::size_t c) const { return values[r * cols + c]; }
};

/// channels × depth × height × width numbers, the width moving fastest.
struct volume {
    std::size_t channels = 0, depth = 0, height = 0, width = 0;
    std::vector<double> values;

    volume() = default;
    volume(std::size_t c, std::size_t d, std::size_t h, std::size_t w)
        : channels(c), depth(d), height(h), width(w), values(c * d * h * w) {}
    double& operator()(std::size_t c, std::size_t d, std::size_t h, std::size_t w) {
        return values[((c * depth + d) * height + h) * width + w];
    }
    double operator()(std::size_t c, std::size_t d, std::size_t h, std::size_t w) const {
        return values[((c * depth + d) * height + h) * width + w];
    }
};

/// The weights of a convolution: out × in windows of kernel³ numbers; kernel is odd.
struct windows {
    std::size_t out = 0, in = 0, kernel = 1;
    std::vector<double> values;

    windows() = default;
    windows(std::size_t o, std::size_t i, std::size_t k) : out(o), in(i), kernel(k), values(o * i * k * k * k) {}
    std::size_t radius() const { return kernel / 2; }  // rows of a halo on each side
    double& operator()(std::size_t o, std::size_t i, std::size_t d, std::size_t h, std::size_t w) {
        return values[(((o * in + i) * kernel + d) * kernel + h) * kernel + w];
    }
    double operator()(std::size_t o, std::size_t i, std::size_t d, std::size_t h, std::size_t w) const {
        return values[(((o * in + i) * kernel + d) * kernel + h) * kernel + w];
    }
};

/// What begins where, and how much of it: part r of n rows in p nearly equal parts; the first n mod p have one more.
struct part {
    std::size_t begin = 0, count = 0;
};
inline part part_of(std::size_t n, int rank, int p) {
    const auto r = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(p);
    const std::size_t small = n / ranks, larger = n % ranks;
    return {r * small + (r < larger ? r : larger), small + (r < larger ? 1 : 0)};
}

namespace detail {

/// Calls visit(o, i, d, h, w, a, b, c, x): output (o, d, h, w) reads input (i, d + a, h + b, x) through the weight
/// (o, i, a, b, c).
template <class Visit>
void each_product(const windows& k, std::size_t depth, std::size_t height, std::size_t width, Visit&& visit) {
    for (std::size_t o = 0; o < k.out; ++o)
        for (std::size_t i = 0; i < k.in; ++i)
            for (std::size_t d = 0; d < depth; ++d)
                for (std::size_t h = 0; h < height; ++h)
                    for (std::size_t a = 0; a < k.kernel; ++a)
                        for (std::size_t b = 0; b < k.kernel; ++b)
                            for (std::size_t c = 0; c < k.kernel; ++c)
                                for (std::size_t w = 0; w < width; ++w)
                                    if (const std::size_t x = w + c; x >= k.radius() && x < width + k.radius())
                                        visit(o, i, d, h, w, a, b, c, x - k.radius());
}

}  // namespace detail

/// The convolution of a volume that has `radius` rows more than the result on each side of depth and of height. The
/// width is not cut: outside of it are zeros.
inline volume convolve(const volume& extended, const windows& k) {
    const std::size_t around = 2 * k.radius();
    volume y(k.out, extended.depth - around, extended.height - around, extended.width);
    detail::each_product(k, y.depth, y.height, y.width,
                         [&](auto o, auto i, auto d, auto h, auto w, auto a, auto b, auto c, auto x) {
                             y(o, d, h, w) += k(o, i, a, b, c) * extended(i, d + a, h + b, x);
                         });
    return y;
}

/// From the gradient of convolve's result, that of the volume it was called with, the rows around included.
inline volume convolve_input_gradient(const volume& dy, const windows& k) {
    const std::size_t around = 2 * k.radius();
    volume dx(k.in, dy.depth + around, dy.height + around, dy.width);
    detail::each_product(k, dy.depth, dy.height, dy.width,
                         [&](auto o, auto i, auto d, auto h, auto w, auto a, auto b, auto c, auto x) {
                             dx(i, d + a, h + b, x) += k(o, i, a, b, c) * dy(o, d, h, w);
                         });
    return dx;
}

/// From the same, the gradient of the weights: the sum over these rows. `like` has the sizes of the weights.
inline windows convolve_weight_gradient(const volume& extended, const volume& dy, const windows& like) {
    windows dk(like.out, like.in, like.kernel);
    detail::each_product(dk, dy.depth, dy.height, dy.width,
                         [&](auto o, auto i, auto d, auto h, auto w, auto a, auto b, auto c, auto x) {
                             dk(o, i, a, b, c) += extended(i, d + a, h + b, x) * dy(o, d, h, w);
                         });
    return dk;
}

}  // namespace student
