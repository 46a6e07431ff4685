#pragma once
// Decides for each bucket whether it is sent dense or compressed, by which compressor and which all-reduce algorithm.
// Compression rarely pays on fast links (Agarwal et al., MLSys 2022: in 6 of more than 200 set-ups), so it must show
// that it does.
//
//   measure   the times of buckets and steps, and predict the step of any plan: bucket_time_model.hpp
//   decide    the best plan, bucket by bucket until nothing improves. It replaces the plan in use only if it is
//             predicted to be shorter by `margin`, `patience` times in a row.
//   try       what no model knows (compute that communication slows down, cores that several hosts share) only a
//             measured step tells: after `baseline`, and every `trial_interval` steps, each compressor that could
//             shorten the step by `margin` if communication were all that slows backward down takes all buckets for
//             `trial_steps` steps. The shortest step wins.
//   check     measured steps of a plan that compresses are compared with measured dense ones: if they are longer,
//             beyond `noise`, dense is measured again, and if that confirms it, it is dense for `pause` steps (twice as
//             many each time)
//   probe     a few dense steps now and then keep that comparison fresh
//
// What it costs: probes take at most `probe_budget` of the time (they are rarer where dense is much slower); a round of
// trials 1 + `trial_steps` steps a compressor, two of one that is clearly slower; a wrong choice is seen after `trial`
// + `probe_steps` steps, after which come at least `pause` dense ones. A step is dense until `baseline` is over, or two
// steps where compression is `obvious`.
//
// Plain data in and out, no communicator, no clock. All ranks decide alike if they are given the same numbers: reduce
// step_measurement::flat() over the ranks first, see parallel/autotuned_reduction.hpp. Before a dense step residuals
// can be added: flush_residual.

#include <cairn/compress/bucket_time_model.hpp>
#include <cairn/compress/reduction_option.hpp>
#include <cairn/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

class compression_autotuner {
public:
    struct config {
        double smoothing = 0.2;      // weight of a new measurement
        double margin = 0.05;        // a new plan must be shorter by this share of the step
        double noise = 0.02;         // measured steps that differ by less are equal
        int baseline = 5;            // dense steps at the start
        int patience = 3;            // decisions in a row that must agree before the plan changes
        double obvious = 3;          // where dense should take this many times as long: 2 dense steps and 1 decision
        int trial = 5;               // steps of a plan before it is compared with dense
        int trial_steps = 2;         // measured steps of a compressor that is tried
        int trial_interval = 2000;   // steps between rounds of trials
        int probe_steps = 2;         // dense steps of a probe
        int probe_interval = 50;     // fewest steps between probes
        double probe_budget = 0.01;  // share of the time that probes may take
        int forget = 1000;  // steps in which half of what is known of an unused compressor's times is forgotten
        int pause = 200;    // dense steps after a plan that failed; doubles with each
    };
    using plan_type = bucket_time_model::plan_type;

    /// options[b]: what bucket b may do, in the order in which buckets are sent; one must be dense.
    compression_autotuner(config c, std::vector<std::vector<reduction_option>> options)
        : config_(c), times_(std::move(options), c.smoothing, c.forget) {
        require(c.smoothing > 0 && c.smoothing <= 1 && c.margin >= 0 && c.noise >= 0 && c.baseline >= 1 &&
                    c.patience >= 1 && c.obvious > 1 && c.trial >= 1 && c.probe_steps >= 1 && c.probe_interval >= 1 &&
                    c.probe_budget > 0 && c.forget >= 1 && c.pause >= 1 && c.trial_steps >= 1 && c.trial_interval >= 1,
                "compression autotuner: a setting is out of range");
        plan_ = times_.best_dense();
        current_ = plan_;
    }

    /// Decision for the next step.
    const plan_type& plan() const { return plan_; }
    const reduction_option& chosen(std::size_t bucket) const { return times_.options()[bucket][plan_[bucket]]; }
    bool compresses() const { return compresses(current_); }
    bool probing() const { return probe_left_ > 0; }

    /// Measured times of buckets and of steps.
    const bucket_time_model& times() const { return times_; }

    /// Takes the measurement of a step that followed plan(), equal on all ranks, and decides on the next one.
    void observe(const step_measurement& m) {
        require(m.buckets.size() == times_.options().size(), "compression autotuner: measurements of ",
                m.buckets.size(), " buckets, expected ", times_.options().size());
        if (settling_) {  // the first step of a plan allocates what it needs, and says nothing about the next
            settling_ = false;
        } else {
            times_.learn(m, plan_);
            track(m.seconds, !compresses(plan_));
        }
        ++since_probe_;
        ++steps_;
        if (pause_left_ > 0) --pause_left_;
        if (probe_left_ > 0 && --probe_left_ == 0) finish_probe();
        if (!trials_.empty()) {
            continue_trials();
        } else if (steps_ >= std::min(config_.baseline, obvious_steps) && probe_left_ == 0) {
            if (trials_are_due()) start_trials();
            if (trials_.empty()) decide();
            if (trials_.empty() && compresses(current_) && probe_is_due()) start_probe();
        }
        plan_ = probe_left_ > 0 ? times_.best_dense() : trials_.empty() ? current_ : trials_.back();
    }

private:
    static constexpr int obvious_steps = 2;         // dense steps where compression is obvious
    static constexpr double clearly_slower = 1.15;  // one step is enough to see it

    bool compresses(const plan_type& plan) const { return times_.compresses(plan); }
    double estimate(const plan_type& plan) const { return times_.estimate(plan, current_); }

