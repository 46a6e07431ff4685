#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/image_jpeg.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

image decoded(const bytes& file) {
    image out;
    jpeg_decoder(file, "a.jpg").decode(out);
    return out;
}

double mean_difference(const image& a, const image& b) {
    REQUIRE(a.pixels.size() == b.pixels.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
    return sum / static_cast<double>(a.pixels.size());
}

}  // namespace

TEST_CASE("jpeg: colour, grey, progressive, with and without subsampling, odd sizes", "[jpeg]") {
    for (auto [h, w] : {std::pair<index_t, index_t>{1, 1}, {7, 9}, {64, 48}, {101, 203}})
        for (bool progressive : {false, true})
            for (bool subsampled : {false, true}) {
                const image in = picture(h, w);
                const image out =
                    decoded(jpeg_file(in, {.quality = 95, .progressive = progressive, .subsampled = subsampled}));
                REQUIRE(out.height == h);
                REQUIRE(out.width == w);
                REQUIRE(out.channels == 3);
                REQUIRE(mean_difference(in, out) < 3);
            }
    const image grey = picture(30, 41, 3, 1);
    const image out = decoded(jpeg_file(grey, {.quality = 95}));
    REQUIRE(out.channels == 3);
    for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
        REQUIRE(std::abs(int{out.pixels[3 * i]} - int{grey.pixels[i]}) < 12);
        REQUIRE(out.pixels[3 * i] == out.pixels[3 * i + 1]);
        REQUIRE(out.pixels[3 * i] == out.pixels[3 * i + 2]);
    }
}

TEST_CASE("jpeg: inks become colours", "[jpeg]") {
    const image in = picture(32, 40, 1, 4);
    const image out = decoded(jpeg_file(in, {.quality = 100}));
    REQUIRE(out.channels == 3);
    REQUIRE(out.pixels.size() == 32 * 40 * 3);
    double worst = 0;
    for (std::size_t i = 0; i < 32 * 40; ++i)
        for (std::size_t c = 0; c < 3; ++c)
            worst = std::max(worst, std::abs(static_cast<double>(out.pixels[3 * i + c]) -
                                             in.pixels[4 * i + c] * in.pixels[4 * i + 3] / 255.0));
    REQUIRE(worst < 8);
}

TEST_CASE("jpeg: a box is decoded as the same pixels of the whole image", "[jpeg]") {
    for (bool progressive : {false, true})
        for (bool subsampled : {false, true}) {
            const image in = picture(200, 310);
            const bytes file = jpeg_file(in, {.progressive = progressive, .subsampled = subsampled});
            const image whole = decoded(file);
            for (pixel_box box :
                 {pixel_box{0, 0, 200, 310}, {50, 70, 60, 90}, {150, 250, 50, 60}, {0, 300, 10, 10}, {33, 1, 5, 200}}) {
                image part;
                const pixel_box at = jpeg_decoder(file, "a.jpg").decode(box, 224, 224, part);
                REQUIRE(at.height == box.height);
                REQUIRE(at.width == box.width);
                for (index_t y = 0; y < static_cast<index_t>(box.height); ++y)
                    for (index_t x = 0; x < static_cast<index_t>(box.width) * 3; ++x) {
                        const int a = part.row(y + static_cast<index_t>(at.top))[x + static_cast<index_t>(at.left) * 3];
                        const int b =
                            whole.row(y + static_cast<index_t>(box.top))[x + static_cast<index_t>(box.left) * 3];
                        if (a != b) FAIL("row " << y << ", column " << x / 3 << ": " << a << " and " << b);
                    }
                REQUIRE(static_cast<double>(part.height * part.width) <= (box.height + 4) * (box.width + 40));
            }
        }
}

TEST_CASE("jpeg: what will be shrunk is decoded small, but never smaller than the target", "[jpeg]") {
    const image in = picture(400, 600);
    const bytes file = jpeg_file(in);
    for (auto [target, shrink] :
         {std::pair<index_t, index_t>{400, 1}, {201, 1}, {200, 2}, {101, 2}, {100, 4}, {50, 8}, {3, 8}}) {
        image part;
        const pixel_box at = jpeg_decoder(file, "a.jpg").decode({0, 0, 400, 600}, target, target, part);
        REQUIRE(part.height == 400 / shrink);
        REQUIRE(part.width == 600 / shrink);
        REQUIRE(at == pixel_box{0, 0, 400.0 / static_cast<double>(shrink), 600.0 / static_cast<double>(shrink)});
        // Each pixel stands for shrink × shrink of the original.
        double sum = 0;
        for (index_t y = 0; y < part.height; ++y)
            for (index_t x = 0; x < part.width; ++x) {
                double mean = 0;
                for (index_t v = 0; v < shrink; ++v)
                    for (index_t u = 0; u < shrink; ++u) mean += in.row(y * shrink + v)[(x * shrink + u) * 3 + 1];
                sum += std::abs(mean / static_cast<double>(shrink * shrink) - part.row(y)[x * 3 + 1]);
            }
        REQUIRE(sum / static_cast<double>(part.height * part.width) < 3);
    }
    // Extents that are no multiples: the last row and column stand for less, the others for no other than before.
    image rest;
    REQUIRE(jpeg_decoder(jpeg_file(picture(401, 603)), "a.jpg").decode({0, 0, 401, 603}, 100, 100, rest) ==
            pixel_box{0, 0, 100.25, 150.75});
    // A box in the middle, small.
    image part;
    const pixel_box at = jpeg_decoder(file, "a.jpg").decode({100, 200, 200, 200}, 50, 50, part);
    REQUIRE(at.height == 50);
    REQUIRE(part.height < 60);
    REQUIRE(part.width < 80);
    double expected = 0;
    for (index_t v = 200; v < 204; ++v)
        for (index_t u = 300; u < 304; ++u) expected += in.row(v)[u * 3 + 1] / 16.0;
    const double got = part.row(static_cast<index_t>(at.top) + 25)[(static_cast<index_t>(at.left) + 25) * 3 + 1];
    REQUIRE(std::abs(expected - got) < 5);
}

