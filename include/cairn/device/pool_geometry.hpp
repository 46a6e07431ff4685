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
    index in = 1, out = 1, kernel = 1;
    index stride = 1, pad = 0;  // of sliding windows
    bool is_adaptive = false;
    std::vector<index> start;        // first position of the uncut window, may be negative
    std::vector<index> begin, end;   // positions inside the input
    std::vector<index> first, last;  // for each input position: windows [first, last) cover it

    static pool_axis sliding(index in, index kernel, index stride, index pad) {
        pool_axis a;
        a.in = in;
        a.kernel = kernel;
        a.stride = stride;
        a.pad = pad;
        a.out = in + 2 * pad < kernel ? 0 : (in + 2 * pad - kernel) / stride + 1;
        for (index o = 0; o < a.out; ++o) a.add(o * stride - pad, o * stride - pad + kernel);
        a.invert();
        return a;
    }

    static pool_axis adaptive(index in, index out) {
        pool_axis a;
        a.in = in;
        a.out = out;
        a.is_adaptive = true;
        for (index o = 0; o < out; ++o) {
            a.add(o * in / out, ((o + 1) * in + out - 1) / out);
            a.kernel = std::max(a.kernel, a.end.back() - a.begin.back());
        }
        a.invert();
        return a;
    }

    /// Positions of window o inside the input.
    index length(index o) const { return end[at(o)] - begin[at(o)]; }

    /// Whether every input position lies in exactly one window and no window is cut.
    bool tiles() const {
        for (index o = 0; o < out; ++o)
            if (start[at(o)] != o * kernel || end[at(o)] != (o + 1) * kernel) return false;
        return in == out * kernel;
    }

    static std::size_t at(index i) { return static_cast<std::size_t>(i); }

private:
    void add(index from, index to) {
        start.push_back(from);
        begin.push_back(std::max<index>(from, 0));
        end.push_back(std::min(to, in));
    }

    void invert() {
        first.assign(at(in), out);
        last.assign(at(in), 0);
        for (index o = 0; o < out; ++o)
            for (index i = begin[at(o)]; i < end[at(o)]; ++i) {
                first[at(i)] = std::min(first[at(i)], o);
                last[at(i)] = o + 1;
            }
        for (index i = 0; i < in; ++i) first[at(i)] = std::min(first[at(i)], last[at(i)]);  // no window: an empty range
    }
};

/// Pooling of n channels-last images or volumes.
struct pool_geometry {
    index n = 0, channels = 0;
    std::array<pool_axis, 3> axis;  // depth, height, width
    bool count_pad = true;          // an average divides by the whole kernel even where the window is cut

    index window() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
    index in_points() const { return axis[0].in * axis[1].in * axis[2].in; }
    index out_points() const { return axis[0].out * axis[1].out * axis[2].out; }
    index x_elements() const { return n * in_points() * channels; }
    index y_elements() const { return n * out_points() * channels; }
    bool tiles() const { return axis[0].tiles() && axis[1].tiles() && axis[2].tiles(); }

    /// Elements that all windows of one image read, per channel.
    index reads() const {
        index product = 1;
        for (const pool_axis& a : axis) {
            index sum = 0;
            for (index o = 0; o < a.out; ++o) sum += a.length(o);
            product *= sum;
        }
        return product;
    }
};

}  // namespace cairn
