#pragma once
// Fields as samples: from the fields of some variables those of others. Input, (height, width, channels):
//   (v − mean) / deviation of each input, 0 where it is missing
//   a mask of each input that misses values anywhere, or of whose cells some are taken for known: 1 known, 0 missing
//   coordinates, if asked for: on a grid in degrees the point on the unit sphere (x, y, z), else (y, x) in [−1, 1]
// Target: (v − mean) / deviation of each at each pixel, NaN where it is missing. Means and deviations are those of the
// training samples; with `anomalies` they are those of each pixel. Weights of a target: areas of the cells; of
// anomalies times the variance of the pixel, so that losses and figures are anomalies' in their own unit.

#include <cairn/data/fields/field_files.hpp>
#include <cairn/data/shuffle.hpp>
#include <cairn/data/split.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// The settings [data.fields] but for files and split.
struct field_choices {
    std::vector<std::string> inputs, targets;
    bool anomalies = false, coordinates = false;
    index_t known = 0;             // cells of the inputs that are known, drawn anew for each training sample; 0: all
    std::uint64_t known_seed = 0;  // draws those of test samples, which all have the same ones

    /// Inputs and targets, each once.
    std::vector<std::string> variables() const {
        std::vector<std::string> all = inputs;
        for (const std::string& name : targets)
            if (std::ranges::find(all, name) == all.end()) all.push_back(name);
        return all;
    }
};

/// Mean and deviation of one channel: one, or one a cell. The mean is NaN where no training sample has a value.
struct field_scaling {
    std::vector<float> mean, deviation;
    index_t known = 0, all = 0;  // values of the training samples

    /// Throws where nothing can be learned.
    field_scaling(const field_array& array, index_t channel, std::span<const index_t> samples, bool of_cells,
                  const std::string& name) {
        const auto cells = static_cast<std::size_t>(array.cells());
        std::vector<double> sums(of_cells ? cells : 1), counts(sums.size()), squares(sums.size());
        const auto each = [&](auto&& value) {
            for (const index_t sample : samples)
                for (std::size_t p = 0; p < cells; ++p)
                    if (const float v = array.field(sample, channel)[p]; !std::isnan(v))
                        value(of_cells ? p : 0, static_cast<double>(v));
        };
        each([&](std::size_t p, double v) { sums[p] += v, ++counts[p], ++known; });
        all = static_cast<index_t>(cells * samples.size());
        require(known > 0, name, ": all its values in the training part are missing; leave it out");
        for (std::size_t p = 0; p < sums.size(); ++p) mean.push_back(static_cast<float>(sums[p] / counts[p]));  // NaN
        each([&](std::size_t p, double v) { squares[p] += std::pow(v - sums[p] / counts[p], 2); });
        const double all_squares = std::accumulate(squares.begin(), squares.end(), 0.0);
        require(all_squares > 0, name, ": has one value in the training part", of_cells ? " at each pixel" : "",
                "; leave it out");
        for (std::size_t p = 0; p < sums.size(); ++p)  // of a pixel of one value: that of all
            deviation.push_back(static_cast<float>(
                std::sqrt(squares[p] > 0 ? squares[p] / counts[p] : all_squares / static_cast<double>(known))));
    }

    /// NaN where the value is missing.
    float standard(float value, index_t cell) const {
        const std::size_t p = mean.size() == 1 ? 0 : static_cast<std::size_t>(cell);
        return (value - mean[p]) / deviation[p];
    }
};

/// Files, and what was learned of the training samples.
struct scaled_fields {
    field_choices choices;
    std::vector<std::vector<field_scaling>> of_input, of_target;  // [variable][channel]
    std::vector<std::vector<bool>> masked;                        // [input][channel]

