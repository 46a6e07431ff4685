#pragma once
// The batch of one step on one rank, cut into micro-batches that go forward and backward by themselves. Each holds
// handles to its part of the batch's tensors, on the host and on the device of the network.

#include <cairn/core/range.hpp>
#include <cairn/data/prefetcher.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cairn {

/// Samples s of a tensor of samples.
template <class T, Device D>
tensor<T, D> samples_of(const tensor<T, D>& t, range s) {
    if (t.empty()) return t.share();  // such as the inputs of pixels, which are made on the device
    const index_t width = t.extent(0) ? t.size() / t.extent(0) : 0;
    return t.slice(s.begin * width, t.shape().with(0, s.count));
}

/// Samples s of a batch.
inline batch samples_of(const batch& b, range s) {
    batch part;
    part.x = samples_of(b.x, s);
    part.labels = samples_of(b.labels, s);
    part.targets = samples_of(b.targets, s);
    part.at = b.at;
    part.count = s.count;
    part.global_count = b.global_count;
    part.first_sample = b.first_sample + s.begin;
    return part;
}
template <Device D>
samples<D> samples_of(const samples<D>& all, range s) {
    return {samples_of(all.x, s), samples_of(all.labels, s), samples_of(all.targets, s)};
}
template <Device D>
device_batch<D> samples_of(const device_batch<D>& b, range s) {
    return {samples_of(b.host, s), samples_of(b.there, s)};
}
/// The first one of every `stride` samples' worth: ⌈count / stride⌉ samples.
template <Device D>
device_batch<D> first_of(const device_batch<D>& b, index_t stride) {
    return samples_of(b, {0, (b.host.count + stride - 1) / stride});
}

/// See the top of the file. None is empty: a batch of fewer samples than micro-batches has as many as samples.
template <Device D = cpu>
class micro_batches {
public:
    micro_batches(const device_batch<D>& b, index_t n = 1)
        : whole_(samples_of(b, {0, b.host.count})),
          count_(b.host.count),
          first_sample_(b.host.first_sample),
          global_count_(b.host.global_count) {
        require(n >= 1, "trainer: ", n, " micro-batches a step");
        const int pieces = static_cast<int>(std::min(n, count_));
        for (int m = 0; m < pieces; ++m) pieces_.push_back(samples_of(b, shard_of(count_, pieces, m)));
    }
    /// Of a batch on the host.
    micro_batches(const batch& b, index_t n = 1)
        : micro_batches(device_batch<D>(samples_of(b, range{0, b.count})), n) {}

    int size() const { return static_cast<int>(pieces_.size()); }
    /// Of each.
    std::vector<index_t> samples() const {
        std::vector<index_t> all;
        for (const auto& piece : pieces_) all.push_back(piece.host.count);
        return all;
    }
    const device_batch<D>& operator[](int m) const { return pieces_[static_cast<std::size_t>(m)]; }
    /// All of them in one; also for a batch without micro-batches.
    const device_batch<D>& whole() const { return whole_; }

    /// Samples of this rank, samples of all ranks, and those of other ranks that come before this rank's.
    index_t count() const { return count_; }
    index_t global_count() const { return global_count_; }
    index_t first_sample() const { return first_sample_; }
    /// The share of `samples` samples in the batch of all ranks.
    double share(index_t samples) const { return static_cast<double>(samples) / static_cast<double>(global_count_); }

    /// Sets the position of this rank's samples among those of all ranks, if it differs from the loader's.
    void place(index_t first_sample, index_t global_count) {
        for (auto& piece : pieces_) piece.host.first_sample += first_sample - first_sample_;
        whole_.host.first_sample = first_sample;
        first_sample_ = first_sample;
        global_count_ = global_count;
    }

private:
    device_batch<D> whole_;
    std::vector<device_batch<D>> pieces_;
    index_t count_, first_sample_, global_count_;
};

}  // namespace cairn
