#pragma once
// The images of a collection (data/image_collection.hpp) as samples: decoded, cropped, resampled, jittered, normalised.
// Resampling, mirroring and jitter are the host's also where a GPU normalises (image_folder_config::rounded,
// course/decisions/0013).
// decode_all() makes small images of equal size (CIFAR, EuroSAT) into memory_images.

#include <cairn/core/parallel.hpp>
#include <cairn/data/augment.hpp>
#include <cairn/data/data_format.hpp>
#include <cairn/data/image_collection.hpp>
#include <cairn/data/image_jpeg.hpp>
#include <cairn/data/image_png.hpp>
#include <cairn/data/memory_images.hpp>
#include <cairn/data/resize.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// What to do about an image that cannot be decoded: stop the run, or leave it out of its batch, named there.
enum class corrupt_image { stop, skip };

struct image_folder_config {
    index_t size = 224;     // images become size × size × 3
    bool augmented = true;  // random resized crop and flip, otherwise the centre
    random_resized_crop crop{};
    float flip = 0.5f;  // probability of left-right
    colour_jitter jitter{};
    index_t resize = 256;  // short side before the centre crop, scaled to `size` as 256 : 224
    std::array<float, 3> mean{0.485f, 0.456f, 0.406f}, std{0.229f, 0.224f, 0.225f};
    corrupt_image corrupt = corrupt_image::stop;
    bool rounded = false;     // resampled values become 8 bits again: batches can travel to a GPU as pixels
    index_t cache_bytes = 0;  // decoded images are kept in memory if they all take at most this much
};

namespace detail {
// Decodes at least `box` of a JPEG or PNG image, given its full size, and says where the box lies in what was decoded.
template <class Choose>
pixel_box decode_box(byte_span bytes, const std::string& name, index_t height, index_t width, Choose&& choose,
                     image& out) {
    if (is_png(bytes)) {
        decode_png(bytes, name, out);
        return choose(out.height, out.width);
    }
    jpeg_decoder jpeg(bytes, name);
    return jpeg.decode(choose(jpeg.height(), jpeg.width()), height, width, out);
}
inline void decode_image(byte_span bytes, const std::string& name, image& out) {
    if (is_png(bytes)) return decode_png(bytes, name, out);
    jpeg_decoder(bytes, name).decode(out);
}
}  // namespace detail

/// Images of a collection as a data set of (size, size, 3).
class image_folder {
public:
    image_folder(std::shared_ptr<const image_collection> images, std::vector<index_t> chosen,
                 image_folder_config config)
        : images_(std::move(images)), chosen_(std::move(chosen)), config_(config) {
        require(config_.size >= 1 && config_.resize >= config_.size, "image_folder: size ", config_.size,
                " and resize ", config_.resize, "; 1 ≤ size ≤ resize is needed");
        for (index_t i : chosen_)
            require(i >= 0 && i < images_->size(), "image_folder: image ", i, " of ", images_->size());
        for (std::size_t c = 0; c < 3; ++c) {
            require(config_.std[c] > 0, "image_folder: standard deviation ", config_.std[c], " of channel ", c);
            scale_[c] = 1 / (255 * config_.std[c]);
            shift_[c] = -config_.mean[c] / config_.std[c];
        }
        if (config_.cache_bytes > 0) fill_cache();
    }

    index_t size() const { return static_cast<index_t>(chosen_.size()); }
    shape sample_shape() const { return {config_.size, config_.size, 3}; }
    target_info targets() const { return {target_kind::classes, images_->classes(), {}, {}}; }
    std::string sample_name(index_t i) const { return images_->name(at(i)); }
    const image_folder_config& config() const { return config_; }
    const std::vector<index_t>& chosen() const { return chosen_; }
    bool cached() const { return !cache_->empty(); }

    /// The centres of the same images; they share the cache.
    image_folder unaugmented() const {
        image_folder other = *this;
        other.config_.augmented = false;
        return other;
    }

    /// The same images in another size; they share the cache.
    image_folder resized(const sample_size& to) const {
        image_folder other = *this;
        if (to.edge > 0) {
            other.config_.size = to.edge;
            other.config_.resize = to.edge * config_.resize / config_.size;
        }
        if (to.area_min > 0) other.config_.crop.area_min = to.area_min;
        return other;
    }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        *slot.label = images_->label(at(i));
        const index_t values = sample_shape().size();
        if (config_.rounded) {
            thread_local raw_vector<std::uint8_t> pixels;
            pixels.resize(static_cast<std::size_t>(values));
            if (!resample_to_pixels(i, key, pixels.data())) return false;
            normalise(pixels.data(), slot.x, values);
            return true;
        }
        if (!jittered()) return resample(i, key, scale_, shift_, slot.x);
        if (!resample(i, key, one, zero, slot.x)) return false;
        normalise(slot.x, slot.x, values);
        return true;
    }

    std::vector<float> pixel_table() const {
        if (!config_.rounded) return {};
        return make_pixel_table(
            3, [this](const std::uint8_t* pixel, float* x, index_t channels) { normalise(pixel, x, channels); });
    }
    bool read_pixels(index_t i, augment_key key, pixel_slot slot) const {
        *slot.label = images_->label(at(i));
        *slot.move = {};  // resampling mirrors
        return resample_to_pixels(i, key, slot.pixels);
    }

