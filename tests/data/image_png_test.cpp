#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/image_png.hpp>

#include <algorithm>
#include <vector>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("png: colour, grey and transparency", "[png]") {
    image out;
    const image colour = picture(21, 33);
    decode_png(png_file(colour), "a.png", out);
    REQUIRE(out.height == 21);
    REQUIRE(out.width == 33);
    REQUIRE(out.pixels == colour.pixels);

    const image grey = picture(10, 11, 2, 1);
    decode_png(png_file(grey, PNG_FORMAT_GRAY), "a.png", out);
    for (std::size_t i = 0; i < grey.pixels.size(); ++i)
        for (std::size_t c = 0; c < 3; ++c) REQUIRE(out.pixels[3 * i + c] == grey.pixels[i]);

    const image clear = picture(10, 11, 2, 4);  // transparency is dropped
    decode_png(png_file(clear, PNG_FORMAT_RGBA), "a.png", out);
    for (std::size_t i = 0; i < 110; ++i)
        for (std::size_t c = 0; c < 3; ++c) REQUIRE(out.pixels[3 * i + c] == clear.pixels[4 * i + c]);
}

namespace {

// A PNG file of rows as they are stored, packed samples of `bits` bits, with a gamma of 1 that readers must not apply.
bytes stored_png(png_uint_32 width, png_uint_32 height, int bits, int colour, bool interlaced, const bytes& rows,
                 const std::vector<png_color>& palette = {}, const bytes& transparency = {}) {
    bytes out;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png, &out,
        [](png_structp p, png_bytep data, std::size_t n) {
            append(*static_cast<bytes*>(png_get_io_ptr(p)), std::span<const std::uint8_t>(data, n));
        },
        nullptr);
    png_set_IHDR(png, info, width, height, bits, colour, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_gAMA(png, info, 1.0);
    if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    if (!transparency.empty())
        png_set_tRNS(png, info, transparency.data(), static_cast<int>(transparency.size()), nullptr);
    png_write_info(png, info);
    std::vector<png_bytep> pointers;
    for (std::size_t y = 0; y < height; ++y)
        pointers.push_back(const_cast<png_bytep>(rows.data()) + y * (rows.size() / height));
    png_write_image(png, pointers.data());
    png_write_end(png, nullptr);
    png_destroy_write_struct(&png, &info);
    return out;
}

}  // namespace

TEST_CASE("png: values are those stored, in every colour type and depth", "[png]") {
    constexpr png_uint_32 width = 13, height = 9;
    struct kind {
        int colour, channels;
        std::vector<int> depths;
    };
    const std::vector<kind> kinds{{PNG_COLOR_TYPE_GRAY, 1, {1, 2, 4, 8, 16}},
                                  {PNG_COLOR_TYPE_PALETTE, 1, {1, 2, 4, 8}},
                                  {PNG_COLOR_TYPE_GRAY_ALPHA, 2, {8, 16}},
                                  {PNG_COLOR_TYPE_RGB, 3, {8, 16}},
                                  {PNG_COLOR_TYPE_RGB_ALPHA, 4, {8, 16}}};
    for (const kind& k : kinds)
        for (const int bits : k.depths)
            for (const bool interlaced : {false, true}) {
                const int colour = k.colour, channels = k.channels;
                INFO("colour type " << colour << ", " << bits << " bits, interlaced " << interlaced);
                std::vector<png_color> palette;
                bytes transparency;
                for (int i = 0; colour == PNG_COLOR_TYPE_PALETTE && i < 1 << bits; ++i) {
                    const auto value = [&](int scale) { return static_cast<png_byte>(i * scale + 9); };
                    palette.push_back({value(7), value(11), value(13)});
                    transparency.push_back(value(3));
                }
                // Sample number s of row y, of `bits` bits, is the high bits of a byte; 16 bits have another low byte.
                const auto sample = [&](std::size_t y, std::size_t s) {
                    return static_cast<std::uint8_t>((37 * y + 71 * s + 5) % 256);
                };
                const std::size_t row_bytes = (width * static_cast<std::size_t>(channels * bits) + 7) / 8;
                bytes rows(row_bytes * height);
                for (std::size_t y = 0; y < height; ++y)
                    for (std::size_t s = 0; s < width * static_cast<std::size_t>(channels); ++s) {
                        const std::size_t bit = s * static_cast<std::size_t>(bits);
                        auto& byte = rows[y * row_bytes + bit / 8];
                        const int high = sample(y, s) >> std::max(0, 8 - bits);
                        byte =
                            static_cast<std::uint8_t>(byte | high << std::max(0, 8 - bits - static_cast<int>(bit % 8)));
                        if (bits == 16) rows[y * row_bytes + bit / 8 + 1] = 0xe7;
                    }
                image out;
                decode_png(stored_png(width, height, bits, colour, interlaced, rows, palette, transparency), "a.png",
                           out);
                REQUIRE(out.width == width);
                REQUIRE(out.height == height);
                const auto expected = [&](std::size_t y, std::size_t x, std::size_t c) -> int {
                    const std::size_t per_pixel = static_cast<std::size_t>(channels);
                    const std::uint8_t stored = sample(y, x * per_pixel + (per_pixel >= 3 ? c : 0));
                    if (bits >= 8 && palette.empty()) return stored;
                    const int index = stored >> std::max(0, 8 - bits);
                    if (palette.empty()) return index * 255 / ((1 << bits) - 1);
                    const png_color& p = palette[static_cast<std::size_t>(index)];
                    return c == 0 ? p.red : c == 1 ? p.green : p.blue;
                };
                bool same = true;
                for (std::size_t y = 0; y < height; ++y)
                    for (std::size_t x = 0; x < width; ++x)
                        for (std::size_t c = 0; c < 3; ++c)
                            same = same && out.pixels[(y * width + x) * 3 + c] == expected(y, x, c);
                CHECK(same);
            }
}

TEST_CASE("png: bad files", "[png]") {
    const auto message = [](const bytes& file) {
        return message_of([&] {
            image out;
            decode_png(file, "a.png", out);
        });
    };
    const bytes good = png_file(picture(21, 33));
    REQUIRE_THAT(message({}), Contains("a.png: empty file"));
    REQUIRE_THAT(message(jpeg_file(picture(8, 8))), Contains("not a PNG image"));
    for (std::size_t n = 8; n + 12 < good.size(); n += 7)
        REQUIRE_THAT(message(bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n))), Contains("a.png"));
    bytes bad = good;
    bad[bad.size() / 2] ^= 0x10;
    REQUIRE_THAT(message(bad), Contains("a.png") && Contains("corrupt"));
    bad = good;
    bad[16] = 0x40;  // a width of 2^30
    REQUIRE_THAT(message(bad), Contains("a.png"));
    REQUIRE(message(good).empty());
}

}  // namespace cairn::test
