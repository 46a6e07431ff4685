#pragma once
// A rank reads runs of samples of its own (data/reading/window_order.hpp), each in one request, and keeps those in
// memory that the window of the order is in. The first `kept` part of its runs it also writes to its node's disk, when
// it reads them first, and reads them there from then on: each epoch takes the rest from the shared file system.

#include <cairn/data/reading/sample_reading.hpp>
#include <cairn/data/reading/window_order.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn {

class windowed_reads final : public sample_reading {
public:
    /// `local`: a file on the node's disk for the runs of this node's ranks; `kept`: their part of all runs, 0 to 1.
    windowed_reads(record_file shared, std::filesystem::path local, window_config window, double kept)
        : shared_(std::move(shared)), window_(window), kept_(kept), copy_{std::move(local), storage::local,  0,
                                                                          shared_.record(), shared_.count(), false} {}

    void start(const reading_ranks& ranks) override {
        sample_reading::start(ranks);
        const auto all = runs_of_ranks(samples(), ranks.batch, ranks.world, ranks.seed, window_.run);
        const std::vector<range>& mine = all[static_cast<std::size_t>(ranks.rank)];
        const auto stay = static_cast<std::size_t>(kept_ * static_cast<double>(mine.size()) + 0.5);
        index_t samples_kept = 0;
        runs_.clear();
        for (std::size_t k = 0; k < mine.size(); ++k) {
            runs_[mine[k].begin] = {mine[k], k < stay, samples_kept};
            if (k < stay) samples_kept += mine[k].count;
        }
        copy_.path += concat('.', ranks.rank);
        copy_.count = samples_kept;
        if (stay > 0) local_ = record_file::create(copy_, {0, samples_kept});
    }

    sample_order order(index_t epoch) const override {
        static kept_once<std::tuple<index_t, index_t, int, std::uint64_t, index_t, index_t, index_t>,
                         std::vector<index_t>>
            of_ranks;
        const reading_ranks& r = ranks_;
        return of_ranks.get({samples(), r.batch, r.world, r.seed, epoch, window_.run, window_.window},
                            [&] { return window_order(samples(), r.batch, r.world, r.seed, epoch, window_); });
    }

    void fetch(index_t sample, std::span<std::byte> to) override {
        if (runs_.empty()) return shared_.read({sample, 1}, to);  // before start()
        const std::shared_ptr<block> held = hold(std::prev(runs_.upper_bound(sample))->second);
        held->fill(*this);
        if (on_phantom_rank()) return;
        const auto from = static_cast<std::size_t>((sample - held->of->samples.begin) * bytes_each());
        std::copy_n(held->bytes.begin() + static_cast<std::ptrdiff_t>(from), to.size(), to.begin());
    }

    index_t samples() const override { return shared_.count(); }
    index_t bytes_each() const override { return shared_.record(); }

private:
    struct run {
        range samples;
        bool stays = false;     // on the node's disk
        index_t local = 0;      // its first record there
        bool is_local = false;  // by now
    };

    // A run in memory.
    struct block {
        explicit block(run& r) : of(&r) {}

        // Once; who comes meanwhile waits, but on a phantom rank, where nothing may wait for a mutex.
        void fill(windowed_reads& reads) {
            if (!on_phantom_rank()) return std::call_once(filled, [&] { reads.read(*this); });
            if (!std::exchange(begun, true)) reads.read(*this);
        }

        run* of;
        std::vector<std::byte> bytes;
        std::once_flag filled;
        bool begun = false;
    };

    // Two windows of runs, as workers may be in both.
    std::shared_ptr<block> hold(run& wanted) {
        const std::scoped_lock lock(mutex_);
        const auto found = std::ranges::find(blocks_, &wanted, [](const auto& b) { return b->of; });
        if (found != blocks_.end()) return *found;
        if (static_cast<index_t>(blocks_.size()) >= 2 * window_.window) blocks_.pop_front();
        return blocks_.emplace_back(std::make_shared<block>(wanted));
    }

    void read(block& b) {
        run& r = *b.of;
        if (!on_phantom_rank()) b.bytes.resize(static_cast<std::size_t>(r.samples.count * bytes_each()));
        const range on_disk{r.local, r.samples.count};
        if (is_local(r)) return local_.read(on_disk, b.bytes);
        shared_.read(r.samples, b.bytes);
        if (!r.stays) return;
        local_.write(on_disk, b.bytes);
        const std::scoped_lock lock(mutex_);
        r.is_local = true;
    }
    bool is_local(const run& r) {
        const std::scoped_lock lock(mutex_);
        return r.is_local;
    }

    record_file shared_, local_;
    window_config window_;
    double kept_;
    record_file::config copy_;
    std::map<index_t, run> runs_;  // of this rank, by their first samples
    std::mutex mutex_;
    std::deque<std::shared_ptr<block>> blocks_;  // the oldest first
};

}  // namespace cairn
