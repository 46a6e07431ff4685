#pragma once
// Laws of batches on their way to a device (data/prefetcher.hpp), on the emulated GPU and on a real one.

#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/memory_images.hpp>
#include <cairn/data/prefetcher.hpp>
#include <cairn/data/split.hpp>
#include <cairn/device/grid/crop_flip.hpp>

#include <cstring>
#include <vector>

namespace cairn::test::prefetcher_laws {

struct seen_batch {
    std::vector<float> x, targets;
    std::vector<std::int32_t> labels;
    cursor at, position;  // of the batch, and of the prefetcher while the batch is there
    bool operator==(const seen_batch&) const = default;
};

template <class T, class D>
std::vector<T> values_of(const tensor<T, D>& t) {
    if (t.size() == 0) return {};
    const tensor<T> host = t.on_host();
    return {host.data(), host.data() + host.size()};
}

/// All batches of two epochs as the device has them, after the one behind has been asked for, where `prepare`.
template <class D, class Data>
std::vector<seen_batch> batches_of(const Data& data, const loader_config& config, bool prepare, bool as_pixels = true) {
    prefetcher<D, Data> from(data, config, as_pixels);
    std::vector<seen_batch> seen;
    for (int epochs = 0; epochs < 2;) {
        auto b = from.next();
        if (!b) {
            ++epochs;
            seen.push_back({{}, {}, {}, {}, from.position()});
            continue;
        }
        if (prepare) {
            from.prepare();
            from.prepare();  // once is enough
        }
        seen.push_back({values_of(b->there.x), values_of(b->there.targets), values_of(b->there.labels), b->host.at,
                        from.position()});
        if (b->host.pixels.empty()) {
            CHECK(b->there.x.shape() == b->host.x.shape());
            CHECK(values_of(b->there.x) == values_of(b->host.x));
        } else {
            CHECK(b->there.x.shape() == b->host.pixels.shape());
            CHECK(b->host.x.empty());
        }
    }
    return seen;
}

/// The batches and positions of the host, ahead or not.
template <class D>
void batches_are_the_hosts() {
    for (const target_kind kind : {target_kind::classes, target_kind::values})
        for (const int workers : {0, 2}) {
            CAPTURE(workers);
            const counting_dataset data{.n = 23, .kind = kind, .corrupt = {3, 8}};  // 2 skipped, a short last batch
            const loader_config config{.batch = 5, .workers = workers, .seed = 4};
            const auto expected = batches_of<cpu>(data, config, true);
            REQUIRE(expected.size() == 12);
            CHECK(batches_of<D>(data, config, false) == expected);
            CHECK(batches_of<D>(data, config, true) == expected);
        }
}

/// Images of any bytes, labelled 0, 1, 0, 1, …
inline std::shared_ptr<labelled_images> any_images(index_t n, index_t h, index_t w, index_t c) {
    auto out = std::make_shared<labelled_images>();
    out->count = n;
    out->height = h;
    out->width = w;
    out->channels = c;
    out->name = "any images";
    out->classes = {"even", "odd"};
    for (index_t i = 0; i < n; ++i) out->labels.push_back(static_cast<std::int32_t>(i % 2));
    const random_stream random{5, 6, 7};
    for (index_t i = 0; i < n * h * w * c; ++i)
        out->pixels.push_back(static_cast<std::uint8_t>(random.bits(static_cast<std::uint64_t>(i))));
    return out;
}

/// Other factors for each channel.
inline image_transform any_recipe(index_t channels, index_t pad, bool flip) {
    image_transform r{{}, {}, pad, flip};
    for (index_t c = 0; c < channels; ++c) {
        r.mean.push_back(0.45f + 0.013f * static_cast<float>(c));
        r.std.push_back(0.21f + 0.017f * static_cast<float>(c));
    }
    return r;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Images that move, every third of which is left out of its batch.
struct images_with_gaps {
    memory_images all;

    index_t size() const { return all.size(); }
    shape sample_shape() const { return all.sample_shape(); }
    target_info targets() const { return all.targets(); }
    std::string sample_name(index_t i) const { return all.sample_name(i); }
    bool read(index_t i, augment_key key, sample_slot slot) const { return all.read(i, key, slot) && i % 3 != 0; }
    std::vector<float> pixel_table() const { return all.pixel_table(); }
    bool read_pixels(index_t i, augment_key key, pixel_slot slot) const {
        return all.read_pixels(i, key, slot) && i % 3 != 0;
    }
};
static_assert(PixelBatches<images_with_gaps>);

/// The gaps of samples that are left out are closed with the moves of those that follow.
template <class D>
void pixels_of_what_is_left() {
    const images_with_gaps data{memory_images(any_images(14, 6, 7, 3), any_recipe(3, 2, true))};
    const loader_config config{.batch = 5, .workers = 0, .seed = 2};
    CHECK(batches_of<D>(data, config, true) == batches_of<cpu>(data, config, true));
}

/// Inputs made on the device of pixels are the host's to the bit: grey images, with alpha, of odd sizes, of many
/// channels; any recipe; batches of one and short ones.
template <class D>
void pixels_give_the_hosts_bits() {
    for (const shape& s :
         std::vector<shape>{{28, 28, 1}, {7, 9, 1}, {5, 3, 3}, {8, 8, 3}, {6, 5, 4}, {3, 4, 17}, {1, 1, 1}})
        for (const auto& [pad, flip] :
             std::vector<std::pair<index_t, bool>>{{0, false}, {0, true}, {1, false}, {3, true}})
            for (const index_t batch : {1, 5}) {
                if (pad > std::max(s[0], s[1])) continue;
                CAPTURE(s[0], s[1], s[2], pad, flip, batch);
                const any_dataset all(memory_images(any_images(13, s[0], s[1], s[2]), any_recipe(s[2], pad, flip)));
                const any_dataset data(subset(all, {12, 0, 3, 4, 8, 9, 1}));
                const loader_config config{.batch = batch, .workers = batch == 5 ? 2 : 0, .seed = 11};
                const auto expected = batches_of<cpu>(data, config, true);
                const auto got = batches_of<D>(data, config, true), floats = batches_of<D>(data, config, true, false);
                REQUIRE(got.size() == expected.size());
                for (std::size_t b = 0; b < got.size(); ++b) {
                    CHECK(same_bits(got[b].x, expected[b].x));
                    CHECK(got[b] == expected[b]);
                }
                CHECK(floats == expected);
            }
}

/// The definition in plain loops: any table, any moves, also ones that leave nothing of an image, any alignment.
template <class D, class T>
void inputs_are_what_the_table_says() {
    const random_stream random{3, 1, 4};
    std::uint64_t drawn = 0;
    const auto below = [&](index_t n) {
        return static_cast<index_t>(random.below(static_cast<std::uint64_t>(n), drawn++));
    };
    for (const shape& s : std::vector<shape>{{3, 6, 8, 3}, {4, 5, 7, 1}, {2, 3, 5, 4}, {1, 2, 2, 33}, {5, 1, 1, 1}})
        for (const index_t shift : {0, 1}) {
            CAPTURE(s[0], s[1], s[2], s[3], shift);
            const index_t count = s[0], h = s[1], w = s[2], channels = s[3];
            tensor<std::uint8_t> pixels({s.size() + shift});
            tensor<crop_flip> moves({count});
            tensor<T> table({channels, pixel_values});
            for (index_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(below(256));
            for (index_t i = 0; i < table.size(); ++i)
                table[i] = static_cast<T>(static_cast<float>(below(1 << 20)) * 0x1p-16f - 7.5f);
            for (index_t n = 0; n < count; ++n)
                if (n != 1)  // which stays where it is
                    moves[n] = {static_cast<std::int32_t>(below(2 * h + 3) - h - 1),
                                static_cast<std::int32_t>(below(2 * w + 3) - w - 1),
                                static_cast<std::int32_t>(below(2))};
                else
                    moves[n] = {};
            const auto there = tensor<std::uint8_t, D>::copy_of(pixels);
            const auto moves_there = tensor<crop_flip, D>::copy_of(moves);
            const auto table_there = tensor<T, D>::copy_of(table);
            auto x = tensor<T, D>::filled({s.size() + 2 * shift}, static_cast<T>(99.0f));
            inputs_of_pixels(D{}, D{}, s, there.data() + shift, moves_there.data(), table_there.data(),
                             x.data() + shift);
            const tensor<T> got = x.on_host();
            index_t i = shift;
            for (index_t n = 0; n < count; ++n)
                for (index_t y = 0; y < h; ++y)
                    for (index_t u = 0; u < w; ++u)
                        for (index_t c = 0; c < channels; ++c, ++i) {
                            const crop_flip& m = moves[n];
                            const index_t from_y = y + m.down, from_u = (m.mirrored ? w - 1 - u : u) + m.right;
                            float expected = 0;
                            if (from_y >= 0 && from_y < h && from_u >= 0 && from_u < w)
                                expected = static_cast<float>(
                                    table[c * pixel_values +
                                          pixels[shift + ((n * h + from_y) * w + from_u) * channels + c]]);
                            CHECK(static_cast<float>(got[i]) == expected);
                        }
            for (index_t edge = 0; edge < shift; ++edge) {
                CHECK(static_cast<float>(got[edge]) == 99.0f);
                CHECK(static_cast<float>(got[got.size() - 1 - edge]) == 99.0f);
            }
        }
}

/// The same from any batch on.
template <class D>
void pixels_go_on_elsewhere() {
    const memory_images data(any_images(23, 6, 6, 3), any_recipe(3, 2, true));
    const loader_config config{.batch = 4, .workers = 1, .seed = 8};
    const auto all = batches_of<cpu>(data, config, false);
    prefetcher<D, memory_images> from(data, config);
    from.prepare();
    from.next();
    from.prepare();
    from.seek({1, 2});
    for (std::size_t b = 2; b < 6; ++b) {
        const auto got = from.next();
        REQUIRE(got);
        CHECK(same_bits(values_of(got->there.x), all[7 + b].x));
        CHECK(values_of(got->there.labels) == all[7 + b].labels);
        from.prepare();
    }
}

}  // namespace cairn::test::prefetcher_laws
