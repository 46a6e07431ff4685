#pragma once
// The seam of every data set. A data set is immutable and safe to read from many threads; it writes sample i, decoded,
// augmented and normalised, straight into a slot of the batch:
//   d.read(i, key, {x, label, values})
// Augmentation is a pure function of (seed, epoch, sample): workers, ranks and a resumed run see the same pixels.

#include <cairn/core/crop_flip.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/shape.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Which augmentation of a sample is asked for.
struct augment_key {
    std::uint64_t seed = 0;
    std::uint32_t epoch = 0;
};

/// The random numbers of one reading of one sample, in sequence. Up to 256 of them; further ones belong to the next
/// sample.
class sample_random {
public:
    sample_random(augment_key key, index_t sample)
        : stream_{key.seed, stream_of("augment"), key.epoch}, next_(static_cast<std::uint64_t>(sample) * 256) {}

    /// Uniform in [0, 1).
    float uniform() { return random_stream::to_unit(bits()); }
    /// Uniform in [low, high).
    float uniform(float low, float high) { return low + (high - low) * uniform(); }
    /// Uniform integer in [0, n).
    index_t below(index_t n) {
        return static_cast<index_t>((static_cast<std::uint64_t>(bits()) * static_cast<std::uint64_t>(n)) >> 32);
    }
    bool coin(float probability = 0.5f) { return uniform() < probability; }

private:
    std::uint32_t bits() {
        if (next_ % 4 == 0) block_ = stream_.bits4(next_ / 4);
        return block_[next_++ % 4];
    }

    random_stream stream_;
    std::uint64_t next_;
    std::array<std::uint32_t, 4> block_{};
};

/// Which part of a data set that comes in two.
enum class part { train, test };

/// A class number, a vector of real values, or a vector of answers: 1 yes, 0 no, −1 not known.
enum class target_kind { classes, values, answers };

/// Place of the labels or values of a sample with several: tokens of a text, judged by bits and accuracy; voxels of a
/// volume or pixels of a field, judged by the overlap of classes or by the errors of values; nodes of a graph, judged
/// by the accuracy over those whose label is not −1.
enum class label_place { tokens, voxels, nodes };

/// The targets: the names of the classes, or the names of the values with their mean and scale
/// (physical value = mean + scale × target).
struct target_info {
    target_kind kind = target_kind::classes;
    std::vector<std::string> names;
    std::vector<float> mean, scale;  // of values only
    index_t labels_each = 1;         // places a sample that have a class or count() values: a token of a text, a voxel
    label_place labels = label_place::tokens;  // where they stand, if there are several
    index_t labelled = 0;                      // of them that count, the others are −1; 0: all
    std::vector<double> weights = {};          // of a sample's values, of mean 1; empty: all alike
    std::vector<double> spacing = {};          // of voxels along each axis, usually in mm; empty: 1

    /// Number of classes, or of values a place.
    index_t count() const { return static_cast<index_t>(names.size()); }
    /// Numbers of a sample's target, of values and answers. NaN: a value at a place is not known.
    index_t values_each() const { return count() * labels_each; }
};

/// Destination of a sample. Of `label` and `values` the one that target_info::kind names is set.
struct sample_slot {
    float* x = nullptr;             // sample_shape().size() elements, channels last
    std::int32_t* label = nullptr;  // target_info::labels_each
    float* values = nullptr;        // target_info::values_each(), the values of a place side by side
};

/// A set of samples of equal shape. `read` returns false for a sample that is left out of its batch (a corrupt image
/// under the policy `skip`); it throws cairn::error on errors that must stop the run. `sample_name` gives the origin of
/// sample i.
template <class D>
concept Dataset = requires(const D& d, index_t i, augment_key key, sample_slot slot) {
    { d.size() } -> std::same_as<index_t>;
    { d.sample_shape() } -> std::convertible_to<shape>;
    { d.targets() } -> std::convertible_to<target_info>;
    { d.sample_name(i) } -> std::convertible_to<std::string>;
    { d.read(i, key, slot) } -> std::same_as<bool>;
};

/// A data set that augments samples: `unaugmented()` has the same ones, each read alike in every epoch.
template <class D>
concept Augmented = Dataset<D> && requires(const D& d) {
    { d.unaugmented() } -> std::same_as<D>;
};

/// Destination of a sample whose input is made of its pixels on the device (core/crop_flip.hpp).
struct pixel_slot {
    std::uint8_t* pixels = nullptr;  // sample_shape().size(), (H, W, C)
    crop_flip* move = nullptr;       // 1
    std::int32_t* label = nullptr;   // as in sample_slot
    float* values = nullptr;
};

