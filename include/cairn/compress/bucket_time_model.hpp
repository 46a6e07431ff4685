#pragma once
// Model of the times of buckets under each of their options, and of a step under any plan, for the compression
// autotuner.
//   measure   link, encode and decode times as factors on the modelled or calibrated ones, in exponential averages of
//             logarithms. An unused algorithm is assumed to be off by the factor of the used ones, and to drift with
//             those in use. The times at which buckets are ready are learned from dense steps.
//   predict   the step of any plan: timeline.hpp, which contains the rule t_encode + t_decode < (1 − 1/R) t_exposed
//   correct   the error of a plan's prediction, once it was in use, corrects the next ones

#include <cairn/compress/reduction_option.hpp>
#include <cairn/compress/timeline.hpp>
#include <cairn/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// An exponential average that starts with what comes first.
struct exponential_average {
    double value = 0;
    std::int64_t samples = 0;
    void add(double x, double weight) { value = samples++ ? value + weight * (x - value) : x; }
    void restart() { samples = 0; }
    /// Of a plain mean: the next one counts as much as each before.
    double even_weight() const { return 1.0 / static_cast<double>(samples + 1); }
};

class bucket_time_model {
public:
    using plan_type = std::vector<std::size_t>;  // an option for each bucket

    /// options[b]: what bucket b may do, in the order in which buckets are sent; one must be dense. smoothing: weight
    /// of a new measurement. forget: steps in which half of what is known of an unused compressor is forgotten.
    bucket_time_model(std::vector<std::vector<reduction_option>> options, double smoothing, int forget)
        : options_(std::move(options)), smoothing_(smoothing), forget_(forget) {
        for (std::size_t b = 0; b < options_.size(); ++b) {
            bool has_dense = false;
            for (const reduction_option& o : options_[b]) has_dense |= o.dense();
            require(has_dense, "compression autotuner: bucket ", b, " has no dense option");
        }
        ready_.resize(options_.size());
    }

    const std::vector<std::vector<reduction_option>>& options() const { return options_; }
    bool compresses(const plan_type& plan) const {
        for (std::size_t b = 0; b < plan.size(); ++b)
            if (!options_[b][plan[b]].dense()) return true;
        return false;
    }

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
    /// Seconds of a step: the model's, corrected by how far it was off when the plan was in use, or else for `in_use`.
    double estimate(const plan_type& plan, const plan_type& in_use) const {
        const auto known = corrections_.find(plan), current = corrections_.find(in_use);
        const double untried = current == corrections_.end() ? 0 : std::max(0.0, current->second.value);
        return predict(plan).seconds * std::exp(known == corrections_.end() ? untried : known->second.value);
    }

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

    /// Takes the measurement of a step that followed `plan`.
    void learn(const step_measurement& m, const plan_type& plan) {
        learn_factors(m, plan);
        if (!compresses(plan)) learn_timeline(m);  // else times hold what encoding has cost
        correct(m, plan);
    }

private:
    using factors = std::map<std::string, double>;

    static double factor(const factors& f, const std::string& name, double otherwise) {
        const auto known = f.find(name);
        return known == f.end() ? otherwise : known->second;
    }

    void learn_factors(const step_measurement& m, const plan_type& plan) {
        struct sums {
            double measured = 0, modelled = 0;
        };
        std::map<std::string, sums> link, encode, decode;
        for (std::size_t b = 0; b < m.buckets.size(); ++b) {
            const reduction_option& o = options_[b][plan[b]];
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
                    const double change = std::pow(ratio / known->second, smoothing_);
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
        const double kept = std::exp2(-1.0 / forget_);
        for (factors* f : {&encode_, &decode_})
            for (auto& [name, known] : *f)
                if (!encode.count(name)) known = std::pow(known, kept);
        for (auto& [other, known] : corrections_)
            if (other != plan) known.value *= kept;
        double logarithms = 0;
        for (const auto& [name, f] : link_) logarithms += std::log(f);
        link_level_ = link_.empty() ? 1 : std::exp(logarithms / static_cast<double>(link_.size()));
    }

    // When buckets are ready and backward ends in a dense step, and how long communication ran beside it.
    void learn_timeline(const step_measurement& m) {
        const double weight = std::max(smoothing_, compute_end_.even_weight());
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
    void correct(const step_measurement& m, const plan_type& plan) {
        std::vector<bucket_times> times = m.buckets;
        for (std::size_t b = 0; b < times.size(); ++b) times[b].ready = ready_[b];
        const double predicted = predict_step(times, compute_end_.value).seconds;
        if (!(predicted > 0 && m.seconds > 0)) return;
        exponential_average& known = corrections_[plan];
        known.add(std::log(m.seconds / predicted), std::max(smoothing_, known.even_weight()));
    }

    std::vector<std::vector<reduction_option>> options_;
    double smoothing_;
    int forget_;
    factors link_, encode_, decode_;
    double link_level_ = 1;  // the geometric mean of link_
    std::vector<double> ready_;
    exponential_average compute_end_, overlap_;  // of a dense step; overlap: communication beside compute
    std::map<plan_type, exponential_average>
        corrections_;  // logarithms of measured over predicted seconds, of plans in use
};

}  // namespace cairn
