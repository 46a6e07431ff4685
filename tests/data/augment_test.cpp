#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/augment.hpp>

namespace cairn::test {

TEST_CASE("augment: the numbers of a sample are a pure function of seed, epoch and sample", "[augment]") {
    std::vector<float> first, again, next_epoch, next_sample;
    const auto draw = [](augment_key key, index_t sample) {
        sample_random random(key, sample);
        std::vector<float> out;
        for (int i = 0; i < 100; ++i) out.push_back(random.uniform());
        return out;
    };
    REQUIRE(draw({3, 1}, 5) == draw({3, 1}, 5));
    REQUIRE(draw({3, 1}, 5) != draw({3, 2}, 5));
    REQUIRE(draw({3, 1}, 5) != draw({3, 1}, 6));
    REQUIRE(draw({3, 1}, 5) != draw({4, 1}, 5));
    sample_random random({1, 1}, 1);
    std::array<int, 7> counts{};
    for (index_t i = 0; i < 7000; ++i) ++counts[static_cast<std::size_t>(sample_random({1, 1}, i).below(7))];
    for (int count : counts) REQUIRE(std::abs(count - 1000) < 150);
}

TEST_CASE("augment: random resized crop stays inside, with the area and ratio asked for", "[augment]") {
    double area = 0;
    int regular = 0;
    for (index_t i = 0; i < 3000; ++i) {
        sample_random random({7, 0}, i);
        const index_t h = 100 + i % 57, w = 140 - i % 43;
        const pixel_box b = random_resized_crop{}(h, w, random);
        REQUIRE(b.top >= 0);
        REQUIRE(b.left >= 0);
        REQUIRE(b.top + b.height <= static_cast<double>(h));
        REQUIRE(b.left + b.width <= static_cast<double>(w));
        const double share = b.height * b.width / static_cast<double>(h * w), ratio = b.width / b.height;
        REQUIRE(share > 0.07);
        REQUIRE(ratio > 0.72);
        REQUIRE(ratio < 1.39);
        area += share;
        ++regular;
    }
    REQUIRE(area / regular == Approx(0.5).margin(0.06));  // 0.54 less the tries that did not fit
    // No box of these ratios fits a very flat image: the largest central one.
    sample_random random({7, 0}, 0);
    const pixel_box flat = random_resized_crop{.area_min = 1.0f}(10, 100, random);
    REQUIRE(flat == pixel_box{0, 43, 10, 13});
}

TEST_CASE("augment: centre crop", "[augment]") {
    const pixel_box b = centre_crop{256, 224}(300, 400);
    REQUIRE(b.height == Approx(262.5));
    REQUIRE(b.width == b.height);
    REQUIRE(b.top == Approx(18.75));
    REQUIRE(b.left == Approx(68.75));
    REQUIRE(centre_crop{64, 64}(50, 50) == pixel_box{0, 0, 50, 50});
}

TEST_CASE("augment: colour jitter against the definitions", "[augment]") {
    const std::vector<float> before{200, 100, 50, 0, 0, 0, 255, 255, 255, 10, 250, 130};
    const auto apply = [&](colour_jitter jitter, index_t sample) {
        std::vector<float> rgb = before;
        sample_random random({5, 0}, sample);
        jitter(rgb.data(), 4, random);
        return rgb;
    };
    REQUIRE(apply({}, 0) == before);
    for (index_t sample = 0; sample < 50; ++sample) {
        const auto bright = apply({.brightness = 0.4f}, sample);
        const float factor = bright[0] / before[0];
        REQUIRE(factor >= 0.6f);
        REQUIRE(factor <= 1.275f);  // 200 is clipped at 255
        REQUIRE(bright[2] <= 50 * 1.4f + 1e-3f);
        REQUIRE(bright[3] == 0);

        // Saturation keeps the grey value where nothing is clipped, contrast the mean grey, hue the largest and
        // smallest channel.
        const auto grey = [](const std::vector<float>& p, std::size_t i) {
            return 0.299f * p[i] + 0.587f * p[i + 1] + 0.114f * p[i + 2];
        };
        const auto saturated = apply({.saturation = 0.2f}, sample);
        REQUIRE(grey(saturated, 0) == Approx(grey(before, 0)).epsilon(1e-4));
        REQUIRE(saturated[6] == Approx(255).epsilon(1e-5));
        const auto turned = apply({.hue = 0.5f}, sample);
        for (std::size_t i = 0; i < 12; i += 3) {
            REQUIRE(std::max({turned[i], turned[i + 1], turned[i + 2]}) ==
                    Approx(std::max({before[i], before[i + 1], before[i + 2]})));
            REQUIRE(std::min({turned[i], turned[i + 1], turned[i + 2]}) ==
                    Approx(std::min({before[i], before[i + 1], before[i + 2]})).margin(1e-3));
        }
        for (float v : apply({0.9f, 0.9f, 0.9f, 0.5f}, sample)) {
            REQUIRE(v >= 0);
            REQUIRE(v <= 255);
        }
    }
}

TEST_CASE("augment: a third of a turn of hue moves red to green to blue", "[augment]") {
    // hue ∈ [−h, h]: the turn of a sample is found from grey-free red.
    for (index_t sample = 0; sample < 20; ++sample) {
        std::vector<float> rgb{255, 0, 0};
        sample_random random({5, 0}, sample), same({5, 0}, sample);
        colour_jitter{.hue = 0.5f}(rgb.data(), 1, random);
        for (int i = 0; i < 3; ++i) same.below(2);   // the order
        for (int i = 0; i < 3; ++i) same.uniform();  // the other factors
        const float turn = same.uniform(-0.5f, 0.5f), h = (turn < 0 ? turn + 1 : turn) * 6;
        const float x = 255 * (1 - std::abs(std::fmod(h, 2.0f) - 1));
        const std::array<std::array<float, 3>, 6> wheel{
            {{255, x, 0}, {x, 255, 0}, {0, 255, x}, {0, x, 255}, {x, 0, 255}, {255, 0, x}}};
        for (std::size_t c = 0; c < 3; ++c)
            REQUIRE(rgb[c] == Approx(wheel[static_cast<std::size_t>(h) % 6][c]).margin(0.01));
    }
}

}  // namespace cairn::test
