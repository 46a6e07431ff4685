#pragma once
// Laws of photographs that a device decodes (core/encoded_image.hpp), for any device and any decoder of JPEG files.

#include "data/prefetcher_laws.hpp"
#include "data/writers.hpp"
#include "oracle/data_resize.hpp"

#include <cairn/data/image_folder.hpp>
#include <cairn/device/cuda/encoded_images.hpp>

#include <map>

namespace cairn::test::encoded_image_laws {

/// Odd sizes, a single pixel, grey, progressive, not subsampled; for the host alone: inks, and PNG.
inline std::shared_ptr<image_collection> all_kinds(const temporary_folder& folder) {
    folder.write("a/0.jpg", jpeg_file(picture(31, 40, 0)));
    folder.write("a/1.jpg", jpeg_file(picture(29, 33, 1, 1)));
    folder.write("a/2.jpg", jpeg_file(picture(1, 1, 2)));
    folder.write("a/3.jpg", jpeg_file(picture(33, 17, 3), {.progressive = true}));
    folder.write("b/4.jpg", jpeg_file(picture(23, 25, 4), {.subsampled = false}));
    folder.write("b/5.jpg", jpeg_file(picture(20, 21, 5, 4), {.inks = true}));
    folder.write("b/6.png", png_file(picture(24, 30, 6)));
    return std::make_shared<image_collection>(folder.path());
}
inline constexpr index_t of_host = 2;  // the last two

inline image_folder folder_of(std::shared_ptr<const image_collection> images, image_folder_config config) {
    std::vector<index_t> all;
    for (index_t i = 0; i < images->size(); ++i) all.push_back(i);
    config.compressed = true;
    return {std::move(images), std::move(all), config};
}

using numbered = std::map<std::pair<index_t, index_t>, std::vector<float>>;  // by epoch and batch

template <class D, class Decoder>
numbered inputs_of(const image_folder& data, const loader_config& config, Decoder&& decoder,
                   encoded_image_counts* counts, cursor begin = {}) {
    prefetcher<D, image_folder> from(data, config, decoder());
    from.seek(begin);
    numbered out;
    for (index_t epochs = begin.epoch; epochs < 2;) {
        auto b = from.next();
        if (!b) {
            ++epochs;
            continue;
        }
        if (epochs == 0) from.prepare();
        CHECK(b->there.x.shape() == shape{b->host.count, data.config().size, data.config().size, 3});
        CHECK(prefetcher_laws::values_of(b->there.labels) == prefetcher_laws::values_of(b->host.labels));
        out[{b->host.at.epoch, b->host.at.batch}] = prefetcher_laws::values_of(b->there.x);
    }
    if (counts) *counts = from.decoded();
    return out;
}

/// Batches are the host's but for rounding: without a shrink that the host's decoder could make, so that both see the
/// same pixels. Short batches, jitter, rounding to 8 bits, the centre; twice the same bits, also from elsewhere on.
/// `decoders_differ`: by so many grey levels at most; `knows_all`: whether the device decodes whatever it may be asked
/// for.
template <class D, class Decoder>
void inputs_are_the_hosts(Decoder&& decoder, double decoders_differ = 0, bool knows_all = true) {
    const temporary_folder folder;
    const auto images = all_kinds(folder);
    for (const bool augmented : {true, false})
        for (const float jitter : {0.0f, 0.3f})
            for (const bool rounded : {false, true}) {
                CAPTURE(augmented, jitter, rounded);
                const image_folder data = folder_of(images, {.size = 21,
                                                             .augmented = augmented,
                                                             .jitter = {jitter, jitter, jitter, jitter / 3},
                                                             .resize = 23,
                                                             .rounded = rounded});
                const loader_config config{.batch = 3, .workers = rounded ? 2 : 0, .seed = 5};
                encoded_image_counts counts;
                const numbered got = inputs_of<D>(data, config, decoder, &counts);
                CHECK(counts.by_host + counts.on_device == 2 * data.size());
                CHECK(counts.by_host >= 2 * of_host);
                if (knows_all) CHECK(counts.by_host == 2 * of_host);
                CHECK(inputs_of<D>(data, config, decoder, nullptr) == got);
                for (const auto& [place, x] : inputs_of<D>(data, config, decoder, nullptr, {1, 1}))
                    CHECK(prefetcher_laws::same_bits(x, got.at(place)));
                loader host(data, config);
                std::size_t batches = 0;
                for (int epoch = 0; epoch < 2;) {
                    const auto b = host.next();
                    if (!b) {
                        ++epoch;
                        continue;
                    }
                    ++batches;
                    const std::vector<float>& x = got.at({b->at.epoch, b->at.batch});
                    REQUIRE(static_cast<index_t>(x.size()) == b->x.size());
                    index_t steps = 0;  // values that rounding puts on the other side
                    for (std::size_t i = 0; i < x.size(); ++i) {
                        const double apart = std::abs(static_cast<double>(x[i] - b->x.data()[i])) * 255 * 0.225;
                        if (rounded && apart > 0.5 && apart < 1.5)
                            ++steps;
                        else
                            REQUIRE(apart < decoders_differ + 2e-3);
                    }
                    CHECK(static_cast<double>(steps) <= (0.002 + decoders_differ) * static_cast<double>(x.size()));
                }
                CHECK(batches == got.size());
            }
}

/// Full-size decode and the definition of resampling in plain loops, where the host's decoder would have shrunk.
template <class D, class Decoder>
void inputs_are_the_definitions(Decoder&& decoder) {
    const temporary_folder folder;
    folder.write("a/0.jpg", jpeg_file(picture(75, 90, 0)));
    folder.write("a/1.jpg", jpeg_file(picture(61, 140, 1)));
    const auto images = std::make_shared<image_collection>(folder.path());
    const image_folder data =
        folder_of(images, {.size = 9, .augmented = false, .resize = 10, .mean = {0, 0, 0}, .std = {1, 1, 1}});
    const numbered got = inputs_of<D>(data, {.batch = 2, .workers = 0, .shuffle = false}, decoder, nullptr);
    const std::vector<float>& x = got.at({0, 0});
    std::size_t at = 0;
    for (index_t i = 0; i < 2; ++i) {
        image whole;
        std::vector<std::uint8_t> buffer;
        jpeg_decoder(images->bytes(i, buffer), "x").decode(whole);
        for (const double v : oracle::resize(whole, centre_crop{10, 9}(whole.height, whole.width), 9, 9))
            CHECK(std::abs(255.0 * static_cast<double>(x[at++]) - v) < 1e-3);
    }
    CHECK(at == x.size());
}

/// A file that was cut off, or overwritten, is told of as by the host; or left out.
template <class D, class Decoder>
void damaged_files_are_told_of(Decoder&& decoder) {
    for (const int damage : {0, 1, 2}) {
        const temporary_folder folder;
        for (unsigned i = 0; i < 4; ++i) {
            bytes file = jpeg_file(picture(30, 30, i));
            if (i == 2 && damage == 0) file.resize(file.size() / 2);
            if (i == 2 && damage == 1) file.resize(12);
            if (i == 2 && damage == 2) file[file.size() / 2] = 0xff, file[file.size() / 2 + 1] = 0xc4;
            folder.write(concat("a/", i, ".jpg"), file);
        }
        const auto images = std::make_shared<image_collection>(folder.path());
        const auto said = [](auto&& next) -> std::string {
            try {
                next();
            } catch (const error& e) {
                return e.what();
            }
            return "nothing";
        };
        const loader_config config{.batch = 4, .workers = 0, .shuffle = false};
        const image_folder data = folder_of(images, {.size = 25, .augmented = false, .resize = 25});
        prefetcher<D, image_folder> from(data, config, decoder());
        loader host(data, config);
        const std::string expected = said([&] { host.next(); });
        CAPTURE(expected);
        CHECK(expected.find("2.jpg") != std::string::npos);
        CHECK(said([&] { from.next(); }) == expected);
        const image_folder lenient =
            folder_of(images, {.size = 25, .augmented = false, .resize = 25, .corrupt = corrupt_image::skip});
        prefetcher<D, image_folder> without(lenient, config, decoder());
        const auto b = without.next();
        REQUIRE(b);
        CHECK(b->host.count == 3);
        REQUIRE(b->host.skipped.size() == 1);
        CHECK(b->host.skipped[0].ends_with("2.jpg"));
        const auto others = loader(lenient, config).next();
        const std::vector<float> x = prefetcher_laws::values_of(b->there.x);
        REQUIRE(static_cast<index_t>(x.size()) == others->x.size());
        for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(x[i] - others->x.data()[i]) < 0.02f);
    }
}

}  // namespace cairn::test::encoded_image_laws