    void track(double seconds, bool was_dense) {
        if (!trials_.empty()) return trial_seconds_.add(seconds, trial_seconds_.even_weight());
        exponential_average& kind = was_dense ? dense_seconds_ : plan_seconds_;
        if (was_dense && probing() && probe_left_ == config_.probe_steps) kind.restart();
        kind.add(seconds, probing() ? kind.even_weight() : config_.smoothing);
    }

    const exponential_average& measured() const { return compresses(current_) ? plan_seconds_ : dense_seconds_; }

    // ------------------------------------------------------------------------------------------------------- try
    bool trials_are_due() const {
        return pause_left_ == 0 && steps_ >= next_round_ && measured().samples >= config_.baseline - 1;
    }

    /// Each compressor for all buckets, the most promising one last in the row: it is the next.
    void start_trials() {
        next_round_ = steps_ + config_.trial_interval;
        const auto& options = times_.options();
        std::map<std::string, plan_type> plans;
        for (std::size_t b = 0; b < options.size(); ++b)
            for (std::size_t o = 0; o < options[b].size(); ++o)
                if (!options[b][o].dense()) {
                    plan_type& plan = plans.emplace(options[b][o].compressor, times_.best_dense()).first->second;
                    const bool first = options[b][plan[b]].compressor != options[b][o].compressor;
                    if (first || times_.expected(b, o).communication < times_.expected(b, plan[b]).communication)
                        plan[b] = o;
                }
        for (const auto& [name, plan] : plans)
            if (plan != current_ && times_.bound(plan) < (1 - config_.margin) * measured().value)
                trials_.push_back(plan);
        std::ranges::sort(trials_, std::greater<>{}, [this](const plan_type& plan) { return times_.likely(plan); });
        winner_ = current_;
        shortest_ = (1 - config_.margin) * measured().value;
        settling_ = !trials_.empty();
    }

    void continue_trials() {
        if (trial_seconds_.samples == 0) return;  // that was its first step
        const double seconds = trial_seconds_.value;
        if (trial_seconds_.samples < config_.trial_steps && seconds < clearly_slower * shortest_) return;
        if (seconds < shortest_) {
            shortest_ = seconds;
            winner_ = plan_;
        }
        trial_seconds_.restart();
        do trials_.pop_back();
        while (!trials_.empty() && times_.bound(trials_.back()) > shortest_);
        settling_ = true;
        if (!trials_.empty()) return;
        if (winner_ != current_) change_to(winner_);
        since_probe_ = 0;
    }

    // ---------------------------------------------------------------------------------------------------- decide
    void decide() {
        const plan_type dense = times_.best_dense();
        const double dense_estimate = estimate(dense), current_estimate = estimate(current_);
        plan_type wanted = dense;
        if (pause_left_ == 0) {
            const plan_type a = times_.improved(dense), b = times_.improved(current_);
            const plan_type& best = estimate(b) < estimate(a) ? b : a;
            if (estimate(best) < (1 - config_.margin) * dense_estimate) wanted = best;
        }
        const bool obvious = is_obvious(wanted);
        if (steps_ < config_.baseline && !obvious) return;
        // Back to dense needs no margin; anything else must be worth the change.
        const double allowed = compresses(wanted) ? (1 - config_.margin) * current_estimate : current_estimate;
        if (wanted == current_ || !(estimate(wanted) < allowed)) {
            votes_ = 0;
        } else if (++votes_ >= (obvious ? 1 : config_.patience)) {
            change_to(wanted);
        }
        if (compresses(current_) && plan_seconds_.samples >= config_.trial && slower_than_dense() &&
            since_probe_ >= config_.trial)
            start_probe();  // dense may have become slower too: look before judging
    }

    // On links this slow each dense step costs many others. The check finds out if it was wrong.
    bool is_obvious(const plan_type& plan) const {
        return compresses(plan) && !compresses(current_) &&
               config_.obvious * times_.predict(plan).seconds < times_.predict_dense().seconds;
    }

    void change_to(const plan_type& plan) {
        current_ = plan;
        votes_ = 0;
        settling_ = true;
        plan_seconds_.restart();
    }

    // ------------------------------------------------------------------------------------------------- check, probe
    bool slower_than_dense() const { return plan_seconds_.value > (1 + config_.noise) * dense_seconds_.value; }

    bool probe_is_due() const {
        if (plan_seconds_.samples < config_.trial) return false;
        const double extra = config_.probe_steps * std::max(0.0, dense_seconds_.value - plan_seconds_.value);
        return static_cast<double>(since_probe_) >= std::max(static_cast<double>(config_.probe_interval),
                                                             extra / (config_.probe_budget * plan_seconds_.value));
    }
    void start_probe() { probe_left_ = config_.probe_steps; }

    void finish_probe() {
        since_probe_ = 0;
        if (!compresses(current_) || plan_seconds_.samples < config_.trial || !slower_than_dense()) return;
        pause_left_ = static_cast<std::int64_t>(config_.pause) << std::min(failures_++, 10);
        change_to(times_.best_dense());
    }

    config config_;
    bucket_time_model times_;
    plan_type current_, plan_;  // decided, and of the next step, which may be a probe
    exponential_average dense_seconds_, plan_seconds_;
    std::vector<plan_type> trials_;      // still to be tried, the last one now
    exponential_average trial_seconds_;  // of that one
    plan_type winner_;                   // of the round
    double shortest_ = 0;                // its step
    std::int64_t next_round_ = 0;        // not before this step
    std::int64_t steps_ = 0, since_probe_ = 0, pause_left_ = 0;
    int votes_ = 0, probe_left_ = 0, failures_ = 0;
    bool settling_ = true;
};

}  // namespace cairn
