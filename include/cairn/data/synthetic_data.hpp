#pragma once
// Samples of a given shape made of random numbers: what --throughput trains on. Nothing can be learnt from them.

#include <cairn/data/dataset.hpp>

namespace cairn {

class synthetic_data {
public:
    synthetic_data(index_t size, shape sample, target_info info, std::uint64_t seed)
        : size_(size), sample_(sample), info_(std::move(info)), seed_(seed) {}

    index_t size() const { return size_; }
    shape sample_shape() const { return sample_; }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const { return concat("generated sample ", i); }

    /// Uniform in [0, 1): also a target of reconstruction.
    bool read(index_t i, augment_key, sample_slot slot) const {
        const random_stream random{seed_, stream_of("generated"), static_cast<std::uint32_t>(i)};
        const auto n = static_cast<std::uint64_t>(sample_.size());
        for (std::uint64_t j = 0; j < n; j += 4) {
            const auto bits = random.bits4(j / 4);
            for (std::uint64_t k = 0; k < 4 && j + k < n; ++k) slot.x[j + k] = random_stream::to_unit(bits[k]);
        }
        if (slot.label)
            for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(info_.labels_each); ++k)
                slot.label[k] =
                    static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(info_.count()), n + k));
        if (slot.values)
            for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(info_.values_each()); ++k)
                slot.values[k] = static_cast<float>(random.normal(2 * n + k));
        return true;
    }

private:
    index_t size_;
    shape sample_;
    target_info info_;
    std::uint64_t seed_;
};

static_assert(Dataset<synthetic_data>);

}  // namespace cairn
