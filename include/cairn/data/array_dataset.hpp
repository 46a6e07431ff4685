#pragma once
// A tensor of inputs with class labels or real targets, from .npy, .npz, HDF5 or a program: sample i is x[i].

#include <cairn/core/tensor.hpp>
#include <cairn/data/dataset.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

class array_dataset {
public:
    /// x (N, …) with labels (N) of classes 0 … classes−1. Throws when the counts differ or a label is out of range.
    array_dataset(tensor<float> x, tensor<std::int32_t> labels, std::vector<std::string> classes,
                  std::string name = "array")
        : x_(checked(std::move(x), name)),
          labels_(std::move(labels)),
          info_{target_kind::classes, std::move(classes), {}, {}},
          name_(std::move(name)) {
        require(labels_.rank() == 1 && labels_.extent(0) == size(), name_, ": x has shape ", x_.shape(),
                ", labels have shape ", labels_.shape(), ", (", size(), ") is expected");
        for (index_t i = 0; i < size(); ++i)
            require(labels_[i] >= 0 && labels_[i] < info_.count(), name_, ": label ", labels_[i], " of sample ", i,
                    ", 0 to ", info_.count() - 1, " expected");
    }

    /// x (N, …) with targets (N, K) or (N). With `normalise` the targets' mean and deviation, by column, are taken out
    /// and noted in targets().
    array_dataset(tensor<float> x, tensor<float> values, std::vector<std::string> names = {}, bool normalise = false,
                  std::string name = "array")
        : x_(checked(std::move(x), name)),
          values_(normalise ? values.clone(memory_category::data) : std::move(values)),
          name_(std::move(name)) {
        if (values_.rank() == 1) values_ = values_.reshaped({values_.extent(0), 1});
        require(values_.rank() == 2 && values_.extent(0) == size(), name_, ": x has shape ", x_.shape(),
                ", targets have shape ", values_.shape(), ", (", size(), ", K) is expected");
        const index_t k = values_.extent(1);
        for (index_t i = 0; i < values_.size(); ++i)
            require(std::isfinite(values_[i]), name_, ": target ", i % k, " of sample ", i / k, " is ", values_[i]);
        for (index_t c = static_cast<index_t>(names.size()); c < k; ++c) names.push_back(concat("target ", c));
        require(static_cast<index_t>(names.size()) == k, name_, ": ", names.size(), " target names for ", k,
                " targets");
        info_ = {target_kind::values, std::move(names), std::vector<float>(static_cast<std::size_t>(k), 0.0f),
                 std::vector<float>(static_cast<std::size_t>(k), 1.0f)};
        for (index_t c = 0; normalise && c < k; ++c) {
            double mean = 0, square = 0;
            for (index_t i = 0; i < size(); ++i)
                mean += static_cast<double>(values_(i, c)) / static_cast<double>(size());
            for (index_t i = 0; i < size(); ++i)
                square += std::pow(static_cast<double>(values_(i, c)) - mean, 2) / static_cast<double>(size());
            const double deviation = square > 0 ? std::sqrt(square) : 1;
            for (index_t i = 0; i < size(); ++i)
                values_(i, c) = static_cast<float>((static_cast<double>(values_(i, c)) - mean) / deviation);
            info_.mean[static_cast<std::size_t>(c)] = static_cast<float>(mean);
            info_.scale[static_cast<std::size_t>(c)] = static_cast<float>(deviation);
        }
    }

    // Copies share the elements.
    array_dataset(const array_dataset& other)
        : x_(other.x_.share()),
          labels_(other.labels_.share()),
          values_(other.values_.share()),
          info_(other.info_),
          name_(other.name_) {}
    array_dataset(array_dataset&&) = default;
    array_dataset& operator=(array_dataset&&) = default;

    index_t size() const { return x_.extent(0); }
    shape sample_shape() const {
        return shape(std::span(x_.shape().begin() + 1, static_cast<std::size_t>(x_.rank() - 1)));
    }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const { return concat(name_, " #", i); }

    bool read(index_t i, augment_key, sample_slot slot) const {
        const index_t width = x_.size() / std::max<index_t>(size(), 1);
        std::copy_n(x_.data() + i * width, width, slot.x);
        if (info_.kind == target_kind::classes)
            *slot.label = labels_[i];
        else
            std::copy_n(values_.data() + i * info_.count(), info_.count(), slot.values);
        return true;
    }

private:
    static tensor<float> checked(tensor<float> x, const std::string& name) {
        require(x.rank() >= 2, name, ": x has shape ", x.shape(), ", (N, …) with at least two axes is expected");
        for (index_t i = 0; i < x.size(); ++i) require(std::isfinite(x[i]), name, ": element ", i, " of x is ", x[i]);
        return x;
    }

    tensor<float> x_;
    tensor<std::int32_t> labels_;
    tensor<float> values_;
    target_info info_;
    std::string name_;
};

static_assert(Dataset<array_dataset>);

}  // namespace cairn
