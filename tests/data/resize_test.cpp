#include "catch.hpp"
#include "data/writers.hpp"
#include "oracle/data_resize.hpp"

#include <cairn/data/resize.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("resize: equals the definition at every ratio, box, mirror and channel count", "[resize]") {
    const random_stream random{1, stream_of("resize test"), 0};
    resize_scratch scratch;
    for (std::uint64_t trial = 0; trial < 60; ++trial) {
        const auto draw = [&](index_t low, index_t high, std::uint64_t i) {
            return low + static_cast<index_t>(random.below(static_cast<std::uint64_t>(high - low + 1), trial * 16 + i));
        };
        const index_t h = draw(1, 40, 0), w = draw(1, 40, 1), oh = draw(1, 30, 2), ow = draw(1, 70, 3);
        const index_t channels = trial % 3 == 0 ? 1 : 3;
        const image in = picture(h, w, static_cast<unsigned>(trial), channels);
        pixel_box box{0, 0, static_cast<double>(h), static_cast<double>(w)};
        if (trial % 2) {
            box.height *= 0.2 + 0.8 * static_cast<double>(random.uniform(trial * 16 + 5));
            box.width *= 0.2 + 0.8 * static_cast<double>(random.uniform(trial * 16 + 6));
            box.top = (static_cast<double>(h) - box.height) * static_cast<double>(random.uniform(trial * 16 + 7));
            box.left = (static_cast<double>(w) - box.width) * static_cast<double>(random.uniform(trial * 16 + 8));
        }
        const bool mirrored = trial % 4 >= 2;
        const float scale[3]{0.5f, 2, 1}, shift[3]{-3, 0, 7};
        std::vector<float> out(static_cast<std::size_t>(oh * ow * channels));
        resize_to_float(in, box, mirrored, oh, ow, scale, shift, out.data(), scratch);
        const auto expected = oracle::resize(in, box, oh, ow, mirrored);
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::size_t c = i % static_cast<std::size_t>(channels);
            REQUIRE(static_cast<double>(out[i]) ==
                    Approx(expected[i] * static_cast<double>(scale[c]) + static_cast<double>(shift[c])).margin(2e-3));
        }
    }
}

TEST_CASE("resize: the same size changes nothing, a constant stays constant, 8 bits are rounded", "[resize]") {
    const image in = picture(13, 17);
    REQUIRE(resized(in, 13, 17).pixels == in.pixels);
    image flat = in;
    std::fill(flat.pixels.begin(), flat.pixels.end(), std::uint8_t{201});
    for (index_t n : {1, 5, 64})
        for (std::uint8_t v : resized(flat, n, n + 3).pixels) REQUIRE(v == 201);
    const auto expected = oracle::resize(in, {0, 0, 13, 17}, 6, 40);
    const image out = resized(in, 6, 40);
    for (std::size_t i = 0; i < expected.size(); ++i)
        REQUIRE(std::abs(static_cast<double>(out.pixels[i]) - expected[i]) <= 0.501);
}

TEST_CASE("resize: impossible requests", "[resize]") {
    const image in = picture(13, 17);
    resize_scratch scratch;
    std::vector<float> out(100);
    const float one[3]{1, 1, 1};
    const auto message = [&](pixel_box box, index_t h, index_t w) {
        return message_of([&] { resize_to_float(in, box, false, h, w, one, one, out.data(), scratch); });
    };
    REQUIRE_THAT(message({0, 0, 13, 18}, 2, 2), Contains("pixels 0 to 18 of 17"));
    REQUIRE_THAT(message({-1, 0, 13, 17}, 2, 2), Contains("pixels -1 to 12 of 13"));
    REQUIRE_THAT(message({0, 0, 0, 17}, 2, 2), Contains("resize"));
    REQUIRE_THAT(message({0, 0, 13, 17}, 0, 2), Contains("to 0 pixels"));
}

}  // namespace cairn::test
