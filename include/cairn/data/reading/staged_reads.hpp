#pragma once
// Before the first step the ranks of each node copy all samples to the node's disk, each rank its part in long
// requests; every epoch reads there. The disk must hold the whole data set.

#include <cairn/data/reading/sample_reading.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {

class staged_reads final : public sample_reading {
public:
    /// `local`: where the copy lies on the node's disk.
    staged_reads(record_file shared, std::filesystem::path local)
        : shared_(std::move(shared)), copy_{std::move(local), storage::local,  0,
                                            shared_.record(), shared_.count(), false} {}

    void start(const reading_ranks& ranks) override {
        sample_reading::start(ranks);
        constexpr index_t request = 4 << 20;  // bytes
        const index_t most = std::max<index_t>(1, request / shared_.record());
        const range mine = shard_of(samples(), ranks.ranks_of_node, ranks.rank_of_node);
        local_ = record_file::create(copy_, mine);
        std::vector<std::byte> room(on_phantom_rank() ? 0 : static_cast<std::size_t>(most * shared_.record()));
        // A phantom rank copies its part as 16 requests: thousands of events would tell no more.
        const index_t at_once = on_phantom_rank() ? std::max<index_t>(1, (mine.count + 15) / 16) : most;
        for (index_t at = mine.begin; at < mine.end(); at += at_once) {
            const range next{at, std::min(at_once, mine.end() - at)};
            const std::span<std::byte> bytes(
                room.data(), std::min(room.size(), static_cast<std::size_t>(next.count * shared_.record())));
            shared_.read(next, bytes);
            local_.write(next, bytes);
        }
    }
    void fetch(index_t sample, std::span<std::byte> to) override {
        (local_.count() > 0 ? local_ : shared_).read({sample, 1}, to);  // before start() there is no copy
    }

    index_t samples() const override { return shared_.count(); }
    index_t bytes_each() const override { return shared_.record(); }

private:
    record_file shared_, local_;
    record_file::config copy_;
};

}  // namespace cairn