    /// Learns from samples of `files`; `others` has the rest of the data, or is the same.
    scaled_fields(field_choices chosen, const field_files& files, std::span<const index_t> samples,
                  const field_files& others)
        : choices(std::move(chosen)) {
        const auto scalings = [&](const std::string& name) {
            std::vector<field_scaling> all;
            const field_array& array = files.at(name);
            for (index_t c = 0; c < array.axes[1]; ++c)
                all.emplace_back(array, c, samples, choices.anomalies, channel_name(files, name, c));
            return all;
        };
        for (const std::string& name : choices.inputs) {
            of_input.push_back(scalings(name));
            std::vector<bool>& masks = masked.emplace_back();
            for (std::size_t c = 0; c < of_input.back().size(); ++c)
                masks.push_back(choices.known > 0 || misses(files.at(name), c) || misses(others.at(name), c));
        }
        for (const std::string& name : choices.targets) of_target.push_back(scalings(name));
    }

    /// "u", or "u 2" of several channels.
    static std::string channel_name(const field_files& files, const std::string& name, index_t channel) {
        return files.at(name).axes[1] > 1 ? concat(name, ' ', channel) : name;
    }

private:
    static bool misses(const field_array& array, std::size_t channel) {
        for (index_t i = 0; i < array.axes[0]; ++i) {
            const float* const field = array.field(i, static_cast<index_t>(channel));
            if (std::any_of(field, field + array.cells(), [](float v) { return std::isnan(v); })) return true;
        }
        return false;
    }
};

/// Samples of fields.
class field_samples {
public:
    field_samples(std::shared_ptr<const field_files> files, std::shared_ptr<const scaled_fields> scaled,
                  std::vector<index_t> samples)
        : files_(std::move(files)), scaled_(std::move(scaled)), samples_(std::move(samples)) {
        const field_array& first = files_->arrays.front();
        height_ = first.axes[2], width_ = first.axes[3];
        const field_choices& chosen = scaled_->choices;
        require(chosen.known < height_ * width_, "data.fields.known = ", chosen.known, ": a field has ",
                height_ * width_, " cells; take fewer");
        for (const auto& masks : scaled_->masked) channels_ += std::ssize(masks) + std::ranges::count(masks, true);
        if (chosen.coordinates) add_coordinates(first.grid);
        channels_ += std::ssize(coordinates_) / (height_ * width_);
        info_.kind = target_kind::values;
        info_.labels_each = height_ * width_;
        info_.labels = label_place::voxels;
        const std::vector<double> areas = first.grid.areas(width_);
        std::vector<std::vector<double>> weights;  // of each target
        for (std::size_t v = 0; v < chosen.targets.size(); ++v)
            for (index_t c = 0; c < std::ssize(scaled_->of_target[v]); ++c) {
                const field_scaling& scaling = scaled_->of_target[v][static_cast<std::size_t>(c)];
                info_.names.push_back(scaled_fields::channel_name(*files_, chosen.targets[v], c));
                info_.mean.push_back(chosen.anomalies ? 0 : scaling.mean[0]);
                auto [scale, of_pixels] = scale_and_weights(scaling, areas);
                info_.scale.push_back(static_cast<float>(scale));
                weights.push_back(std::move(of_pixels));
            }
        if (!weights[0].empty())
            for (std::size_t p = 0; p < weights[0].size(); ++p)
                for (const auto& of_pixels : weights) info_.weights.push_back(of_pixels[p]);
        if (chosen.known > 0) fixed_ = drawn_cells({chosen.known_seed, stream_of("known cells"), 0});
    }

    index_t size() const { return std::ssize(samples_); }
    shape sample_shape() const { return {height_, width_, channels_}; }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const {
        const index_t sample = at(i);
        const std::size_t file = files_->file_of[static_cast<std::size_t>(sample)];
        const auto first = std::ranges::find(files_->file_of, file) - files_->file_of.begin();
        return concat(files_->names[file], " sample ", sample - first);
    }

