#pragma once
// Shapes of convolutions, chosen at random.

#include <cairn/core/random.hpp>
#include <cairn/device/conv_geometry.hpp>

namespace kernel_tests {

// A small random shape; every third one grouped, every fifth depthwise, dimensions 1 to 3.
inline cairn::conv_geometry random_geometry(std::uint32_t seed) {
    const cairn::random_stream r{99, seed, 0};
    std::uint64_t at = 0;
    const auto draw = [&](cairn::index_t low, cairn::index_t high) {
        return low + static_cast<cairn::index_t>(r.below(static_cast<std::uint64_t>(high - low + 1), at++));
    };
    cairn::conv_geometry g;
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

}  // namespace kernel_tests
