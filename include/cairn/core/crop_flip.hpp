#pragma once
// Inputs made of 8-bit images, the same on the host and on a GPU:
//   x(y, u, c) = table(c, pixel(y', u', c)),  y' = move.row(y),  u' = move.column(u, width)
//   x = 0 where the image has no such pixel
// A sample then travels as its pixels, one byte per value, and a move of 12 bytes. The table holds the host's own
// conversion of each of the 256 values of a channel: a GPU's inputs have the host's bits, whether or not a compiler
// fuses product and sum.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cstdint>

namespace cairn {

/// The pixel of the stored image that each pixel of the input shows: the image is padded, cropped to its size again,
/// and mirrored or not.
struct crop_flip {
    std::int32_t down = 0, right = 0;  // where the crop begins in the stored image
    std::int32_t mirrored = 0;         // of the crop, 0 or 1

    CAIRN_HD std::int32_t row(std::int32_t y) const { return y + down; }
    CAIRN_HD std::int32_t column(std::int32_t u, std::int32_t width) const {
        return (mirrored ? width - 1 - u : u) + right;
    }
    CAIRN_HD bool moves() const { return down || right || mirrored; }
    bool operator==(const crop_flip&) const = default;
};

static_assert(sizeof(crop_flip) == 12);

/// Entries of a table for each channel.
inline constexpr index_t pixel_values = 256;

}  // namespace cairn