TEST_CASE("jpeg: every subsampling, of all widths, in every size", "[jpeg]") {
    for (auto [h, v] :
         {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}, {3, 1}, {1, 3}, {3, 2}, {2, 3}})
        for (index_t width = 64; width < 98; width += 3) {
            image in;  // colours that change slowly: their means are their samples
            in.resize(48, width, 3);
            for (index_t y = 0; y < 48; ++y)
                for (index_t x = 0; x < width; ++x) {
                    in.row(y)[3 * x] = static_cast<std::uint8_t>(40 + x);
                    in.row(y)[3 * x + 1] = static_cast<std::uint8_t>(230 - y);
                    in.row(y)[3 * x + 2] = static_cast<std::uint8_t>(20 + x + y);
                }
            const bytes file = jpeg_file(in, {.quality = 98, .h = h, .v = v});
            for (const index_t target : {48, 24, 12, 6})
                for (const double left : {0.0, 17.0, static_cast<double>(width) - 48}) {
                    image part;
                    const pixel_box box{0, left, 48, 48};
                    const pixel_box at = jpeg_decoder(file, "a.jpg").decode(box, target, target, part);
                    double worst = 0;
                    const double shrink = 48 / at.height;
                    for (index_t y = 0; y < part.height; ++y)
                        for (index_t x = 0; x < part.width; ++x) {
                            const double from = (static_cast<double>(x) - at.left + 0.5) * shrink + left - 0.5;
                            if (from < left || from > left + 47) continue;
                            worst = std::max(worst, std::abs(40 + from - part.row(y)[3 * x]));
                        }
                    INFO(h << " × " << v << ", width " << width << ", target " << target << ", left " << left
                           << ", shrink " << shrink);
                    REQUIRE(worst < 20);
                }
        }
}

TEST_CASE("jpeg: a file that was cut off is an error, whatever part of it is asked for", "[jpeg]") {
    for (bool progressive : {false, true}) {
        const bytes file = jpeg_file(picture(120, 160), {.progressive = progressive});
        for (std::size_t n = 0; n + 2 < file.size(); n += 61) {
            const bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
            image out;
            REQUIRE_THAT(message_of([&] {
                             jpeg_decoder(cut, "cut.jpg").decode({0, 0, 8, 8}, 8, 8, out);
                         }),
                         Contains("cut.jpg"));
            REQUIRE_FALSE(message_of([&] { jpeg_decoder(cut, "cut.jpg").decode(out); }).empty());
        }
    }
}

TEST_CASE("jpeg: corrupt and mistaken files", "[jpeg]") {
    const auto message = [](const bytes& file) {
        return message_of([&] {
            image out;
            jpeg_decoder(file, "a.jpg").decode(out);
        });
    };
    REQUIRE_THAT(message({}), Contains("a.jpg: empty file"));
    REQUIRE_THAT(message(png_file(picture(4, 4))), Contains("byte 0: not a JPEG image"));
    bytes file = jpeg_file(picture(120, 160));
    for (std::size_t i = 1500; i < 1540; ++i) file[i] = 0xff;  // in the compressed data
    REQUIRE_THAT(message(file), Contains("a.jpg: near byte") && Contains("corrupt JPEG image"));
    // 65,500 × 65,500 pixels claimed by a few bytes.
    file = jpeg_file(picture(16, 16));
    for (std::size_t i = 0; i + 9 < file.size(); ++i)
        if (file[i] == 0xff && file[i + 1] == 0xc0) file[i + 5] = file[i + 7] = 0xff;
    REQUIRE_THAT(message(file), Contains("pixels"));
    REQUIRE_THAT(message_of([] {
                     const bytes good = jpeg_file(picture(16, 16));
                     image out;
                     jpeg_decoder(good, "a.jpg").decode({20, 0, 5, 5}, 5, 5, out);
                 }),
                 Contains("crop outside"));
    // After an error the next image is read as if nothing had happened.
    REQUIRE(message(jpeg_file(picture(16, 16))).empty());
}

}  // namespace cairn::test
