#pragma once
// Where the windows of a pooling lie, along each of three spatial axes (those that a tensor does not have are of length
// 1):
//   sliding   window o covers [o stride - pad, o stride - pad + kernel), cut to the input
//   adaptive  window o covers [⌊o in / out⌋, ⌈(o + 1) in / out⌉)

#include <cairn/core/shape.hpp>

#include <array>
#include <vector>

namespace cairn {

/// The windows along one axis. All vectors but the last two have one entry an output position.
struct pool_axis {
    index_t in = 1, out = 1, kernel = 1;
    index_t stride = 1, pad = 0;  // of sliding windows
    bool is_adaptive = false;
    std::vector<index_t> start;        // first position of the uncut window, may be negative
    std::vector<index_t> begin, end;   // positions inside the input
    std::vector<index_t> first, last;  // for each input position: windows [first, last) cover it

    static pool_axis sliding(index_t in, index_t kernel, index_t stride, index_t pad) {
        pool_axis a;
        a.in = in;
        a.kernel = kernel;
        a.stride = stride;
        a.pad = pad;
        a.out = in + 2 * pad < kernel ? 0 : (in + 2 * pad - kernel) / stride + 1;
        for (index_t o = 0; o < a.out; ++o) a.add(o * stride - pad, o * stride - pad + kernel);
        a.invert();
        return a;
    }

    static pool_axis adaptive(index_t in, index_t out) {
        pool_axis a;
        a.in = in;
        a.out = out;
        a.is_adaptive = true;
        for (index_t o = 0; o < out; ++o) {
            a.add(o * in / out, ((o + 1) * in + out - 1) / out);
            a.kernel = std::max(a.kernel, a.end.back() - a.begin.back());
        }
        a.invert();
        return a;
    }

    /// Positions of window o inside the input.
    index_t length(index_t o) const { return end[at(o)] - begin[at(o)]; }

    /// Whether every input position lies in exactly one window and no window is cut.
    bool tiles() const {
        for (index_t o = 0; o < out; ++o)
            if (start[at(o)] != o * kernel || end[at(o)] != (o + 1) * kernel) return false;
        return in == out * kernel;
    }

    static std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

private:
    void add(index_t from, index_t to) {
        start.push_back(from);
        begin.push_back(std::max<index_t>(from, 0));
        end.push_back(std::min(to, in));
    }

    void invert() {
        first.assign(at(in), out);
        last.assign(at(in), 0);
        for (index_t o = 0; o < out; ++o)
            for (index_t i = begin[at(o)]; i < end[at(o)]; ++i) {
                first[at(i)] = std::min(first[at(i)], o);
                last[at(i)] = o + 1;
            }
        // no window: an empty range
        for (index_t i = 0; i < in; ++i) first[at(i)] = std::min(first[at(i)], last[at(i)]);
    }
};

/// Pooling of n channels-last images or volumes.
struct pool_geometry {
    index_t n = 0, channels = 0;
    std::array<pool_axis, 3> axis;  // depth, height, width
    bool count_pad = true;          // an average divides by the whole kernel even where the window is cut

    index_t window() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
    index_t in_points() const { return axis[0].in * axis[1].in * axis[2].in; }
    index_t out_points() const { return axis[0].out * axis[1].out * axis[2].out; }
    index_t x_elements() const { return n * in_points() * channels; }
    index_t y_elements() const { return n * out_points() * channels; }
    bool tiles() const { return axis[0].tiles() && axis[1].tiles() && axis[2].tiles(); }

    /// Elements that all windows of one image read, per channel.
    index_t reads() const {
        index_t product = 1;
        for (const pool_axis& a : axis) {
            index_t sum = 0;
            for (index_t o = 0; o < a.out; ++o) sum += a.length(o);
            product *= sum;
        }
        return product;
    }
};

}  // namespace cairn
