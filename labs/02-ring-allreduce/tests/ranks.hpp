#pragma once
// What the tests of this lab share: ranks as threads, arrays drawn from the seed, sums by plain loops.

#include "counted_ranks.hpp"
#include "lab.hpp"

#include <atomic>
#include <cstdio>
#include <exception>
#include <vector>

namespace lab {

/// What every rank starts with, what it had afterwards, and what it sent.
struct outcome {
    std::vector<std::vector<float>> before, after;  // [rank][element]
    std::vector<cairn::communication_counts> counts;

    /// Sums over the ranks, in double, and what each element may be off by.
    std::vector<double> sums() const {
        std::vector<double> all(before[0].size());
        for (const auto& one : before)
            for (std::size_t i = 0; i < one.size(); ++i) all[i] += static_cast<double>(one[i]);
        return all;
    }
    std::vector<double> bounds() const {
        std::vector<double> all(before[0].size());
        for (const auto& one : before)
            for (std::size_t i = 0; i < one.size(); ++i) all[i] += std::abs(static_cast<double>(one[i]));
        for (double& b : all) b = rounding_bound<float>(before.size(), b);
        return all;
    }
    /// Empty, or the first rank whose result is wrong and how.
    std::string fault() const {
        for (std::size_t r = 0; r < after.size(); ++r)
            if (const std::string why = difference(std::span<const float>(after[r]), sums(), bounds()); !why.empty())
                return "rank " + std::to_string(r) + " of " + std::to_string(after.size()) + ": " + why;
        return {};
    }
};

/// Runs reduce(communicator, span) on `ranks` ranks with `count` numbers each. What stops the first rank that fails is
/// also printed at once: it may be all that is known if another one never comes to an end.
template <class Reduce>
outcome run(int ranks, std::size_t count, std::uint32_t stream, Reduce&& reduce) {
    outcome all;
    const auto p = static_cast<std::size_t>(ranks);
    for (std::size_t r = 0; r < p; ++r) all.before.push_back(numbers(count, stream + static_cast<std::uint32_t>(r)));
    all.after = all.before;
    all.counts.resize(p);
    std::atomic<bool> told = false;
    doing(std::to_string(ranks) + " ranks, " + std::to_string(count) + " elements");
    // Every send waits for its receiver: who relies on a buffer fails with short arrays too.
    cairn::run_ranks(ranks, {.kernel_threads = 1, .mailbox_bytes = 0}, [&](cairn::threads_communicator& world) {
        const auto r = static_cast<std::size_t>(world.rank());
        counted c(world.split(0, world.rank()));
        try {
            rank_of_test mine(c);
            reduce(mine, std::span<float>(all.after[r]));
        } catch (const std::exception& error) {
            if (!told.exchange(true)) std::fprintf(stderr, "rank %d of %d: %s\n", world.rank(), ranks, error.what());
            throw;
        }
        all.counts[r] = c.counts();
    });
    return all;
}

}  // namespace lab
