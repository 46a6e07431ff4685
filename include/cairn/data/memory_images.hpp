#pragma once
// Equally sized 8-bit images with class labels, held in memory: MNIST, CIFAR, decoded thumbnails. Making a float image
// is one pass:
//   x = (pixel/255 − mean) / std,  after padding, random crop and flip
// Padding is 0 after normalisation, the mean colour, as in the usual CIFAR recipe (He et al. 2016, section 4.2).
// Bytes moved: 1 read and 4 written an element. On its way to a GPU an image stays as it is stored, and the pass is
// made there (PixelBatches).

#include <cairn/data/dataset.hpp>

#include <algorithm>
#include <memory>

namespace cairn {

/// Images and labels, (N, H, W, C) row-major.
struct labelled_images {
    index_t count = 0, height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
    std::vector<std::int32_t> labels;
    std::vector<std::string> classes;
    std::string name;  // "MNIST train", for errors
};

/// How a stored image becomes an input.
struct image_transform {
    std::vector<float> mean, std;  // per channel, in units of 255; empty: 0 and 1
    index_t pad = 0;               // pad this much on each side and crop back at a random place; 0: off
    bool flip = false;             // left-right, with probability 1/2
};

class memory_images {
public:
    /// Throws when sizes or channel counts do not fit together.
    memory_images(std::shared_ptr<const labelled_images> images, image_transform recipe)
        : images_(std::move(images)), recipe_(std::move(recipe)) {
        const labelled_images& d = *images_;
        require(static_cast<index_t>(d.labels.size()) == d.count &&
                    static_cast<index_t>(d.pixels.size()) == d.count * d.height * d.width * d.channels,
                d.name, ": ", d.pixels.size(), " pixel bytes and ", d.labels.size(), " labels do not make ", d.count,
                " images of ", shape{d.height, d.width, d.channels});
        if (recipe_.mean.empty()) recipe_.mean.assign(static_cast<std::size_t>(d.channels), 0.0f);
        if (recipe_.std.empty()) recipe_.std.assign(static_cast<std::size_t>(d.channels), 1.0f);
        require(static_cast<index_t>(recipe_.mean.size()) == d.channels &&
                    static_cast<index_t>(recipe_.std.size()) == d.channels,
                d.name, ": normalisation for ", recipe_.mean.size(), " means and ", recipe_.std.size(),
                " deviations, the images have ", d.channels, " channel(s)");
        require(recipe_.pad >= 0 && recipe_.pad <= std::max(d.height, d.width), d.name, ": padding ", recipe_.pad);
        // One row of factors, so that the inner loop knows no channels.
        for (index_t i = 0; i < d.width; ++i)
            for (std::size_t c = 0; c < recipe_.mean.size(); ++c) {
                require(recipe_.std[c] > 0, d.name, ": standard deviation ", recipe_.std[c], " of channel ", c);
                scale_.push_back(1.0f / (255.0f * recipe_.std[c]));
                shift_.push_back(-recipe_.mean[c] / recipe_.std[c]);
            }
    }

    index_t size() const { return images_->count; }
    shape sample_shape() const { return {images_->height, images_->width, images_->channels}; }
    target_info targets() const { return {target_kind::classes, images_->classes, {}, {}}; }
    std::string sample_name(index_t i) const { return concat(images_->name, " #", i); }
    const labelled_images& images() const { return *images_; }
    std::span<const std::int32_t> labels() const { return images_->labels; }

    /// The same images made into inputs another way.
    memory_images with(image_transform recipe) const { return {images_, std::move(recipe)}; }
    memory_images unaugmented() const { return with({recipe_.mean, recipe_.std, 0, false}); }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        const labelled_images& d = *images_;
        const index_t row = d.width * d.channels;
        const std::uint8_t* image = d.pixels.data() + i * d.height * row;
        *slot.label = d.labels[static_cast<std::size_t>(i)];
        const crop_flip move = move_of(i, key);
        if (!move.moves()) {
            for (index_t y = 0; y < d.height; ++y) convert(image + y * row, slot.x + y * row, 0, row);
            return true;
        }
        // Output columns [left, left + n) show image columns [from, from + n), in reverse if mirrored.
        const index_t right = move.right, n = std::max<index_t>(d.width - std::abs(right), 0),
                      from = std::max<index_t>(right, 0);
        const index_t left = move.mirrored ? std::max<index_t>(right, 0) : std::max<index_t>(-right, 0);
        std::vector<std::uint8_t> reversed(move.mirrored ? static_cast<std::size_t>(row) : 0);
        for (index_t y = 0; y < d.height; ++y) {
            float* out = slot.x + y * row;
            const index_t shown = move.row(static_cast<std::int32_t>(y));
            if (shown < 0 || shown >= d.height || n == 0) {
                std::fill_n(out, row, 0.0f);
                continue;
            }
            const std::uint8_t* in = image + shown * row + from * d.channels;
            if (move.mirrored) {
                for (index_t x = 0; x < n; ++x)
                    for (index_t c = 0; c < d.channels; ++c)
                        reversed[static_cast<std::size_t>((n - 1 - x) * d.channels + c)] = in[x * d.channels + c];
                in = reversed.data();
            }
            std::fill_n(out, left * d.channels, 0.0f);
            convert(in, out + left * d.channels, left * d.channels, n * d.channels);
            std::fill(out + (left + n) * d.channels, out + row, 0.0f);
        }
        return true;
    }

    std::vector<float> pixel_table() const {
        return make_pixel_table(images_->channels,
                                [this](const std::uint8_t* pixel, float* x, index_t n) { convert(pixel, x, 0, n); });
    }
    bool read_pixels(index_t i, augment_key key, pixel_slot slot) const {
        const labelled_images& d = *images_;
        const index_t bytes = d.height * d.width * d.channels;
        std::copy_n(d.pixels.data() + i * bytes, bytes, slot.pixels);
        *slot.label = d.labels[static_cast<std::size_t>(i)];
        *slot.move = move_of(i, key);
        return true;
    }

private:
    crop_flip move_of(index_t i, augment_key key) const {
        crop_flip move;
        if (!recipe_.pad && !recipe_.flip) return move;
        sample_random random(key, i);
        if (recipe_.pad) {
            move.down = static_cast<std::int32_t>(random.below(2 * recipe_.pad + 1) - recipe_.pad);
            move.right = static_cast<std::int32_t>(random.below(2 * recipe_.pad + 1) - recipe_.pad);
        }
        move.mirrored = recipe_.flip && random.coin();
        return move;
    }

    void convert(const std::uint8_t* in, float* out, index_t first, index_t n) const {
        const float* scale = scale_.data() + first;
        const float* shift = shift_.data() + first;
#pragma omp simd
        for (index_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale[i] + shift[i];
    }

    std::shared_ptr<const labelled_images> images_;
    image_transform recipe_;
    std::vector<float> scale_, shift_;  // (W·C)
};

static_assert(PixelBatches<memory_images> && Augmented<memory_images>);

}  // namespace cairn