private:
    static constexpr std::array<float, 3> one{1, 1, 1}, zero{};

    pixel_box box_of(index_t height, index_t width, sample_random& random) const {
        return config_.augmented ? config_.crop(height, width, random)
                                 : centre_crop{config_.resize, config_.size}(height, width);
    }

    index_t at(index_t i) const { return chosen_[static_cast<std::size_t>(i)]; }
    bool jittered() const { return config_.augmented && config_.jitter.active(); }

    template <class T>
    void normalise(const T* values, float* x, index_t n) const {
        for (index_t p = 0; p < n; p += 3)
            for (index_t c = 0; c < 3; ++c)
                x[p + c] = static_cast<float>(values[p + c]) * scale_[static_cast<std::size_t>(c)] +
                           shift_[static_cast<std::size_t>(c)];
    }

    bool resample_to_pixels(index_t i, augment_key key, std::uint8_t* pixels) const {
        thread_local raw_vector<float> values;
        values.resize(static_cast<std::size_t>(sample_shape().size()));
        if (!resample(i, key, one, zero, values.data())) return false;
        round_to_pixels(values.data(), static_cast<index_t>(values.size()), pixels);
        return true;
    }

    // The part of image i that this key chooses, scale · value + shift; jittered before anything else is done to values
    // 0 … 255.
    bool resample(index_t i, augment_key key, const std::array<float, 3>& scale, const std::array<float, 3>& shift,
                  float* out) const {
        sample_random random(key, at(i));
        const auto choose = [&](index_t height, index_t width) { return box_of(height, width, random); };
        thread_local image decoded;
        thread_local std::vector<std::uint8_t> bytes;
        thread_local resize_scratch scratch;
        pixel_box box;
        const image* source = &decoded;
        if (cached()) {
            source = &(*cache_)[static_cast<std::size_t>(i)];
            if (source->pixels.empty()) return false;
            box = choose(source->height, source->width);
        } else {
            try {
                box = detail::decode_box(images_->bytes(at(i), bytes), sample_name(i), config_.size, config_.size,
                                         choose, decoded);
            } catch (const error&) {
                if (config_.corrupt == corrupt_image::skip) return false;
                throw;
            }
        }
        const bool mirrored = config_.augmented && random.coin(config_.flip);
        resize_to_float(*source, box, mirrored, config_.size, config_.size, scale.data(), shift.data(), out, scratch);
        if (jittered()) config_.jitter(out, config_.size * config_.size, random);
        return true;
    }

    // All or nothing: as soon as the limit is passed the cache is given up.
    void fill_cache() {
        auto cache = std::make_shared<std::vector<image>>(chosen_.size());
        std::atomic<index_t> bytes{0};
        parallel_for(size(), 16, [&](index_t begin, index_t end) {
            std::vector<std::uint8_t> buffer;
            for (index_t i = begin; i < end && bytes <= config_.cache_bytes; ++i) {
                image& out = (*cache)[static_cast<std::size_t>(i)];
                try {
                    detail::decode_image(images_->bytes(at(i), buffer), sample_name(i), out);
                } catch (const error&) {
                    if (config_.corrupt == corrupt_image::stop) throw;
                    out = {};
                }
                bytes += static_cast<index_t>(out.pixels.size());
            }
        });
        if (bytes <= config_.cache_bytes) cache_ = std::move(cache);
    }

    std::shared_ptr<const image_collection> images_;
    std::vector<index_t> chosen_;
    image_folder_config config_;
    std::array<float, 3> scale_{}, shift_{};
    std::shared_ptr<const std::vector<image>> cache_ = std::make_shared<std::vector<image>>();
};

static_assert(PixelBatches<image_folder> && Augmented<image_folder>);

