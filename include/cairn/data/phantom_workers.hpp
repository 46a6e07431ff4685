#pragma once
// A loader's workers on a phantom rank: helpers of its machine, which take the time of reading and decoding batches
// ahead of the rank, and deliver nothing.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/data/reading/sample_reading.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace cairn {

/// Takes the time of reading and decoding a sample: a kernel "decode" of the bytes as they are stored.
inline void pass_reading(sample_reading& reading, index_t sample) {
    reading.fetch(sample, {});
    const kernel_call call("decode", "bytes", 0, static_cast<double>(reading.bytes_each()));
}

/// See the top of the file.
class phantom_workers {
public:
    explicit phantom_workers(int count) {
        for (int w = 0; w < count; ++w) queues_.push_back(phantom_here->start_queue());
        submitted_.resize(queues_.size());
    }

    /// Begins to read a batch, `piece` samples at a time, the workers in turn.
    void begin(const std::shared_ptr<sample_reading>& reading, const std::vector<index_t>& samples, index_t piece) {
        for (std::size_t at = 0; at < samples.size(); at += static_cast<std::size_t>(piece)) {
            const std::size_t end = std::min(samples.size(), at + static_cast<std::size_t>(piece));
            std::vector<index_t> of_piece(samples.begin() + static_cast<std::ptrdiff_t>(at),
                                          samples.begin() + static_cast<std::ptrdiff_t>(end));
            queues_[next_]->submit([reading, mine = std::move(of_piece)] {
                for (const index_t sample : mine) pass_reading(*reading, sample);
            });
            ++submitted_[next_];
            next_ = (next_ + 1) % queues_.size();
        }
        batches_.push_back(submitted_);
    }
    index_t begun() const { return static_cast<index_t>(batches_.size()); }

    /// Waits until the oldest batch that was begun is read.
    void finish() {
        for (std::size_t w = 0; w < queues_.size(); ++w) queues_[w]->wait_for_first(batches_.front()[w]);
        batches_.pop_front();
    }

private:
    std::vector<std::unique_ptr<job_queue>> queues_;
    std::size_t next_ = 0;                          // worker
    std::vector<std::size_t> submitted_;            // to each worker
    std::deque<std::vector<std::size_t>> batches_;  // the same, up to the end of each batch
};

}  // namespace cairn
