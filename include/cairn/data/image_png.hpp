#pragma once
// PNG by libpng, to 8-bit RGB: palettes, grey, 16 bits and interlacing are expanded, transparency is laid over black.
// The only file that includes libpng.

#include <cairn/data/bytes.hpp>
#include <cairn/data/image.hpp>

#include <algorithm>

#if !defined(CAIRN_HAS_PNG) && __has_include(<png.h>)
#define CAIRN_HAS_PNG 1
#endif
#if CAIRN_HAS_PNG
#include <png.h>
#endif

namespace cairn {

/// Whether the bytes start like a PNG file.
inline bool is_png(byte_span bytes) {
    constexpr std::array<std::uint8_t, 8> magic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

#if CAIRN_HAS_PNG

/// Decodes a PNG image; `name` is for errors. Throws on what is no PNG image, and on truncated or corrupt ones.
inline void decode_png(byte_span bytes, const std::string& name, image& out) {
    require(is_png(bytes), name, ": ", bytes.empty() ? "empty file" : "byte 0",
            ": not a PNG image (89 50 4e 47 0d 0a 1a 0a expected)");
    struct reader : png_image {
        reader() : png_image{} { version = PNG_IMAGE_VERSION; }
        ~reader() { png_image_free(this); }
    } png;
    const auto check = [&](int ok) {
        require(ok && !PNG_IMAGE_FAILED(png), name, ": ", bytes.size(),
                " bytes: truncated or corrupt PNG image: ", png.message);
    };
    check(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()));
    const index_t w = png.width, h = png.height;
    require(w * h <= max_image_pixels, name, ": ", w, " × ", h, " pixels; up to ", max_image_pixels, " are decoded");
    // Deflate packs at most about 1,032 : 1 (and one bit a pixel is possible): more pixels than that are a lie.
    require(static_cast<std::uint64_t>(w) * static_cast<std::uint64_t>(h) <= bytes.size() * 8448, name, ": ", w, " × ",
            h, " pixels cannot come from ", bytes.size(), " bytes: corrupt header");
    png.format = PNG_FORMAT_RGB;
    out.resize(h, w, 3);
    const png_color black{0, 0, 0};
    check(png_image_finish_read(&png, &black, out.pixels.data(), 0, nullptr));
}

#else

inline void decode_png(byte_span, const std::string& name, image&) {
    fail(name, ": Cairn was built without libpng; install libpng-dev and build again, or convert the images to JPEG");
}

#endif

}  // namespace cairn
