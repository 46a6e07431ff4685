#pragma once
// The common decision of all ranks once a step: the loss of the whole batch, requests to stop, and non-finite
// gradients. Either all ranks take the step or none does.
//   totals = agree.on({.loss = mean loss · samples, .samples = samples}, reason);       one all-reduce of five numbers
// The error of a step that cannot be taken is the same on every rank: it names the rank and the parameter at fault.
// Detection of a gradient that is not finite:
//   one rank, float        the optimizer, by the norm of the gradients (optim/optimizer.hpp), before it updates
//   one rank, float16      the loss scale's division counts them (train/loss_scaler.hpp)
//   several, on the host   gradient_sync, in each bucket before it is summed; with a compressor in the sums too
//   several, on devices    gradient_sync, in the sums; with a compressor in each bucket before too

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Sums over the ranks, once a step.
struct step_totals {
    double loss = 0;  // mean loss of this rank · its samples; over all ranks, divided by `samples`: the batch's loss
    double samples = 0;
    double stop = 0;   // ranks that were asked to stop
    double votes = 0;  // on the run's state, see state/version_votes.hpp
    double skip = 0;   // ranks that found a gradient which is not finite
};

/// Response of all ranks to a gradient that is not finite.
enum class non_finite_policy { stop, skip };

/// Prefix of reasons that were found in a sum over the ranks: they do not identify the rank at fault.
inline constexpr const char* found_in_sum = "the ranks' sum of the ";

/// Collective. Position of this rank's `count` samples among those of all ranks: the number before them, and the total.
template <Communicator C>
std::pair<index_t, index_t> place_of(C& ranks, index_t count) {
    std::vector<double> counts(static_cast<std::size_t>(ranks.size()));
    const auto mine = counts.begin() + ranks.rank();
    *mine = static_cast<double>(count);
    all_gather(ranks, std::span<double>(counts), shards_of(ranks.size(), ranks.size()), "places in the batch");
    return {static_cast<index_t>(std::accumulate(counts.begin(), mine, 0.0)),
            static_cast<index_t>(std::accumulate(counts.begin(), counts.end(), 0.0))};
}

/// See the top of the file. Every member is collective.
template <Communicator C>
class agreement {
public:
    struct config {
        non_finite_policy non_finite = non_finite_policy::stop;
        std::string advice = "Lower the learning rate, warm up, or clip";  // end of the error message
    };

    /// `ranks` must outlive this.
    agreement(C& ranks, config c) : ranks_(ranks), config_(std::move(c)) {}
    explicit agreement(C& ranks) : agreement(ranks, config{}) {}

    bool may_skip() const { return config_.non_finite == non_finite_policy::skip; }

    /// The sums over the ranks. `reason`: why this rank cannot take the step, else empty.
    step_totals on(const step_totals& mine, std::string reason = {}) {
        reason_ = std::move(reason);
        std::array<double, 5> sums{mine.loss, mine.samples, mine.stop, mine.votes, reason_.empty() ? 0.0 : 1.0};
        all_reduce(ranks_, std::span<double>(sums), {.label = "agreement"});
        return {sums[0], sums[1], sums[2], sums[3], sums[4]};
    }

    /// Throws under the policy `stop` if some rank cannot take step number `step`.
    void require_finite(const step_totals& all, std::int64_t step) {
        if (all.skip > 0 && !may_skip()) throw_non_finite(step, config_.advice);
    }

    /// Throws on every rank, naming parameter, rank and step, after an on() that said skip.
    [[noreturn]] void throw_non_finite(std::int64_t step, const std::string& advice) {
        // Every rank contributes its reason; all throw the same error.
        const std::vector<std::string> reasons = all_gather_text(ranks_, reason_);
        const auto is_own = [](const std::string& why) { return !why.empty() && !why.starts_with(found_in_sum); };
        const bool any_own = std::ranges::any_of(reasons, is_own);  // a sum tells nothing of the rank that spoilt it
        for (int r = 0; r < ranks_.size(); ++r)
            if (const std::string& why = reasons[static_cast<std::size_t>(r)]; any_own ? is_own(why) : !why.empty())
                fail_divergence("step ", step, ": rank ", r, " of ", ranks_.size(), ": ", why,
                                "; no rank took the step. ", advice);
        fail_divergence("step ", step, ": a gradient is not finite. ", advice);
    }

private:
    C& ranks_;
    config config_;
    std::string reason_;  // this rank's, of the last step
};

}  // namespace cairn
