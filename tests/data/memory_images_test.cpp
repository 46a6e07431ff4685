#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/memory_images.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

std::shared_ptr<labelled_images> some_images(index_t n, index_t h, index_t w, index_t c) {
    auto out = std::make_shared<labelled_images>();
    out->count = n;
    out->height = h;
    out->width = w;
    out->channels = c;
    out->name = "some images";
    out->classes = {"even", "odd"};
    for (index_t i = 0; i < n; ++i) out->labels.push_back(static_cast<std::int32_t>(i % 2));
    for (index_t i = 0; i < n * h * w * c; ++i) out->pixels.push_back(static_cast<std::uint8_t>(i * 37 + i / 256));
    return out;
}

}  // namespace

TEST_CASE("memory images: padding, crop, flip and normalisation against the definition", "[memory_images]") {
    const index_t h = 7, w = 9;
    for (index_t c : {1, 3})
        for (index_t pad : {0, 1, 4})
            for (bool flip : {false, true}) {
                const auto images = some_images(5, h, w, c);
                image_transform recipe{{}, {}, pad, flip};
                for (index_t ch = 0; ch < c; ++ch) {
                    recipe.mean.push_back(0.1f * static_cast<float>(ch + 1));
                    recipe.std.push_back(0.5f + 0.25f * static_cast<float>(ch));
                }
                const memory_images d(images, recipe);
                for (index_t trial = 0; trial < 100; ++trial) {
                    const index_t i = trial % 5;
                    const augment_key key{9, static_cast<std::uint32_t>(trial)};
                    std::vector<float> x(static_cast<std::size_t>(h * w * c), -1e9f);
                    std::int32_t label = -1;
                    REQUIRE(d.read(i, key, {x.data(), &label, nullptr}));
                    REQUIRE(label == i % 2);
                    sample_random random(key, i);
                    const index_t dy = pad ? random.below(2 * pad + 1) - pad : 0,
                                  dx = pad ? random.below(2 * pad + 1) - pad : 0;
                    const bool mirrored = flip && random.coin();
                    for (index_t y = 0; y < h; ++y)
                        for (index_t u = 0; u < w; ++u)
                            for (index_t ch = 0; ch < c; ++ch) {
                                const index_t sy = y + dy, sx = (mirrored ? w - 1 - u : u) + dx;
                                double expected = 0;
                                if (sy >= 0 && sy < h && sx >= 0 && sx < w) {
                                    const auto pixel =
                                        images->pixels[static_cast<std::size_t>(((i * h + sy) * w + sx) * c + ch)];
                                    expected = (pixel / 255.0 -
                                                static_cast<double>(recipe.mean[static_cast<std::size_t>(ch)])) /
                                               static_cast<double>(recipe.std[static_cast<std::size_t>(ch)]);
                                }
                                REQUIRE(static_cast<double>(x[static_cast<std::size_t>((y * w + u) * c + ch)]) ==
                                        Approx(expected).margin(1e-5));
                            }
                }
            }
}

TEST_CASE("memory images: impossible ones", "[memory_images]") {
    const auto message = [](auto change) {
        auto images = some_images(3, 4, 5, 3);
        image_transform recipe;
        change(*images, recipe);
        return message_of([&] { memory_images(images, recipe); });
    };
    REQUIRE_THAT(message([](auto& i, auto&) { i.pixels.pop_back(); }),
                 Contains("some images: 179 pixel bytes and 3 labels do not make 3 images"));
    REQUIRE_THAT(message([](auto& i, auto&) { i.labels.push_back(0); }), Contains("4 labels"));
    REQUIRE_THAT(message([](auto&, auto& r) { r.mean = {0.5f}; }), Contains("1 means") && Contains("3 channel"));
    REQUIRE_THAT(message([](auto&, auto& r) { r.std = {1, 0, 1}; }), Contains("standard deviation 0 of channel 1"));
    REQUIRE_THAT(message([](auto&, auto& r) { r.pad = -1; }), Contains("padding -1"));
}

}  // namespace cairn::test
