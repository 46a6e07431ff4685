#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/image_png.hpp>

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

    image clear = picture(10, 11, 2, 4);
    for (std::size_t i = 0; i < 110; ++i) clear.pixels[4 * i + 3] = i % 2 ? 255 : 0;
    decode_png(png_file(clear, PNG_FORMAT_RGBA), "a.png", out);
    for (std::size_t i = 0; i < 110; ++i)
        for (std::size_t c = 0; c < 3; ++c) REQUIRE(out.pixels[3 * i + c] == (i % 2 ? clear.pixels[4 * i + c] : 0));
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