    /// The same samples, each with the known cells of test samples.
    field_samples unaugmented() const {
        field_samples other = *this;
        other.draws_ = false;
        return other;
    }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        const index_t sample = at(i), cells = height_ * width_;
        const std::vector<bool> drawn = !fixed_.empty() && draws_ ? drawn_cells(known_random(key, sample)) : fixed_;
        index_t to = 0;
        const field_choices& chosen = scaled_->choices;
        for (std::size_t v = 0; v < chosen.inputs.size(); ++v)
            for (std::size_t c = 0; c < scaled_->of_input[v].size(); ++c) {
                const float* const field = files_->at(chosen.inputs[v]).field(sample, static_cast<index_t>(c));
                const bool masked = scaled_->masked[v][c];
                for (index_t p = 0; p < cells; ++p) {
                    const float value = scaled_->of_input[v][c].standard(field[p], p);
                    const bool known = !std::isnan(value) && (drawn.empty() || drawn[static_cast<std::size_t>(p)]);
                    slot.x[p * channels_ + to] = known ? value : 0;
                    if (masked) slot.x[p * channels_ + to + 1] = known;
                }
                to += masked ? 2 : 1;
            }
        const index_t axes = channels_ - to;
        for (index_t p = 0; p < cells; ++p)
            std::copy_n(coordinates_.data() + p * axes, axes, slot.x + p * channels_ + to);
        index_t k = 0;
        for (std::size_t v = 0; v < chosen.targets.size(); ++v)
            for (std::size_t c = 0; c < scaled_->of_target[v].size(); ++c, ++k) {
                const float* const field = files_->at(chosen.targets[v]).field(sample, static_cast<index_t>(c));
                for (index_t p = 0; p < cells; ++p)
                    slot.values[p * info_.count() + k] = scaled_->of_target[v][c].standard(field[p], p);
            }
        return true;
    }

private:
    index_t at(index_t i) const { return samples_[static_cast<std::size_t>(i)]; }

    static random_stream known_random(augment_key key, index_t sample) {
        return stream_of_path(key.seed, detail::mixed(static_cast<std::uint64_t>(sample) + 1), "known cells",
                              key.epoch);
    }
    std::vector<bool> drawn_cells(random_stream random) const {
        std::vector<bool> known(static_cast<std::size_t>(height_ * width_));
        const std::vector<index_t> order = random_order(height_ * width_, random);
        for (index_t k = 0; k < scaled_->choices.known; ++k)
            known[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])] = true;
        return known;
    }

    // Of values that differ in deviation by s_p and in area by a_p: √(mean of a s²), and a s² over that mean. Then
    // the mean of (scale · difference)², by weights, is that of differences in the values' unit, by areas.
    static std::pair<double, std::vector<double>> scale_and_weights(const field_scaling& scaling,
                                                                    const std::vector<double>& areas) {
        if (scaling.deviation.size() == 1) return {static_cast<double>(scaling.deviation[0]), areas};
        std::vector<double> weights;
        double sum = 0;
        for (std::size_t p = 0; p < scaling.deviation.size(); ++p) {
            const auto deviation = static_cast<double>(scaling.deviation[p]);
            weights.push_back((areas.empty() ? 1 : areas[p]) * deviation * deviation);
            sum += weights.back();
        }
        const double mean = sum / static_cast<double>(weights.size());
        for (double& weight : weights) weight /= mean;
        return {std::sqrt(mean), std::move(weights)};
    }

    void add_coordinates(const field_grid& grid) {
        const auto inside = [](index_t at, index_t extent) {
            return extent > 1 ? 2 * static_cast<double>(at) / static_cast<double>(extent - 1) - 1 : 0;
        };
        for (index_t y = 0; y < height_; ++y)
            for (index_t x = 0; x < width_; ++x) {
                std::vector<double> point{inside(y, height_), inside(x, width_)};
                if (!grid.latitude.empty()) {
                    const double north = grid.latitude[static_cast<std::size_t>(y)] * std::numbers::pi / 180,
                                 east = grid.longitude[static_cast<std::size_t>(x)] * std::numbers::pi / 180;
                    point = {std::cos(north) * std::cos(east), std::cos(north) * std::sin(east), std::sin(north)};
                }
                for (const double axis : point) coordinates_.push_back(static_cast<float>(axis));
            }
    }

    std::shared_ptr<const field_files> files_;
    std::shared_ptr<const scaled_fields> scaled_;
    std::vector<index_t> samples_;
    index_t height_ = 0, width_ = 0, channels_ = 0;
    target_info info_;
    std::vector<float> coordinates_;  // (height, width, axes)
    std::vector<bool> fixed_;         // the known cells of test samples; empty: all
    bool draws_ = true;
};

static_assert(Augmented<field_samples>);

}  // namespace cairn
