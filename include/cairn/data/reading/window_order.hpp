#pragma once
// An order of samples that is read in long runs: CorgiPile's two shuffles (Xu et al., SIGMOD 2022), for ranks of which
// each keeps to runs of its own, so that its disk can hold some of them (as NoPFS places samples, Dryden et al. 2021).
//   the data set is cut into runs of samples that lie side by side; a fixed random order of them is dealt to the ranks
//   epoch:  a rank takes its runs in a new order, and shuffles the samples of every `window` runs among themselves
// Every sample comes once an epoch; a rank meets the same samples in all of them. Where storage order says something
// (images sorted by class), a window should hold many runs.

#include <cairn/core/range.hpp>
#include <cairn/data/shuffle.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cairn {

struct window_config {
    index_t run = 64;     // samples that are read in one request
    index_t window = 16;  // runs whose samples are shuffled together
};

/// Samples that a rank gets of an epoch with batches of `batch` (data/batch_order.hpp).
inline index_t samples_of_rank(index_t samples, index_t batch, int world, int rank) {
    return samples / batch * shard_of(batch, world, rank).count + shard_of(samples % batch, world, rank).count;
}

/// The runs of each rank, the same in every epoch: a run that two ranks share is cut.
inline std::vector<std::vector<range>> runs_of_ranks(index_t samples, index_t batch, int world, std::uint64_t seed,
                                                     index_t run) {
    std::vector<std::vector<range>> all(static_cast<std::size_t>(world));
    std::size_t rank = 0;
    index_t room = samples_of_rank(samples, batch, world, 0);
    for (const index_t which : random_order((samples + run - 1) / run, {seed, stream_of("runs of ranks"), 0})) {
        range left{which * run, std::min(run, samples - which * run)};
        while (left.count > 0) {
            while (room == 0) room = samples_of_rank(samples, batch, world, static_cast<int>(++rank));
            const index_t taken = std::min(room, left.count);
            all[rank].push_back({left.begin, taken});
            left = {left.begin + taken, left.count - taken};
            room -= taken;
        }
    }
    return all;
}

/// The order of an epoch of all ranks, as batches take it.
inline std::vector<index_t> window_order(index_t samples, index_t batch, int world, std::uint64_t seed, index_t epoch,
                                         const window_config& c) {
    const auto step = static_cast<std::uint32_t>(epoch);
    const std::vector<std::vector<range>> runs = runs_of_ranks(samples, batch, world, seed, c.run);
    std::vector<std::vector<index_t>> of_rank(runs.size());
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const std::uint64_t own = seed + 0x9E3779B97F4A7C15u * (r + 1);  // another order on each rank
        const std::vector<index_t> sequence =
            random_order(static_cast<index_t>(runs[r].size()), {own, stream_of("runs"), step});
        std::vector<index_t>& order = of_rank[r];
        for (std::size_t first = 0; first < sequence.size(); first += static_cast<std::size_t>(c.window)) {
            std::vector<index_t> together;
            for (std::size_t k = first; k < std::min(sequence.size(), first + static_cast<std::size_t>(c.window));
                 ++k) {
                const range taken = runs[r][static_cast<std::size_t>(sequence[k])];
                for (index_t s = taken.begin; s < taken.end(); ++s) together.push_back(s);
            }
            const std::uint64_t of_window = own + first;
            for (const index_t at :
                 random_order(static_cast<index_t>(together.size()), {of_window, stream_of("window"), step}))
                order.push_back(together[static_cast<std::size_t>(at)]);
        }
    }
    std::vector<index_t> all;
    all.reserve(static_cast<std::size_t>(samples));
    std::vector<std::size_t> next(runs.size());
    for (index_t begin = 0; begin < samples; begin += batch)
        for (std::size_t r = 0; r < runs.size(); ++r)
            for (index_t k = shard_of(std::min(batch, samples - begin), world, static_cast<int>(r)).count; k > 0; --k)
                all.push_back(of_rank[r][next[r]++]);
    return all;
}

}  // namespace cairn
