// Code of course/lectures/08-benchmarking.md: the statistics of benchmarks, tried on a machine that is simulated, so
// that the truth is known. Checks and prints what the page says.

#include <cairn/core/error.hpp>
#include <cairn/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

using cairn::random_stream;
using cairn::require;
using samples = std::vector<double>;

// --8<-- [start:median]
double median(samples x) {
    std::ranges::sort(x);
    const std::size_t n = x.size();
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}
// --8<-- [end:median]

// --8<-- [start:median_interval]
struct interval {
    double low, high;
};

/// Of the median: the order statistics j and n + 1 − j (counted from 1) with the largest j that keeps the confidence.
interval median_interval(samples x, double confidence = 0.95) {
    std::ranges::sort(x);
    const auto n = int(x.size());
    double below = std::pow(0.5, n), term = below;  // P(B < 1) for B ~ Bin(n, ½)
    require(2 * below <= 1 - confidence, n, " samples are too few");
    int j = 1;
    for (;; ++j) {
        term *= double(n - j + 1) / j;  // P(B = j)
        if (2 * (below + term) > 1 - confidence) break;
        below += term;  // P(B < j + 1)
    }
    return {x[std::size_t(j - 1)], x[std::size_t(n - j)]};
}
// --8<-- [end:median_interval]

// --8<-- [start:hodges_lehmann]
/// The means of all pairs of numbers, each with itself too, in order.
samples walsh_averages(const samples& d) {
    samples all;
    for (std::size_t i = 0; i < d.size(); ++i)
        for (std::size_t j = 0; j <= i; ++j) all.push_back((d[i] + d[j]) / 2);
    std::ranges::sort(all);
    return all;
}

/// The Hodges–Lehmann estimate of the centre of d, and an interval that is exact where d is symmetric about it.
struct centre {
    double estimate;
    interval about;
};
centre centre_of(const samples& d, double confidence = 0.95) {
    const samples averages = walsh_averages(d);
    // Ways to reach each rank sum: every number's rank counts or does not, 2ⁿ cases alike.
    const std::size_t n = d.size(), most = averages.size();  // n (n + 1) / 2
    samples ways(most + 1, 0.0);
    ways[0] = std::pow(0.5, double(n));
    for (std::size_t rank = 1; rank <= n; ++rank)
        for (std::size_t sum = most; sum >= rank; --sum) ways[sum] += ways[sum - rank];
    std::size_t k = 0;  // the largest with P(sum < k) within what may be wrong on one side
    for (double below = 0; 2 * (below + ways[k]) <= 1 - confidence; ++k) below += ways[k];
    require(k > 0, n, " pairs are too few");
    return {median(averages), {averages[k - 1], averages[most - k]}};
}

/// How many times as long b takes as a, which ran beside it in each round.
centre ratio(const samples& a, const samples& b) {
    samples d;
    for (std::size_t i = 0; i < a.size(); ++i) d.push_back(std::log(b[i] / a[i]));
    const centre c = centre_of(d);
    return {std::exp(c.estimate), {std::exp(c.about.low), std::exp(c.about.high)}};
}
// --8<-- [end:hodges_lehmann]

/// A machine whose speed drifts, with noise that only slows down and now and then another program. Time of launch
/// number `at` of something that takes `seconds` on the quiet machine.
struct machine {
    std::uint32_t seed;
    double measure(double seconds, int at) const {
        const random_stream random{seed, 1, std::uint32_t(at)};
        const double drift = 1 + 0.005 * at, noise = 0.01 * std::abs(random.normal(0));
        const double visitor = random.uniform(8) < 0.1f ? 0.3 * double(random.uniform(9)) : 0;
        return seconds * drift * (1 + noise + visitor);
    }
};

double mean(const samples& x) {
    double sum = 0;
    for (const double v : x) sum += v;
    return sum / double(x.size());
}

/// Both of the same program, or b slower: 12 launches each, one after the other or in turn.
void run(const machine& host, double slower, bool in_turn, samples& a, samples& b) {
    a.clear(), b.clear();
    for (int i = 0; i < 24; ++i) {
        const bool second = in_turn ? (i % 4 == 1 || i % 4 == 2) : i >= 12;  // a b b a, so that drift cancels
        (second ? b : a).push_back(host.measure(second ? slower : 1, i));
    }
}

void experiments() {
    samples a, b;
    for (const bool in_turn : {false, true}) {
        run({42}, 1, in_turn, a, b);  // A/A: the same program twice
        const centre r = ratio(a, b);
        std::printf("%s: ratio of means %.3f, of medians %.3f, Hodges-Lehmann %.3f (%.3f to %.3f)\n",
                    in_turn ? "A/A in turn  " : "A/A in blocks", mean(b) / mean(a), median(b) / median(a), r.estimate,
                    r.about.low, r.about.high);
        require(in_turn ? r.about.low <= 1 && 1 <= r.about.high : r.about.low > 1, "A/A");
    }
    // 2,000 experiments of a program that is 5 % slower, and as many of one that is not.
    const int experiments = 2000;
    samples of_means, of_medians, of_hl;
    int covered = 0, alarms = 0, found = 0;
    for (std::uint32_t seed = 0; seed < experiments; ++seed) {
        run({seed}, 1.05, true, a, b);
        of_means.push_back(mean(b) / mean(a));
        of_medians.push_back(median(b) / median(a));
        const centre r = ratio(a, b);
        of_hl.push_back(r.estimate);
        covered += r.about.low <= 1.05 && 1.05 <= r.about.high;
        found += r.about.low > 1;
        run({seed + experiments}, 1, true, a, b);
        const centre same = ratio(a, b);
        alarms += same.about.low > 1 || same.about.high < 1;
    }
    const auto error = [](const samples& x) {
        double square = 0;
        for (const double v : x) square += (v - 1.05) * (v - 1.05);
        return 100 * std::sqrt(square / double(x.size()));
    };
    const auto percent = [](int n) { return 100.0 * n / experiments; };
    std::printf("root mean square error: of means %.1f %%, of medians %.1f %%, Hodges-Lehmann %.1f %%\n",
                error(of_means), error(of_medians), error(of_hl));
    std::printf("intervals that hold the truth %.1f %%, slower found %.1f %%, false alarms of A/A %.1f %%\n",
                percent(covered), percent(found), percent(alarms));
    require(error(of_hl) < error(of_means), "Hodges-Lehmann is worse than the mean");
    require(percent(covered) > 93 && percent(alarms) < 7, "the intervals are not what they say");
}

int main() {
    samples x;
    for (int i = 1; i <= 12; ++i) x.push_back(i);
    const interval m = median_interval(x);
    std::printf("95 %% interval of the median of 12 samples: number %g to number %g\n", m.low, m.high);
    require(m.low == 3 && m.high == 10, "order statistics");
    // Wilcoxon's table: of 12 differences, a rank sum of 13 or less on the smaller side is significant at 5 %.
    samples d;
    for (int i = 0; i < 12; ++i) d.push_back(i);
    require(centre_of(d).about.low == walsh_averages(d)[13], "Wilcoxon");
    experiments();
}
