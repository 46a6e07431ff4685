#pragma once
// How samples come from storage to the ranks: in which order an epoch takes them, and where the bytes of each are read.
// A strategy is one text for real ranks, whose files data/record_file.hpp opens, and for simulated ones:
//   shared_reads      every rank reads the samples of a global shuffle from the shared file system
//   staged_reads      the ranks of a node first copy all samples to its disk, and read there
//   windowed_reads    a rank reads runs of samples of its own, in one request each, and shuffles within a window of
//                     them; a share of its runs stays on the node's disk

#include <cairn/data/record_file.hpp>
#include <cairn/data/shuffle.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cairn {

/// Who reads: one of the ranks that share every batch.
struct reading_ranks {
    index_t batch = 1;  // samples a step, of all ranks together
    int rank = 0, world = 1;
    std::uint64_t seed = 0;                   // of the orders
    int rank_of_node = 0, ranks_of_node = 1;  // that share a disk; those that have the same samples, too
};

/// See the top of the file.
class sample_reading {
public:
    using sample_order = std::shared_ptr<const std::vector<index_t>>;

    virtual ~sample_reading() = default;
    /// On all ranks, before anything else; after it the ranks of a node wait for each other. Throws where a disk is
    /// full.
    virtual void start(const reading_ranks& ranks) { ranks_ = ranks; }
    /// All samples, as an epoch of all ranks takes them: a batch is the next `batch` of them, and rank r's are its r-th
    /// part (data/batch_order.hpp).
    virtual sample_order order(index_t epoch) const { return kept_epoch_order(samples(), ranks_.seed, epoch); }
    /// The bytes of a sample, which order() gives this rank; from any thread. On a phantom rank `to` may be empty.
    virtual void fetch(index_t sample, std::span<std::byte> to) = 0;

    virtual index_t samples() const = 0;
    virtual index_t bytes_each() const = 0;

protected:
    reading_ranks ranks_;
};

}  // namespace cairn
