#pragma once
// A batch of samples, as loaders hand it out, and the memory that it comes in.

#include <cairn/core/tensor.hpp>
#include <cairn/data/dataset.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace cairn {

/// A position between batches: the next one is number `batch` of epoch `epoch`.
struct cursor {
    index_t epoch = 0;
    index_t batch = 0;
    bool operator==(const cursor&) const = default;
};

/// N samples. What the data set does not have is empty.
struct batch_tensors {
    tensor<float> x;              // (N, sample shape…); empty where there are pixels
    tensor<std::uint8_t> pixels;  // (N, H, W, C), of loader_config::pixels
    tensor<crop_flip> moves;      // (N), of pixels
    tensor<std::int32_t> labels;  // (N), of classes; (N, L) where a sample has L of them
    tensor<float> targets;        // (N, K), of values and answers; (N, L K) where a sample has L places

    batch_tensors share() const { return {x.share(), pixels.share(), moves.share(), labels.share(), targets.share()}; }
};

/// One batch. Destroy it, or let it go before the next call of next(), so that its buffers are used again.
struct batch : batch_tensors {
    cursor at;                         // its own position
    index_t count = 0;                 // N: samples of this rank
    index_t global_count = 0;          // samples of all ranks, before any was left out
    index_t first_sample = 0;          // of those, before the ones of this rank
    std::vector<index_t> samples;      // their numbers in the data set
    std::vector<std::string> skipped;  // names of the samples left out of this batch
};

/// Room for the samples of one batch, filled by several threads, a sample by one of them.
class batch_buffers {
public:
    /// For `room` samples of a data set. as_pixels: pixels and moves in place of inputs.
    batch_buffers(index_t room, const shape& sample, const target_info& info, bool as_pixels, memory_pool& pool) {
        shape inputs{room};
        for (const index_t extent : sample) inputs.push_back(extent);
        if (as_pixels) {
            all_.pixels = tensor<std::uint8_t>(inputs, memory_category::data, pool);
            all_.moves = tensor<crop_flip>({room}, memory_category::data, pool);
        } else {
            all_.x = tensor<float>(inputs, memory_category::data, pool);
        }
        if (info.kind != target_kind::classes)
            all_.targets = tensor<float>({room, info.values_each()}, memory_category::data, pool);
        else
            all_.labels = tensor<std::int32_t>(info.labels_each == 1 ? shape{room} : shape{room, info.labels_each},
                                               memory_category::data, pool);
    }

    bool taken = false;  // by the thread that fills it; otherwise free as soon as no batch shares it
    bool free() const {
        if (taken || !alone(all_.x) || !alone(all_.pixels) || !alone(all_.moves) || !alone(all_.labels) ||
            !alone(all_.targets))
            return false;
        // Reading a count orders nothing. Sharing and letting go does: what the last owner read comes before what
        // we write.
        static_cast<void>(all_.share());
        return true;
    }

    sample_slot inputs_of(index_t k) { return {at(all_.x, k), at(all_.labels, k), at(all_.targets, k)}; }
    pixel_slot pixels_of(index_t k) {
        return {at(all_.pixels, k), at(all_.moves, k), at(all_.labels, k), at(all_.targets, k)};
    }

    /// Sample `from` takes the place of sample `to`.
    void move(index_t from, index_t to) {
        const auto each = [&](auto& t) {
            if (!t.empty()) std::copy_n(at(t, from), t.size() / t.extent(0), at(t, to));
        };
        each(all_.x), each(all_.pixels), each(all_.moves), each(all_.labels), each(all_.targets);
    }

    /// The first `count` samples.
    batch_tensors first(index_t count) const {
        const auto of = [&](const auto& t) {
            if (t.empty()) return t.share();
            shape s{count};
            for (int k = 1; k < t.shape().rank(); ++k) s.push_back(t.extent(k));
            return t.slice(0, s);
        };
        return {of(all_.x), of(all_.pixels), of(all_.moves), of(all_.labels), of(all_.targets)};
    }

private:
    template <class T>
    static bool alone(const tensor<T>& t) {
        return t.empty() || t.unique();
    }
    template <class T>
    static T* at(tensor<T>& t, index_t k) {
        return t.empty() ? nullptr : t.data() + k * (t.size() / t.extent(0));
    }

    batch_tensors all_;
};

}  // namespace cairn
