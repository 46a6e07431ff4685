#pragma once
// PNG by libpng, to 8-bit RGB. The only file that includes libpng.
//
// Values are those stored, as Pillow's convert("RGB") reads them: no gamma, and transparency is dropped, not blended.
//   palette          its colours
//   1, 2, 4 bits     grey, stretched to 0 … 255
//   16 bits          the high byte
//   grey             three equal channels

#include <cairn/data/bytes.hpp>
#include <cairn/data/image.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#if !defined(CAIRN_HAS_PNG) && __has_include(<png.h>)
#define CAIRN_HAS_PNG 1
#endif
#if CAIRN_HAS_PNG
#include <csetjmp>

#include <png.h>
#endif

namespace cairn {

/// Whether the bytes start like a PNG file.
inline bool is_png(byte_span bytes) {
    constexpr std::array<std::uint8_t, 8> magic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

#if CAIRN_HAS_PNG

namespace png_detail {

/// libpng's handles over bytes in memory. libpng leaves by longjmp where it fails: attempt() turns that into false.
class reader {
public:
    explicit reader(byte_span bytes) : left_(bytes) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
        info_ = png_ ? png_create_info_struct(png_) : nullptr;
        if (info_) png_set_read_fn(png_, this, on_read);
    }
    ~reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
    reader(const reader&) = delete;
    reader& operator=(const reader&) = delete;

    /// The header, and how rows will be converted.
    bool begin() {
        return attempt([](png_structp png, png_infop info, png_bytep*) {
            png_read_info(png, info);
            png_set_expand_gray_1_2_4_to_8(png);
            png_set_palette_to_rgb(png);
            png_set_strip_16(png);  // the high byte
            png_set_strip_alpha(png);
            png_set_gray_to_rgb(png);
            png_set_interlace_handling(png);
            png_read_update_info(png, info);
        });
    }

    /// All pixels, one pointer a row.
    bool read(png_bytep* rows) {
        return attempt(
            [](png_structp png, png_infop, png_bytep* to) {
                png_read_image(png, to);
                png_read_end(png, nullptr);
            },
            rows);
    }

    index_t width() const { return png_get_image_width(png_, info_); }
    index_t height() const { return png_get_image_height(png_, info_); }
    std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
    const char* message() const { return message_.data(); }

private:
    using step = void (*)(png_structp, png_infop, png_bytep*);

    // `what` holds calls of libpng alone: longjmp runs no destructors.
    bool attempt(step what, png_bytep* rows = nullptr) {
        if (!info_) return false;
        if (setjmp(png_jmpbuf(png_))) return false;
        what(png_, info_, rows);
        return true;
    }

    [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
        auto& self = *static_cast<reader*>(png_get_error_ptr(png));
        std::strncpy(self.message_.data(), message, self.message_.size() - 1);
        png_longjmp(png, 1);
    }

    static void on_read(png_structp png, png_bytep to, std::size_t count) {
        auto& left = static_cast<reader*>(png_get_io_ptr(png))->left_;
        if (count > left.size()) png_error(png, "the file ends early");
        std::memcpy(to, left.data(), count);
        left = left.subspan(count);
    }

    byte_span left_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::array<char, 128> message_{"out of memory"};
};

}  // namespace png_detail

/// Decodes a PNG image; `name` is for errors. Throws on what is no PNG image, and on truncated or corrupt ones.
inline void decode_png(byte_span bytes, const std::string& name, image& out) {
    require(is_png(bytes), name, ": ", bytes.empty() ? "empty file" : "byte 0",
            ": not a PNG image (89 50 4e 47 0d 0a 1a 0a expected)");
    png_detail::reader png(bytes);
    const auto check = [&](bool ok) {
        require(ok, name, ": ", bytes.size(), " bytes: truncated or corrupt PNG image: ", png.message());
    };
    check(png.begin());
    const index_t w = png.width(), h = png.height();
    require(w * h <= max_image_pixels, name, ": ", w, " × ", h, " pixels; up to ", max_image_pixels, " are decoded");
    // Deflate packs at most about 1,032 : 1 (and one bit a pixel is possible): more pixels than that are a lie.
    require(static_cast<std::uint64_t>(w) * static_cast<std::uint64_t>(h) <= bytes.size() * 8448, name, ": ", w, " × ",
            h, " pixels cannot come from ", bytes.size(), " bytes: corrupt header");
    require(png.row_bytes() == static_cast<std::size_t>(3 * w), name, ": libpng gives ", png.row_bytes(),
            " bytes a row, ", 3 * w, " expected");
    out.resize(h, w, 3);
    std::vector<png_bytep> rows(static_cast<std::size_t>(h));
    for (index_t y = 0; y < h; ++y) rows[static_cast<std::size_t>(y)] = out.row(y);
    check(png.read(rows.data()));
}

#else

inline void decode_png(byte_span, const std::string& name, image&) {
    fail(name, ": Cairn was built without libpng; install libpng-dev and build again, or convert the images to JPEG");
}

#endif

}  // namespace cairn
