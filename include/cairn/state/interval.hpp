#pragma once
// How often to take a version. Too often costs stalls, too seldom costs work that a failure takes away.
//
//   time →   |C|···F···|              |C|···F···|          ✗ failure
//            |<---------- W --------->|                       back to the newest durable version, R seconds later
//
//   waste(W) ≈ (C + s F)/W  +  (W/2 + C + F + R)/M            share of all time that is lost, to first order in W/M
//              ‾‾‾‾‾‾‾‾‾‾‾     ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾
//              versions        failures: half an interval on average, and what was not durable yet
//   W*       = √(2 (C + s F) M), at least C + F               one flush at a time
//
// A version that is written while training stands still is the case F = 0: W* = √(2 C M), Young's formula.
// Where times between failures are exponentially distributed, the waste is known exactly. The k-th version after a
// failure is durable R + kW + C + F later, if no failure comes before: with probability exp(−(R + kW + C + F)/M).
// It is worth W seconds of work, less C + s F for the version before it; the first has none before it. Summed over k,
// for the M seconds from one failure to the next:
//   waste(W) = 1 − exp(−(R + C + F)/M) (W − (C + s F) exp(−W/M)) / (M (exp(W/M) − 1))
// Tested against simulated failures.
// Sources: Young, CACM 17(9), 1974; Daly, FGCS 22(3), 2006, equation 37; silent errors: Benoit, Cavelan, Robert and
// Sun, IPDPS 2016; tiers: Di, Robert, Vivien and Cappello, TPDS 28(1), 2017.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace cairn {

/// One kind of version and the failures that it is kept for. Seconds.
struct checkpoint_costs {
    double stall = 0;      // C: training stands still
    double flush = 0;      // F: from the end of the stall until the version is durable
    double slow_down = 0;  // s: share of its speed that training loses meanwhile, 0 to 1
    double restart = 0;    // R: from a failure until training goes on
    double mtbf = std::numeric_limits<double>::infinity();  // M: mean time between failures, above 0

    /// C + s F: training time that one version costs.
    double of_version() const { return stall + slow_down * flush; }
};

namespace detail {

inline void require_costs(const checkpoint_costs& c) {
    const auto time = [](double x) { return std::isfinite(x) && x >= 0; };
    require(time(c.stall) && time(c.flush) && time(c.restart), "interval of versions: stall ", c.stall, " s, flush ",
            c.flush, " s, restart ", c.restart, " s: each is a finite time, at least 0");
    require(c.slow_down >= 0 && c.slow_down <= 1, "interval of versions: a slow-down of ", c.slow_down,
            "; it is the share of speed that training loses, 0 to 1");
    require(c.mtbf > 0, "interval of versions: a mean time between failures of ", c.mtbf, " s; it is above 0");
}

}  // namespace detail

/// Share of all time lost when a version is taken every `every` seconds (from one stall to the next, above 0).
inline double expected_waste(const checkpoint_costs& c, double every) {
    detail::require_costs(c);
    require(every > 0, "a version every ", every, " s; the interval is above 0");
    if (std::isinf(every)) return std::isinf(c.mtbf) ? 0 : 1;
    if (std::isinf(c.mtbf)) return std::min(1.0, c.of_version() / every);
    const double work = std::max(0.0, every - c.of_version() * std::exp(-every / c.mtbf));
    return 1 - std::exp(-(c.restart + c.stall + c.flush) / c.mtbf) * work / (c.mtbf * std::expm1(every / c.mtbf));
}

/// Seconds from one stall to the next at which the least time is lost. Infinite where nothing fails; 0 where versions
/// cost nothing.
inline double best_interval(const checkpoint_costs& c) {
    detail::require_costs(c);
    const double shortest = c.stall + c.flush;
    return c.of_version() == 0 ? shortest : std::max(shortest, std::sqrt(2 * c.of_version() * c.mtbf));
}

/// Seconds between the ends of versions for which training waits `stall` seconds (Young 1974).
inline double young_interval(double stall, double mtbf) { return std::sqrt(2 * stall * mtbf); }

/// Young's with two more terms, without the stall itself: seconds of training between two versions (Daly 2006).
inline double daly_interval(double stall, double mtbf) {
    if (stall >= 2 * mtbf) return mtbf;
    const double share = stall / (2 * mtbf);
    return std::sqrt(2 * stall * mtbf) * (1 + std::sqrt(share) / 3 + share / 9) - stall;
}

/// One interval for each tier, nearest first: tiers[l].mtbf is of the failures that tier l survives and no tier below
/// does. Each is a multiple of the one below, so that a version of a tier is also one of all tiers below.
inline std::vector<double> tier_intervals(std::span<const checkpoint_costs> tiers) {
    std::vector<double> every;
    for (const checkpoint_costs& tier : tiers) {
        const double below = every.empty() ? 0 : every.back(), best = best_interval(tier);
        const bool multiple = below > 0 && std::isfinite(best);
        every.push_back(multiple ? std::max(1.0, std::ceil(best / below - 1e-9)) * below : std::max(best, below));
    }
    return every;
}

/// Share of all time lost with one interval for each tier: of what one tier leaves, the next takes its share.
inline double expected_waste(std::span<const checkpoint_costs> tiers, std::span<const double> every) {
    require(tiers.size() == every.size(), tiers.size(), " tiers and ", every.size(), " intervals");
    double useful = 1;
    for (std::size_t l = 0; l < tiers.size(); ++l) useful *= 1 - expected_waste(tiers[l], every[l]);
    return 1 - useful;
}

/// Errors that nothing reports (a flipped bit) and that a check before each version finds, beside failures. A silent
/// error costs the whole interval, a failure half of it.
struct verified_costs {
    double verification = 0;                                       // V: seconds of the check
    double stall = 0;                                              // C
    double silent_mtbf = std::numeric_limits<double>::infinity();  // 1/λ_s
    double mtbf = std::numeric_limits<double>::infinity();         // 1/λ_f

    double rate() const { return 1 / silent_mtbf + 0.5 / mtbf; }  // λ_s + λ_f/2
};

/// Seconds from one check and version to the next: √((V + C)/(λ_s + λ_f/2)).
inline double verified_interval(const verified_costs& c) { return std::sqrt((c.verification + c.stall) / c.rate()); }

/// Share of all time lost with verified_interval(): 2 √((V + C)(λ_s + λ_f/2)), restarts not counted.
inline double verified_waste(const verified_costs& c) { return 2 * std::sqrt((c.verification + c.stall) * c.rate()); }

}  // namespace cairn
