#pragma once
// Rank 0's clock of versions: when the next one is due by the time that has passed (state.every = "10 min", or "auto":
// as often as loses least time, by what versions were measured to cost); and when a run with a time limit has to stop,
// so that its last state is on disk in time.

#include <cairn/core/clock.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/state/interval.hpp>
#include <cairn/train/state_settings.hpp>

#include <algorithm>

namespace cairn {

/// See the top of the file.
class version_clock {
public:
    explicit version_clock(const state_settings& s) : version_clock(s, s.every) {}
    /// Of versions that are due each `every`.
    version_clock(const state_settings& s, version_interval every) : settings_(s) { settings_.every = every; }

    /// A version was taken.
    void restart() { since_.restart(); }
    /// A step took so many seconds, while a version was on its way or not.
    void took_step(double seconds, bool in_flight) {
        if (steps_[0].count + steps_[1].count == 0) started_ = now();
        longest_ = std::max(longest_, seconds);
        steps_[in_flight].sum += seconds;
        ++steps_[in_flight].count;
    }

    bool is_due(const flush_times& t) const {
        if (!settings_.every.is_automatic()) return settings_.every.is_due_after(since_.seconds());
        return since_.seconds() >= automatic_interval(t);
    }
    /// Whether one more step would be one too many for train.time_limit: it, the state behind it and the report need
    /// what they took at most so far, and half as much again.
    bool is_time_over(const flush_times& t) const {
        if (settings_.time_limit == 0) return false;
        const double saving = t.versions ? t.durable / static_cast<double>(t.versions) : unmeasured_seconds;
        return now() + 1.5 * (longest_ + 2 * saving) + report_seconds > settings_.time_limit;
    }

    /// As measured so far; before the first version with a guess.
    checkpoint_costs costs(const flush_times& t) const {
        checkpoint_costs c{.restart = started_, .mtbf = settings_.mtbf};
        if (t.versions == 0) {
            c.stall = c.flush = unmeasured_seconds;
            return c;
        }
        const auto n = static_cast<double>(t.versions);
        c.stall = t.usual_stall();
        c.flush = std::max(0.0, t.durable / n - c.stall);
        if (steps_[0].count && steps_[1].count)
            c.slow_down = std::clamp(1 - steps_[0].mean() / steps_[1].mean(), 0.0, 1.0);
        return c;
    }
    /// Seconds from one version to the next. The first one is taken early, to be measured.
    double automatic_interval(const flush_times& t) const {
        return t.versions == 0 ? unmeasured_seconds : best_interval(costs(t));
    }

private:
    static constexpr double unmeasured_seconds = 2, report_seconds = 1;
    struct mean_of_steps {
        double sum = 0;
        std::int64_t count = 0;
        double mean() const { return sum / static_cast<double>(count); }
    };

    state_settings settings_;
    stopwatch since_;
    mean_of_steps steps_[2];  // without and with a version on its way
    double longest_ = 0;
    double started_ = 0;  // seconds from the start of the process until its first step
};

}  // namespace cairn
