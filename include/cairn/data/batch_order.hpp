#pragma once
// Which samples make each batch, and which of them are a rank's.
//   order of epoch e = epoch_order(seed, e), or that of the data set
//   batch b of all ranks together = order[b·B … (b+1)·B), of which rank r takes the r-th part: parts differ by at most
//   one, in a short last batch too
// As a stream the batch is B rows, which run through the samples side by side: row k begins where the k-th of B parts
// of the samples does, and batch b has its b-th. A rank keeps its rows; in a short last batch the first rows go on.

#include <cairn/core/error.hpp>
#include <cairn/core/range.hpp>
#include <cairn/data/batch.hpp>
#include <cairn/data/reading/sample_reading.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace cairn {

class batch_order {
public:
    struct config {
        index_t batch = 32;  // B
        bool shuffle = true;
        bool drop_last = false;  // leave out the last batch of an epoch if it is short
        bool stream = false;     // each row of the batch goes through a part of the samples; no shuffle
        std::uint64_t seed = 0;
        int rank = 0, world = 1;
        std::shared_ptr<const sample_reading> reading = nullptr;  // whose order it is; null: a shuffle's
    };

    /// Throws on a batch larger than the data and on other impossible numbers.
    batch_order(index_t samples, config c) : n_(samples), config_(std::move(c)) {
        require(config_.batch >= 1, "loader: batch size ", config_.batch, "; at least 1 is needed");
        require(config_.world >= 1 && config_.rank >= 0 && config_.rank < config_.world, "loader: rank ", config_.rank,
                " of ", config_.world);
        require(n_ > 0, "loader: the data set is empty");
        require(config_.batch <= n_, "loader: a batch of ", config_.batch, " samples is larger than the data set of ",
                n_, "; use a batch of at most ", n_);
        require(config_.batch >= config_.world, "loader: a batch of ", config_.batch, " samples on ", config_.world,
                " ranks leaves some without a sample; use a batch of at least ", config_.world);
        require(!config_.reading || config_.reading->samples() == n_, "loader: ", n_, " samples, of which ",
                config_.reading ? config_.reading->samples() : 0,
                " are read: data.train_samples and data.validation cannot take a part of them");
        batches_ = config_.drop_last ? n_ / config_.batch : (n_ + config_.batch - 1) / config_.batch;
    }

    /// Of an epoch.
    index_t batches() const { return batches_; }
    index_t samples() const { return config_.drop_last ? batches_ * config_.batch : n_; }
    /// The largest part of a batch that a rank gets.
    index_t most() const { return (config_.batch + config_.world - 1) / config_.world; }

    /// The position after `at`, which begins an epoch rather than ending one.
    cursor after(cursor at) const {
        return at.batch + 1 < batches_ ? cursor{at.epoch, at.batch + 1} : cursor{at.epoch + 1, 0};
    }

    struct part {
        std::vector<index_t> samples;  // of this rank
        index_t global_count = 0;      // samples of all ranks
        index_t first_sample = 0;      // of those, before the ones of this rank
    };
    part operator()(cursor at) {
        const index_t begin = at.batch * config_.batch, count = std::min(config_.batch, n_ - begin);
        if (config_.stream) return of_rows(at.batch, count);
        const index_t share = count / config_.world, extra = count % config_.world, rank = config_.rank;
        const index_t first = rank * share + std::min(rank, extra), mine = share + (rank < extra ? 1 : 0);
        std::vector<index_t> samples(static_cast<std::size_t>(mine));
        if (config_.shuffle)
            std::copy_n(of_epoch(at.epoch).begin() + begin + first, mine, samples.begin());
        else
            std::iota(samples.begin(), samples.end(), begin + first);
        return {std::move(samples), count, first};
    }

    /// Forgets the orders of epochs.
    void clear() { orders_.clear(); }

private:
    // Of a stream, of which `count` rows go on. The first parts of the samples are the longer ones.
    part of_rows(index_t batch, index_t count) const {
        const range rows = shard_of(config_.batch, config_.world, config_.rank);
        part p{{}, count, rows.begin};
        for (index_t row = rows.begin; row < std::min(rows.end(), count); ++row)
            p.samples.push_back(shard_of(n_, static_cast<int>(config_.batch), static_cast<int>(row)).begin + batch);
        return p;
    }

    // Of the two epochs that workers may be in.
    const std::vector<index_t>& of_epoch(index_t epoch) {
        for (const auto& [e, order] : orders_)
            if (e == epoch) return *order;
        if (orders_.size() == 2) orders_.pop_front();
        orders_.emplace_back(
            epoch, config_.reading ? config_.reading->order(epoch) : kept_epoch_order(n_, config_.seed, epoch));
        return *orders_.back().second;
    }

    index_t n_;
    config config_;
    index_t batches_ = 0;
    std::deque<std::pair<index_t, std::shared_ptr<const std::vector<index_t>>>> orders_;
};

}  // namespace cairn
