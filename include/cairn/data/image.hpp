#pragma once
// A decoded 8-bit image, (height, width, channels) row-major, and rectangles in it.

#include <cairn/core/shape.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace cairn {

/// Leaves new elements as they are: a buffer that is filled anyway need not be cleared first, image after image.
template <class T>
struct uninitialised_allocator : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = uninitialised_allocator<U>;
    };
    template <class U>
    void construct(U* p) noexcept {
        ::new (static_cast<void*>(p)) U;
    }
    template <class U, class... Arguments>
    void construct(U* p, Arguments&&... arguments) {
        ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
    }
};

/// A vector whose resize() does not touch the new elements.
template <class T>
using raw_vector = std::vector<T, uninitialised_allocator<T>>;

struct image {
    index_t height = 0, width = 0, channels = 3;
    raw_vector<std::uint8_t> pixels;

    std::uint8_t* row(index_t y) { return pixels.data() + y * width * channels; }
    const std::uint8_t* row(index_t y) const { return pixels.data() + y * width * channels; }

    /// Gives the image another size; the pixels are undefined.
    void resize(index_t h, index_t w, index_t c) {
        height = h;
        width = w;
        channels = c;
        pixels.resize(static_cast<std::size_t>(h * w * c));
    }
};

/// A rectangle, in whole or in fractional pixels.
struct pixel_box {
    double top = 0, left = 0, height = 0, width = 0;
    bool operator==(const pixel_box&) const = default;
};

/// No decoder makes an image of more pixels than this: a header of a few bytes must not be able to ask for all memory.
inline constexpr index_t max_image_pixels = index_t{1} << 27;

}  // namespace cairn