/// A data set whose inputs may be made of 8-bit pixels. `pixel_table()`: the converted value of each pixel value of
/// each channel, (C, 256); empty for a data set without such inputs, whose read_pixels() is not called. `read_pixels`
/// returns and throws as read() does, and table, pixels and move give the bits of read(), from the same random numbers.
template <class D>
concept PixelBatches = Dataset<D> && requires(const D& d, index_t i, augment_key key, pixel_slot slot) {
    { d.pixel_table() } -> std::same_as<std::vector<float>>;
    { d.read_pixels(i, key, slot) } -> std::same_as<bool>;
};

/// The data set's table; empty where its inputs are not made of pixels.
template <Dataset D>
std::vector<float> pixel_table_of(const D& d) {
    if constexpr (PixelBatches<D>)
        return d.pixel_table();
    else
        return {};
}
/// Throws where inputs are not made of pixels.
template <Dataset D>
bool read_pixels_of(const D& d, index_t i, augment_key key, pixel_slot slot) {
    if constexpr (PixelBatches<D>)
        return d.read_pixels(i, key, slot);
    else
        fail(d.sample_name(i), ": inputs of this data set are not made of pixels");
}

/// The table of images of `channels`, by what convert(pixels, x, channels) makes of one pixel.
template <class Convert>
std::vector<float> make_pixel_table(index_t channels, Convert&& convert) {
    std::vector<float> table(static_cast<std::size_t>(channels * pixel_values)), x(static_cast<std::size_t>(channels));
    std::vector<std::uint8_t> pixel(x.size());
    for (std::size_t value = 0; value < static_cast<std::size_t>(pixel_values); ++value) {
        pixel.assign(pixel.size(), static_cast<std::uint8_t>(value));
        convert(pixel.data(), x.data(), channels);
        for (std::size_t c = 0; c < x.size(); ++c) table[c * pixel_values + value] = x[c];
    }
    return table;
}

/// Any data set behind one type; copies share it.
class any_dataset {
public:
    any_dataset() = default;

    template <class D>
        requires(Dataset<std::remove_cvref_t<D>> && !std::same_as<std::remove_cvref_t<D>, any_dataset>)
    any_dataset(D&& d) : held_(std::make_shared<model<std::remove_cvref_t<D>>>(std::forward<D>(d))) {}

    index_t size() const { return held().size(); }
    shape sample_shape() const { return held().sample_shape(); }
    target_info targets() const { return held().targets(); }
    std::string sample_name(index_t i) const { return held().sample_name(i); }
    bool read(index_t i, augment_key key, sample_slot slot) const { return held().read(i, key, slot); }
    std::vector<float> pixel_table() const { return held().pixel_table(); }
    bool read_pixels(index_t i, augment_key key, pixel_slot slot) const { return held().read_pixels(i, key, slot); }
    any_dataset unaugmented() const {
        any_dataset other = held().unaugmented();
        return other ? other : *this;
    }

    explicit operator bool() const { return held_ != nullptr; }

private:
    struct interface {
        virtual ~interface() = default;
        virtual index_t size() const = 0;
        virtual shape sample_shape() const = 0;
        virtual target_info targets() const = 0;
        virtual std::string sample_name(index_t i) const = 0;
        virtual bool read(index_t i, augment_key key, sample_slot slot) const = 0;
        virtual std::vector<float> pixel_table() const = 0;
        virtual bool read_pixels(index_t i, augment_key key, pixel_slot slot) const = 0;
        virtual any_dataset unaugmented() const = 0;  // empty: as it is
    };
    template <class D>
    struct model final : interface {
        explicit model(D data) : d(std::move(data)) {}
        index_t size() const override { return d.size(); }
        shape sample_shape() const override { return d.sample_shape(); }
        target_info targets() const override { return d.targets(); }
        std::string sample_name(index_t i) const override { return d.sample_name(i); }
        bool read(index_t i, augment_key key, sample_slot slot) const override { return d.read(i, key, slot); }
        std::vector<float> pixel_table() const override { return pixel_table_of(d); }
        bool read_pixels(index_t i, augment_key key, pixel_slot slot) const override {
            return read_pixels_of(d, i, key, slot);
        }
        any_dataset unaugmented() const override {
            if constexpr (Augmented<D>)
                return d.unaugmented();
            else
                return {};
        }
        D d;
    };

    const interface& held() const {
        require(held_ != nullptr, "any_dataset: empty; give it a data set first");
        return *held_;
    }

    std::shared_ptr<const interface> held_;
};

static_assert(PixelBatches<any_dataset> && Augmented<any_dataset>);

}  // namespace cairn
