#pragma once
// Learning-rate schedules: pure functions step → rate. A schedule is a list of segments: plain data that can be
// printed, compared and joined. Step 0 is the first update; after its last segment a schedule keeps the final rate.
//   linear      from + (to − from) p                        p: position between begin and end of the segment, 0 … 1
//   cosine      to + (from − to) (1 + cos π p) / 2          (SGDR: Loshchilov & Hutter, ICLR 2017)
//   polynomial  to + (from − to) (1 − p)^power

#include <cairn/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <ostream>
#include <utility>
#include <vector>

namespace cairn {

enum class curve { linear, cosine, polynomial };

/// A curve that runs from step `begin` to step `end` and counts on the steps before `until`.
struct lr_segment {
    std::int64_t begin = 0, end = 0, until = 0;
    double from = 0, to = 0;
    curve kind = curve::linear;
    double power = 1;  // of polynomial

    double operator()(std::int64_t step) const {
        if (step >= end) return to;
        const double p =
            static_cast<double>(std::max<std::int64_t>(step - begin, 0)) / static_cast<double>(end - begin);
        if (kind == curve::cosine) return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * p));
        if (kind == curve::polynomial) return to + (from - to) * std::pow(1 - p, power);
        return from + (to - from) * p;
    }
    bool operator==(const lr_segment&) const = default;
};

/// Learning rate as a function of the step. Built by the functions below.
struct lr_schedule {
    std::vector<lr_segment> segments;  // in order of `until`: the first one with step < until counts

    /// The rate of update `step`, counted from 0.
    double operator()(std::int64_t step) const {
        require(!segments.empty(), "learning-rate schedule: it is empty; use for example constant(0.1)");
        for (const lr_segment& s : segments)
            if (step < s.until) return s(step);
        return segments.back().to;
    }

    /// The first step after which the rate is constant.
    std::int64_t steps() const { return segments.empty() ? 0 : segments.back().until; }
    bool operator==(const lr_schedule&) const = default;

    /// "0..10 linear 0 -> 1, 10..50 cosine 1 -> 0"
    friend std::ostream& operator<<(std::ostream& out, const lr_schedule& s) {
        constexpr std::array<const char*, 3> names{"linear ", "cosine ", "polynomial "};
        std::int64_t start = 0;
        for (const lr_segment& part : s.segments) {
            out << (&part == s.segments.data() ? "" : ", ") << start << "..";
            if (part.until > start) out << part.until;
            if (part.from == part.to)
                out << ' ' << part.to;
            else
                out << ' ' << names[static_cast<std::size_t>(part.kind)] << part.from << " -> " << part.to;
            if (part.kind == curve::polynomial) out << " power " << part.power;
            start = part.until;
        }
        return out;
    }
};

namespace detail {
inline lr_schedule one_segment(std::int64_t steps, double from, double to, curve kind, double power = 1) {
    require(steps >= 0, "learning-rate schedule: ", steps, " steps; it must not be negative");
    require(std::isfinite(from) && std::isfinite(to) && from >= 0 && to >= 0, "learning-rate schedule: rates ", from,
            " and ", to, "; they must be finite and not negative");
    return {{{0, steps, steps, from, to, kind, power}}};
}
}  // namespace detail

/// The same rate for ever.
inline lr_schedule constant(double lr) { return detail::one_segment(0, lr, lr, curve::linear); }

/// A straight line from `from` at step 0 to `to` at step `steps`.
inline lr_schedule linear_ramp(std::int64_t steps, double from, double to) {
    return detail::one_segment(steps, from, to, curve::linear);
}

/// Half a cosine from `peak` at step 0 to `floor` at step `steps`.
inline lr_schedule cosine(std::int64_t steps, double peak, double floor = 0) {
    return detail::one_segment(steps, peak, floor, curve::cosine);
}

/// floor + (peak − floor) (1 − step / steps)^power; power 2 with LARS, 1 with LAMB in their papers.
inline lr_schedule polynomial(std::int64_t steps, double peak, double power, double floor = 0) {
    require(power > 0, "learning-rate schedule: power ", power, "; it must be positive");
    return detail::one_segment(steps, peak, floor, curve::polynomial, power);
}

/// `lr` at first; from each step of `changes` on, the rate paired with it. Throws unless the steps increase.
inline lr_schedule piecewise(double lr, const std::vector<std::pair<std::int64_t, double>>& changes) {
    lr_schedule s;
    std::int64_t begin = 0;
    for (const auto& [step, rate] : changes) {
        require(step > begin, "learning-rate schedule: a change at step ", step, " does not lie after step ", begin);
        s.segments.push_back({begin, step, step, lr, lr});
        begin = step;
        lr = rate;
    }
    s.segments.push_back({begin, begin, begin, lr, lr});
    return s;
}

/// lr · factor^(number of milestones at or before the step).
inline lr_schedule step_decay(double lr, double factor, const std::vector<std::int64_t>& milestones) {
    std::vector<std::pair<std::int64_t, double>> changes;
    double rate = lr;
    for (const std::int64_t step : milestones) changes.emplace_back(step, rate *= factor);
    return piecewise(lr, changes);
}

/// `first` up to its end, then `second` from its own step 0.
inline lr_schedule then(lr_schedule first, const lr_schedule& second) {
    const std::int64_t shift = first.steps();
    std::erase_if(first.segments, [&](const lr_segment& s) { return s.begin == s.until; });
    for (lr_segment s : second.segments) {
        s.begin += shift;
        s.end += shift;
        s.until += shift;
        first.segments.push_back(s);
    }
    return first;
}

/// Linear warm-up laid over the first `steps` steps of `s`, whose own steps count on beneath it: milestones keep their
/// place (Goyal et al. 2017). Step k has from + (to − from) (k + 1) / steps: no update is made at the rate `from`, and
/// the last one is made at that of `s`.
inline lr_schedule warmup(std::int64_t steps, double from, lr_schedule s) {
    if (steps <= 0) return s;
    const double to = s(steps - 1);
    while (s.segments.size() > 1 && s.segments.front().until <= steps) s.segments.erase(s.segments.begin());
    s.segments.front().until = std::max(s.segments.front().until, steps);
    s.segments.insert(s.segments.begin(), {-1, steps - 1, steps, from, to});
    return s;
}

/// One cycle, as in fast CIFAR-10 recipes: a line from `initial_fraction` · peak up to the peak during the first
/// `pct_start` of the steps, then half a cosine down to 0.
inline lr_schedule one_cycle(std::int64_t steps, double peak, double pct_start = 0.2, double initial_fraction = 0.05) {
    require(pct_start >= 0 && pct_start <= 1, "learning-rate schedule: one_cycle rises during ", pct_start,
            " of the steps; it must be in [0, 1]");
    const auto up = static_cast<std::int64_t>(std::llround(pct_start * static_cast<double>(steps)));
    return then(linear_ramp(up, initial_fraction * peak, peak), cosine(steps - up, peak));
}

}  // namespace cairn
