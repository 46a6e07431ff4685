#pragma once
// Decides for each bucket whether it is sent dense or compressed, by which compressor and which all-reduce algorithm.
// Compression rarely pays on fast links (Agarwal et al., MLSys 2022: in 6 of more than 200 set-ups), so it must show
// that it does.
//
//   measure   link, encode and decode times as factors on what was modelled or calibrated, in exponential averages of
//             logarithms. An algorithm that was never in use is taken to be as far off as those that were, one that is
//             not in use now to drift along with those that are. When buckets are ready is learned from dense steps.
//   predict   the step of any plan: timeline.hpp, which contains the rule t_encode + t_decode < (1 − 1/R) t_exposed
//   decide    the best plan, bucket by bucket until nothing improves. It replaces the plan in use only if it is
//             predicted to be shorter by `margin`, `patience` times in a row.
//   try       what no model knows (compute that communication slows down, cores that several hosts share) only a
//             measured step tells: after `baseline`, and every `trial_interval` steps, each compressor that could
//             shorten the step by `margin` if communication were all that slows backward down takes all buckets for
//             `trial_steps` steps. The shortest step wins; how far the prediction of a plan was off is kept and
//             corrects the next ones.
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

#include <cairn/compress/reduction_option.hpp>
#include <cairn/compress/timeline.hpp>
#include <cairn/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
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
    using plan_type = std::vector<std::size_t>;  // an option for each bucket

    /// options[b]: what bucket b may do, in the order in which buckets are sent; one must be dense.
    compression_autotuner(config c, std::vector<std::vector<reduction_option>> options)
        : config_(c), options_(std::move(options)) {
        require(c.smoothing > 0 && c.smoothing <= 1 && c.margin >= 0 && c.noise >= 0 && c.baseline >= 1 &&
                    c.patience >= 1 && c.obvious > 1 && c.trial >= 1 && c.probe_steps >= 1 && c.probe_interval >= 1 &&
                    c.probe_budget > 0 && c.forget >= 1 && c.pause >= 1 && c.trial_steps >= 1 && c.trial_interval >= 1,
                "compression autotuner: a setting is out of range");
        for (std::size_t b = 0; b < options_.size(); ++b) {
            bool has_dense = false;
            for (const reduction_option& o : options_[b]) has_dense |= o.dense();
            require(has_dense, "compression autotuner: bucket ", b, " has no dense option");
        }
        ready_.resize(options_.size());
        plan_ = best_dense();
        current_ = plan_;
    }

    /// What to do in the next step.
    const plan_type& plan() const { return plan_; }
    const reduction_option& chosen(std::size_t bucket) const { return options_[bucket][plan_[bucket]]; }
    bool compresses() const { return compresses(current_); }
    bool probing() const { return probe_left_ > 0; }

    /// Expected times of a bucket under an option, and of a step under a plan, as far as is known by now.
    bucket_times expected(std::size_t bucket, std::size_t option) const {
        const reduction_option& o = options_[bucket][option];
        return {ready_[bucket], o.encode * factor(encode_, o.compressor, 1),
                o.communication * factor(link_, o.algorithm, link_level_), o.decode * factor(decode_, o.compressor, 1)};
    }
    step_prediction predict(const plan_type& plan) const {
        std::vector<bucket_times> times(plan.size());
        for (std::size_t b = 0; b < plan.size(); ++b) times[b] = expected(b, plan[b]);
        return predict_step(times, compute_end_.value);
    }
    step_prediction predict_dense() const { return predict(best_dense()); }
    /// Seconds of a step: the model's, corrected by how far it was off when the plan was in use.
    double estimate(const plan_type& plan) const {
        const auto known = corrections_.find(plan), current = corrections_.find(current_);
        const double untried = current == corrections_.end() ? 0 : std::max(0.0, current->second.value);
        return predict(plan).seconds * std::exp(known == corrections_.end() ? untried : known->second.value);
    }

    /// Takes the measurement of a step that followed plan(), equal on all ranks, and decides on the next one.
    void observe(const step_measurement& m) {
        require(m.buckets.size() == options_.size(), "compression autotuner: measurements of ", m.buckets.size(),
                " buckets, expected ", options_.size());
        if (settling_) {  // the first step of a plan allocates what it needs, and says nothing about the next
            settling_ = false;
        } else {
            learn(m);
            correct(m);
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
        plan_ = probe_left_ > 0 ? best_dense() : trials_.empty() ? current_ : trials_.back();
    }

private:
    static constexpr int obvious_steps = 2;         // dense steps where compression is obvious
    static constexpr double clearly_slower = 1.15;  // one step is enough to see it

    /// An exponential average that starts with what comes first.
    struct average {
        double value = 0;
        std::int64_t samples = 0;
        void add(double x, double weight) { value = samples++ ? value + weight * (x - value) : x; }
        void restart() { samples = 0; }
        /// Of a plain mean: the next one counts as much as each before.
        double even_weight() const { return 1.0 / static_cast<double>(samples + 1); }
    };
    using factors = std::map<std::string, double>;

    static double factor(const factors& f, const std::string& name, double otherwise) {
        const auto known = f.find(name);
        return known == f.end() ? otherwise : known->second;
    }
    bool compresses(const plan_type& plan) const {
        for (std::size_t b = 0; b < plan.size(); ++b)
            if (!options_[b][plan[b]].dense()) return true;
        return false;
    }

    // ---------------------------------------------------------------------------------------------------- measure
    void learn(const step_measurement& m) {
        struct sums {
            double measured = 0, modelled = 0;
        };
        std::map<std::string, sums> link, encode, decode;
        for (std::size_t b = 0; b < m.buckets.size(); ++b) {
            const reduction_option& o = options_[b][plan_[b]];
            const auto add = [](sums& s, double measured, double modelled) {
                s.measured += measured;
                s.modelled += modelled;
            };
            add(link[o.algorithm], m.buckets[b].communication, o.communication);
            if (!o.dense()) {
                add(encode[o.compressor], m.buckets[b].encode, o.encode);
                add(decode[o.compressor], m.buckets[b].decode, o.decode);
            }
        }
        if (!compresses(plan_)) learn_timeline(m);  // else times hold what encoding has cost

        // Logarithms: one step that takes ten times as long moves a factor by 10^smoothing, and back as fast.
        const auto update = [&](factors& f, const std::map<std::string, sums>& seen) {
            double drift = 0, drifted = 0;
            for (const auto& [name, s] : seen) {
                if (!(s.measured > 0 && s.modelled > 0)) continue;
                const double ratio = s.measured / s.modelled;
                const auto known = f.find(name);
                if (known == f.end()) {
                    f[name] = ratio;
                } else {
                    const double change = std::pow(ratio / known->second, config_.smoothing);
                    known->second *= change;
                    drift += std::log(change);
                    ++drifted;
                }
            }
            return drifted > 0 ? std::exp(drift / drifted) : 1.0;
        };
        factors unused = link_;
        for (const auto& [name, s] : link) unused.erase(name);
        const double drift = update(link_, link);
        for (const auto& [name, f] : unused) link_[name] = f * drift;
        update(encode_, encode);
        update(decode_, decode);
        // It may have been measured at a bad moment, and is measured again only if it is tried.
        const double kept = std::exp2(-1.0 / config_.forget);
        for (factors* f : {&encode_, &decode_})
            for (auto& [name, known] : *f)
                if (!encode.count(name)) known = std::pow(known, kept);
        for (auto& [plan, known] : corrections_)
            if (plan != plan_) known.value *= kept;
        double logarithms = 0;
        for (const auto& [name, f] : link_) logarithms += std::log(f);
        link_level_ = link_.empty() ? 1 : std::exp(logarithms / static_cast<double>(link_.size()));
    }

    // When buckets are ready and backward ends in a dense step, and how long communication ran beside it.
    void learn_timeline(const step_measurement& m) {
        const double weight = std::max(config_.smoothing, compute_end_.even_weight());
        double overlap = 0, end = 0;
        for (std::size_t b = 0; b < m.buckets.size(); ++b) {
            const bucket_times& t = m.buckets[b];
            ready_[b] += weight * (t.ready - ready_[b]);
            const double start = std::max(end, t.ready);
            end = start + t.communication;
            overlap += std::clamp(m.compute_end - start, 0.0, t.communication);
        }
        compute_end_.add(m.compute_end, weight);
        overlap_.add(overlap, weight);
    }

    // The model is given what the buckets took in this very step, so that a link that changes is not held against the
    // plan.
    void correct(const step_measurement& m) {
        std::vector<bucket_times> times = m.buckets;
        for (std::size_t b = 0; b < times.size(); ++b) times[b].ready = ready_[b];
        const double predicted = predict_step(times, compute_end_.value).seconds;
        if (!(predicted > 0 && m.seconds > 0)) return;
        average& known = corrections_[plan_];
        known.add(std::log(m.seconds / predicted), std::max(config_.smoothing, known.even_weight()));
    }

    void track(double seconds, bool was_dense) {
        if (!trials_.empty()) return trial_seconds_.add(seconds, trial_seconds_.even_weight());
        average& kind = was_dense ? dense_seconds_ : plan_seconds_;
        if (was_dense && probing() && probe_left_ == config_.probe_steps) kind.restart();
        kind.add(seconds, probing() ? kind.even_weight() : config_.smoothing);
    }

    const average& measured() const { return compresses(current_) ? plan_seconds_ : dense_seconds_; }

    // ------------------------------------------------------------------------------------------------------- try
    /// No step of this plan can be shorter: all that slows compute down in a dense step were communication beside it.
    double bound(const plan_type& plan) const {
        double link = 0;
        for (std::size_t b = 0; b < plan.size(); ++b) {
            const bucket_times t = expected(b, plan[b]);
            link += t.encode + t.communication + t.decode;
        }
        return std::max(link, compute_end_.value - overlap_.value);
    }

    /// Seconds of a step where communication beside compute costs compute half of its time: the model says nothing of
    /// it.
    double likely(const plan_type& plan) const {
        const step_prediction p = predict(plan);
        double communication = 0;
        for (std::size_t b = 0; b < plan.size(); ++b) communication += expected(b, plan[b]).communication;
        return p.seconds + 0.5 * std::max(0.0, communication - p.exposed);
    }

    bool trials_are_due() const {
        return pause_left_ == 0 && steps_ >= next_round_ && measured().samples >= config_.baseline - 1;
    }

    /// Each compressor for all buckets, the most promising one last in the row: it is the next.
    void start_trials() {
        next_round_ = steps_ + config_.trial_interval;
        std::map<std::string, plan_type> plans;
        for (std::size_t b = 0; b < options_.size(); ++b)
            for (std::size_t o = 0; o < options_[b].size(); ++o)
                if (!options_[b][o].dense()) {
                    plan_type& plan = plans.emplace(options_[b][o].compressor, best_dense()).first->second;
                    const bool first = options_[b][plan[b]].compressor != options_[b][o].compressor;
                    if (first || expected(b, o).communication < expected(b, plan[b]).communication) plan[b] = o;
                }
        for (const auto& [name, plan] : plans)
            if (plan != current_ && bound(plan) < (1 - config_.margin) * measured().value) trials_.push_back(plan);
        std::ranges::sort(trials_, std::greater<>{}, [this](const plan_type& plan) { return likely(plan); });
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
        while (!trials_.empty() && bound(trials_.back()) > shortest_);
        settling_ = true;
        if (!trials_.empty()) return;
        if (winner_ != current_) change_to(winner_);
        since_probe_ = 0;
    }

    // ---------------------------------------------------------------------------------------------------- decide
    plan_type best_dense() const {
        plan_type plan(options_.size());
        for (std::size_t b = 0; b < plan.size(); ++b) {
            double best = std::numeric_limits<double>::infinity();
            for (std::size_t o = 0; o < options_[b].size(); ++o)
                if (options_[b][o].dense() && expected(b, o).communication < best)
                    best = expected(b, plan[b] = o).communication;
        }
        return plan;
    }

    /// From `plan` on, each bucket in turn takes the option that makes the step shortest, until nothing changes.
    plan_type improved(plan_type plan) const {
        double best = predict(plan).seconds;
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t b = 0; b < plan.size(); ++b)
                for (std::size_t o = 0; o < options_[b].size(); ++o) {
                    const std::size_t before = std::exchange(plan[b], o);
                    const double seconds = predict(plan).seconds;
                    if (seconds < best * (1 - 1e-9)) {
                        best = seconds;
                        changed = true;
                    } else {
                        plan[b] = before;
                    }
                }
        }
        return plan;
    }

    void decide() {
        const plan_type dense = best_dense();
        const double dense_estimate = estimate(dense), current_estimate = estimate(current_);
        plan_type wanted = dense;
        if (pause_left_ == 0) {
            const plan_type a = improved(dense), b = improved(current_);
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
               config_.obvious * predict(plan).seconds < predict_dense().seconds;
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
        change_to(best_dense());
    }

    config config_;
    std::vector<std::vector<reduction_option>> options_;
    plan_type current_, plan_;  // decided, and of the next step, which may be a probe
    factors link_, encode_, decode_;
    double link_level_ = 1;  // the geometric mean of link_
    std::vector<double> ready_;
    average compute_end_, overlap_;  // of a dense step; overlap: communication beside compute
    average dense_seconds_, plan_seconds_;
    std::map<plan_type, average>
        corrections_;                // logarithms of measured over predicted seconds, of plans that were in use
    std::vector<plan_type> trials_;  // still to be tried, the last one now
    average trial_seconds_;          // of that one
    plan_type winner_;               // of the round
    double shortest_ = 0;            // its step
    std::int64_t next_round_ = 0;    // not before this step
    std::int64_t steps_ = 0, since_probe_ = 0, pause_left_ = 0;
    int votes_ = 0, probe_left_ = 0, failures_ = 0;
    bool settling_ = true;
};

}  // namespace cairn
