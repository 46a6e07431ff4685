#pragma once
// Parts of a data set: train / validation by fraction, k folds, and splits that keep the share of every class. All are
// pure functions of the seed. Fold f of k takes every k-th sample of a random order, so folds differ in size by at most
// one.

#include <cairn/data/data_format.hpp>
#include <cairn/data/dataset.hpp>
#include <cairn/data/shuffle.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>

namespace cairn {

/// The samples `chosen` of a data set, in that order.
template <Dataset D>
class subset {
public:
    /// Throws when a chosen sample does not exist.
    subset(D base, std::vector<index_t> chosen) : base_(std::move(base)), chosen_(std::move(chosen)) {
        for (index_t i : chosen_)
            require(i >= 0 && i < base_.size(), "subset: sample ", i, " of a data set of ", base_.size());
    }

    index_t size() const { return static_cast<index_t>(chosen_.size()); }
    shape sample_shape() const { return base_.sample_shape(); }
    target_info targets() const { return base_.targets(); }
    std::string sample_name(index_t i) const { return base_.sample_name(at(i)); }
    bool read(index_t i, augment_key key, sample_slot slot) const { return base_.read(at(i), key, slot); }
    std::vector<float> pixel_table() const { return pixel_table_of(base_); }
    bool read_pixels(index_t i, augment_key key, pixel_slot slot) const {
        return read_pixels_of(base_, at(i), key, slot);
    }
    subset unaugmented() const requires Augmented<D> { return {base_.unaugmented(), chosen_}; }
    const std::vector<index_t>& chosen() const { return chosen_; }

private:
    index_t at(index_t i) const { return chosen_[static_cast<std::size_t>(i)]; }

    D base_;
    std::vector<index_t> chosen_;
};

/// Two disjoint parts that together are everything; ascending.
struct split_indices {
    std::vector<index_t> first, second;
};

namespace detail {
inline void deal(std::span<const index_t> samples, double fraction, random_stream random, split_indices& out) {
    const auto n = static_cast<index_t>(samples.size());
    const auto order = random_order(n, random);
    const auto taken = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(n)));
    for (std::size_t i = 0; i < samples.size(); ++i)
        (i < taken ? out.first : out.second).push_back(samples[static_cast<std::size_t>(order[i])]);
}
inline void check_fraction(double fraction) {
    require(fraction >= 0 && fraction <= 1, "split: fraction ", fraction, " is not in [0, 1]");
}
inline void sort_both(split_indices& s) {
    std::sort(s.first.begin(), s.first.end());
    std::sort(s.second.begin(), s.second.end());
}
}  // namespace detail

/// `fraction` of n samples (rounded), and the rest.
inline split_indices random_split(index_t n, double fraction, std::uint64_t seed) {
    detail::check_fraction(fraction);
    std::vector<index_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), index_t{0});
    split_indices out;
    detail::deal(all, fraction, {seed, stream_of("split"), 0}, out);
    detail::sort_both(out);
    return out;
}

/// `fraction` of every class (rounded for each), and the rest.
inline split_indices stratified_split(std::span<const std::int32_t> labels, double fraction, std::uint64_t seed) {
    detail::check_fraction(fraction);
    std::map<std::int32_t, std::vector<index_t>> classes;
    for (std::size_t i = 0; i < labels.size(); ++i) classes[labels[i]].push_back(static_cast<index_t>(i));
    split_indices out;
    for (const auto& [label, samples] : classes)
        detail::deal(samples, fraction, {seed, stream_of("split"), static_cast<std::uint32_t>(label) + 1}, out);
    detail::sort_both(out);
    return out;
}

/// `taken` and `held` of n samples: the same ones for every seed of a run, and with more of a part also those of less.
/// `in_sequence`: the first and the last ones, otherwise they are drawn. Throws when there are too few.
inline split_indices held_out_split(index_t n, index_t taken, index_t held, bool in_sequence) {
    require(taken >= 0 && held >= 0 && taken + held <= n, "split: ", taken, " and ", held, " of ", n, " samples");
    std::vector<index_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), index_t{0});
    if (!in_sequence) order = random_order(n, {0, stream_of("held out"), 0});
    split_indices out{{order.begin(), order.begin() + taken}, {order.end() - held, order.end()}};
    detail::sort_both(out);
    return out;
}

/// Fold `fold` of `folds` as (training, held out). Throws unless 0 ≤ fold < folds and 2 ≤ folds ≤ n.
inline split_indices fold_split(index_t n, index_t folds, index_t fold, std::uint64_t seed) {
    require(folds >= 2 && folds <= n, "split: ", folds, " folds of ", n, " samples; 2 to ", n, " are possible");
    require(fold >= 0 && fold < folds, "split: fold ", fold, " of ", folds);
    const auto order = random_order(n, {seed, stream_of("folds"), 0});
    split_indices out;
    for (index_t i = 0; i < n; ++i)
        (i % folds == fold ? out.second : out.first).push_back(order[static_cast<std::size_t>(i)]);
    detail::sort_both(out);
    return out;
}

/// Cross-validation: fold `fold` of `folds` is tested on.
struct fold_choice {
    index_t folds = 5, fold = 0;
    std::uint64_t split_seed = 0;

    template <class Table>
    void read(Table& table) {
        table("folds", folds, from_to(2, 1e6));
        table("fold", fold, from_to(0, static_cast<double>(folds - 1)));
        table("split_seed", split_seed, at_least(0));
    }
    template <Augmented D>
    data_parts parts_of(const D& all) const {
        const split_indices parts = fold_split(all.size(), folds, fold, split_seed);
        return make_data_parts(subset(all, parts.first), subset(all.unaugmented(), parts.second));
    }
};

}  // namespace cairn
