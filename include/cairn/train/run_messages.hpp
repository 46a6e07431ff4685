#pragma once
// Messages between the ranks of a training run besides gradients: scores, kernel choices, traces. All collective.

#include <cairn/comm/any.hpp>
#include <cairn/comm/clock_difference.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/objectives/objective.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace cairn {

/// Rank 0's number.
inline double broadcast_from_root(any_communicator& c, double value) {
    broadcast(c, std::span<double>(&value, 1), 0);
    return value;
}

/// Every rank adopts the kernels that rank `root` chose.
inline void share_autotune(any_communicator& c, int root = 0) {
    std::ostringstream mine;
    autotune_cache& all_choices = autotune_cache::global();
    for (const auto& [key, entry] : all_choices.entries())
        mine << key << '\t' << all_choices.is_in_use(key) << '\t' << entry.choice << '\n';
    std::istringstream all(broadcast_text(c, mine.str(), root));
    if (c.rank() == root) return;
    for (std::string key, used, choice;
         std::getline(all, key, '\t') && std::getline(all, used, '\t') && std::getline(all, choice);) {
        all_choices.set(key, {choice, {}});
        if (used == "1") all_choices.use(key);
    }
}

namespace detail {

/// The values of all ranks, one rank's behind another's.
inline std::vector<double> joined(any_communicator& c, const std::vector<double>& mine) {
    std::vector<double> counts(static_cast<std::size_t>(c.size()));
    counts[static_cast<std::size_t>(c.rank())] = static_cast<double>(mine.size());
    all_reduce(c, std::span<double>(counts));
    std::size_t total = 0, before = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
        if (static_cast<int>(r) < c.rank()) before += static_cast<std::size_t>(counts[r]);
        total += static_cast<std::size_t>(counts[r]);
    }
    std::vector<double> all(total);
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(before));
    all_reduce(c, std::span<double>(all));
    return all;
}

}  // namespace detail

/// The evaluation of all ranks' samples together.
inline void add_over_ranks(any_communicator& c, evaluation& e) {
    std::vector<double> all{static_cast<double>(e.count), e.loss_sum};
    for (const auto& [name, sums] : e.sums) all.insert(all.end(), sums.begin(), sums.end());
    all_reduce(c, std::span<double>(all));
    e.count = static_cast<index_t>(all[0]);
    e.loss_sum = all[1];
    auto next = all.begin() + 2;
    for (auto& [name, sums] : e.sums)
        for (double& sum : sums) sum = *next++;
    for (auto* lists : {&e.truth, &e.predicted})
        for (auto& list : *lists) list = detail::joined(c, list);
}

/// Every rank's events, as trace::events_json gives them, at times of rank 0's clock. Simulated ranks have one clock.
inline std::vector<std::string> traces_of_all_ranks(any_communicator& c) {
    const double later = on_phantom_rank() ? 0 : clock_difference_to_root(c).seconds;
    [[maybe_unused]] const auto why = because(c, "traces");
    return all_gather_text(c, trace::global().events_json(c.rank(), later));
}

/// One file of them that Perfetto opens; a rank is a process there.
inline std::string joined_traces(const std::vector<std::string>& ranks) {
    std::string all;
    for (const std::string& events : ranks) all += (all.empty() || events.empty() ? "" : ",") + events;
    return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" + all + "\n]}\n";
}

}  // namespace cairn
