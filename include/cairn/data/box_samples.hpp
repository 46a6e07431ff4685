#pragma once
// The same box of every sample of a data set, for a rank of spatial parallelism. Augmentation sees the whole sample, so
// boxes of different ranks fit together.

#include <cairn/core/box.hpp>
#include <cairn/data/dataset.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Inputs are the box of shape `box` that begins at `begin` in those of `base`; labels and values are as they were.
template <Dataset D>
class box_samples {
public:
    /// Throws where the box does not lie within a sample.
    box_samples(D base, std::vector<index_t> begin, shape box)
        : base_(std::move(base)), whole_(base_.sample_shape()), begin_(std::move(begin)), box_(box) {
        check_box(whole_, begin_, box_);
    }

    index_t size() const { return base_.size(); }
    shape sample_shape() const { return box_; }
    target_info targets() const { return base_.targets(); }
    std::string sample_name(index_t i) const { return base_.sample_name(i); }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        std::vector<float> whole(static_cast<std::size_t>(whole_.size()));
        float* const box = std::exchange(slot.x, whole.data());
        if (!base_.read(i, key, slot)) return false;
        for_runs(whole_, begin_, box_, [&](index_t in_whole, index_t in_box, index_t n) {
            std::copy_n(whole.data() + in_whole, n, box + in_box);
        });
        return true;
    }

private:
    D base_;
    shape whole_;
    std::vector<index_t> begin_;
    shape box_;
};

}  // namespace cairn
