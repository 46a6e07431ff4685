#pragma once
// Rank 0's clock of the versions that go to one place, the hosts' disks or the run's directory: when the next one is
// due by the time that has passed (state.every = "10 min", or "auto": as often as loses least time, by what versions
// there were measured to cost); and when a run with a time limit has to stop, so that its last state is on disk by
// then.

#include <cairn/core/clock.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/state/interval.hpp>
#include <cairn/train/state_settings.hpp>

#include <algorithm>
#include <optional>

namespace cairn {

/// See the top of the file.
class version_clock {
public:
    /// Of versions that are due each `every`, against failures that come once in `mtbf` seconds.
    version_clock(flush_times::tier flush_times::*where, version_interval every, double mtbf, double time_limit)
        : where_(where), every_(every), mtbf_(mtbf), time_limit_(time_limit) {}

    /// A version was taken.
    void restart() { since_.restart(); }
    /// A step took so many seconds, while a version was on its way to one of the places, or none.
    void took_step(double seconds, std::optional<version_tiers> to) {
        if (longest_ == 0) started_ = now();
        longest_ = std::max(longest_, seconds);
        if (to && (*to == version_tiers::local) != (where_ == &flush_times::local)) return;  // the other clock's
        mean_of_steps& steps = to ? beside_ : alone_;
        steps.sum += seconds;
        ++steps.count;
    }

    bool is_due(const flush_times& t) const {
        if (!every_.is_automatic()) return every_.is_due_after(since_.seconds());
        return since_.seconds() >= automatic_interval(t);
    }
    /// Whether one more step would be one too many for train.time_limit: it, the state behind it and the report need
    /// what they took at most so far, and half as much again.
    bool is_time_over(const flush_times& t) const {
        if (time_limit_ == 0) return false;
        const flush_times::tier& here = t.*where_;
        const double saving = here.versions ? here.durable / static_cast<double>(here.versions) : unmeasured_seconds;
        return now() + 1.5 * (longest_ + 2 * saving) + report_seconds > time_limit_;
    }

    /// As measured so far; before the first version with a guess.
    checkpoint_costs costs(const flush_times& t) const {
        checkpoint_costs c{.restart = started_, .mtbf = mtbf_};
        const flush_times::tier& here = t.*where_;
        if (here.versions == 0) {
            c.stall = c.flush = unmeasured_seconds;
            return c;
        }
        c.stall = t.usual_stall();
        c.flush = std::max(0.0, here.durable / static_cast<double>(here.versions) - c.stall);
        if (alone_.count && beside_.count) c.slow_down = std::clamp(1 - alone_.mean() / beside_.mean(), 0.0, 1.0);
        return c;
    }
    /// Seconds from one version to the next. The first one is taken early, to be measured, and before the next failure.
    double automatic_interval(const flush_times& t) const {
        return (t.*where_).versions == 0 ? std::min(unmeasured_seconds, mtbf_ / 100) : best_interval(costs(t));
    }

private:
    static constexpr double unmeasured_seconds = 2, report_seconds = 1;
    struct mean_of_steps {
        double sum = 0;
        std::int64_t count = 0;
        double mean() const { return sum / static_cast<double>(count); }
    };

    flush_times::tier flush_times::*where_;
    version_interval every_;
    double mtbf_, time_limit_;  // seconds
    stopwatch since_;
    mean_of_steps alone_, beside_;  // without and with a version on its way
    double longest_ = 0;
    double started_ = 0;  // seconds from the start of the process until its first step
};

}  // namespace cairn