/// Decodes the chosen images of a collection, which must all have the same size, on all threads. Throws naming the
/// first that differs, or that is corrupt.
inline std::shared_ptr<const labelled_images> decode_all(const image_collection& images,
                                                         const std::vector<index_t>& chosen, std::string name) {
    require(!chosen.empty(), name, ": no image chosen");
    image first;
    std::vector<std::uint8_t> buffer;
    detail::decode_image(images.bytes(chosen.front(), buffer), images.name(chosen.front()), first);
    auto out = std::make_shared<labelled_images>();
    out->count = static_cast<index_t>(chosen.size());
    out->height = first.height;
    out->width = first.width;
    out->channels = 3;
    out->classes = images.classes();
    out->name = std::move(name);
    const index_t bytes = first.height * first.width * 3;
    out->pixels.resize(static_cast<std::size_t>(out->count * bytes));
    for (index_t i : chosen) out->labels.push_back(images.label(i));
    parallel_for(out->count, 64, [&](index_t begin, index_t end) {
        image decoded;
        std::vector<std::uint8_t> local;
        for (index_t k = begin; k < end; ++k) {
            const index_t i = chosen[static_cast<std::size_t>(k)];
            detail::decode_image(images.bytes(i, local), images.name(i), decoded);
            require(decoded.height == first.height && decoded.width == first.width, images.name(i), ": ",
                    decoded.height, " × ", decoded.width, " pixels, the first image has ", first.height, " × ",
                    first.width, ": images of equal size are expected");
            std::copy(decoded.pixels.begin(), decoded.pixels.end(), out->pixels.begin() + k * bytes);
        }
    });
    return out;
}

/// data.format = "folder".
struct folder_format {
    static constexpr const char* name = "folder";
    static constexpr data_source source{
        "images",
        ", a folder of images with one subfolder for each class, or an archive of that; "
        "benchmarks/fetch_data --list names some"};
    image_folder_config config;
    index_t classes = 1000;      // of data without files
    double test_fraction = 0.2;  // where the layout has no parts
    std::uint64_t split_seed = 0;
    empty_class empty = empty_class::stop;

    template <class Table>
    void read(Table& table) {
        table("size", config.size, from_to(1, most_pixels));
        config.resize = config.size * 8 / 7;
        table("resize", config.resize, from_to(static_cast<double>(config.size), 2 * most_pixels));
        table("augment", config.augmented, {{"random_resized_crop", true}, {"none", false}});
        table("area_min", config.crop.area_min, above_to(0, 1));
        bool flip = true, imagenet = true;
        table("flip", flip);
        config.flip = flip ? 0.5f : 0.0f;
        table("jitter", config.jitter.brightness, from_to(0, 10));
        config.jitter.contrast = config.jitter.saturation = config.jitter.brightness;
        table("rounded", config.rounded);
        index_t cache_mib = 0;
        table("cache_mib", cache_mib, from_to(0, 1e9));
        config.cache_bytes = cache_mib << 20;
        table("normalise", imagenet, {{"imagenet", true}, {"none", false}});
        if (!imagenet) config.mean = {0, 0, 0}, config.std = {1, 1, 1};
        table("corrupt", config.corrupt, {{"stop", corrupt_image::stop}, {"skip", corrupt_image::skip}});
        table("empty_class", empty, {{"stop", empty_class::stop}, {"leave_out", empty_class::leave_out}});
        table("test_fraction", test_fraction, from_below(0, 1));
        table("split_seed", split_seed, at_least(0));
        table("classes", classes, from_to(1, 1e6));
    }
    data_parts without_files(std::uint64_t seed) const {
        const auto of_edge = [n = classes, seed](index_t edge) {
            return synthetic_parts({edge, edge, 3}, numbered_classes(n), seed);
        };
        data_parts parts = of_edge(config.size);
        parts.resized = [=, edge = config.size](const sample_size& to) { return of_edge(to.edge ? to.edge : edge); };
        return parts;
    }
    data_parts load(const std::filesystem::path& folder) const {
        const auto images = std::make_shared<const image_collection>(archive_in(folder), empty,
                                                                     "set data.folder.empty_class = leave_out");
        const image_folder train(images, images->part_of(part::train, 1 - test_fraction, split_seed), config);
        const auto tested = [&](const std::vector<index_t>& chosen) -> std::optional<image_folder> {
            if (chosen.empty()) return {};
            return image_folder(images, chosen, config).unaugmented();
        };
        const auto test = tested(images->part_of(part::test, 1 - test_fraction, split_seed)),
                   validation = tested(images->validation());
        const auto in_size = [=](const sample_size& to) {
            const auto part = [&](const auto& some) { return some ? any_dataset(some->resized(to)) : any_dataset(); };
            data_parts parts = make_data_parts(train.resized(to), part(test));
            parts.validation = part(validation);
            return parts;
        };
        data_parts parts = in_size({});
        parts.resized = in_size;
        parts.may_skip = config.corrupt == corrupt_image::skip;
        return parts;
    }
};

}  // namespace cairn
