#pragma once
// Which versions of a run are kept: those that a rule keeps, those with a tag, and always the one committed last.
//   "last 3"           the three that were committed last
//   "best 2"           the two of the best metric
//   "every 10 epochs"  the first version at or after each multiple of 10 epochs
//   "every 500 steps"  likewise
// Runs after a commit, on committed versions alone. Without rules all are kept.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
struct retention_rule {
    enum class kind { last, best, every_epochs, every_steps };
    kind what = kind::last;
    std::int64_t number = 1;
    bool operator==(const retention_rule&) const = default;
};

/// What retention knows of a committed version.
struct retained_version {
    std::string name;
    std::int64_t step = 0;
    double epoch = 0;                // epochs trained, in fractions
    std::optional<double> metric{};  // that by which the run says what is best
    bool tagged = false;
    double committed = 0;  // when, in seconds
};

/// Which metric is best.
enum class best_metric { largest, smallest };

/// The rules of a list of texts. Throws on one that is none, naming it.
inline std::vector<retention_rule> parse_retention(const std::vector<std::string>& texts) {
    std::vector<retention_rule> rules;
    for (const std::string& text : texts) {
        std::istringstream in(text);
        std::string first, digits, unit, more;
        in >> first >> digits;
        using kind = retention_rule::kind;
        retention_rule rule;
        bool known = first == "last" || first == "best";
        if (first == "best") rule.what = kind::best;
        if (first == "every") {
            in >> unit;
            known = unit == "epochs" || unit == "steps" || (digits == "1" && (unit == "epoch" || unit == "step"));
            rule.what = unit.starts_with("epoch") ? kind::every_epochs : kind::every_steps;
        }
        const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), rule.number);
        known = known && problem == std::errc() && end == digits.data() + digits.size() && rule.number >= 1;
        require(known && !(in >> more), "\"", text,
                "\" is no rule of which versions are kept; write \"last N\", \"best N\", \"every N epochs\" or "
                "\"every N steps\", N at least 1");
        rules.push_back(rule);
    }
    return rules;
}

namespace detail {

using version_list = std::vector<const retained_version*>;

/// The first `number` of those with a metric, the best first; of equal ones the later first.
inline version_list best_versions(const version_list& newest_first, std::size_t number, best_metric best) {
    version_list ranked;
    for (const retained_version* v : newest_first)
        if (v->metric && !std::isnan(*v->metric)) ranked.push_back(v);
    std::stable_sort(ranked.begin(), ranked.end(), [&](const retained_version* a, const retained_version* b) {
        return best == best_metric::largest ? *a->metric > *b->metric : *a->metric < *b->metric;
    });
    ranked.resize(std::min(ranked.size(), number));
    return ranked;
}

/// The first at or after each multiple of `number`, by progress(version).
template <class Progress>
version_list versions_at_multiples(version_list versions, double number, Progress progress) {
    std::stable_sort(versions.begin(), versions.end(),
                     [&](const retained_version* a, const retained_version* b) { return progress(*a) < progress(*b); });
    version_list kept;
    double reached = 0;
    for (const retained_version* v : versions) {
        const double multiple = std::floor(progress(*v) / number + 1e-9);
        if (multiple <= reached) continue;
        reached = multiple;
        kept.push_back(v);
    }
    return kept;
}

}  // namespace detail

/// Names of the versions that no rule keeps, the oldest first. Versions without a metric, or with one that is not a
/// number, are no best ones.
inline std::vector<std::string> versions_to_remove(const std::vector<retained_version>& versions,
                                                   const std::vector<retention_rule>& rules, best_metric best) {
    if (rules.empty() || versions.empty()) return {};
    detail::version_list newest_first, kept;
    for (const retained_version& v : versions) newest_first.push_back(&v);
    std::stable_sort(newest_first.begin(), newest_first.end(),
                     [](const retained_version* a, const retained_version* b) {
                         return std::pair(a->committed, a->step) > std::pair(b->committed, b->step);
                     });
    kept.push_back(newest_first.front());
    for (const retained_version* v : newest_first)
        if (v->tagged) kept.push_back(v);
    for (const retention_rule& rule : rules) {
        const auto number = static_cast<std::size_t>(rule.number);
        const detail::version_list more = [&] {
            switch (rule.what) {
                case retention_rule::kind::best:
                    return detail::best_versions(newest_first, number, best);
                case retention_rule::kind::every_epochs:
                    return detail::versions_at_multiples(newest_first, static_cast<double>(number),
                                                         [](const retained_version& v) { return v.epoch; });
                case retention_rule::kind::every_steps:
                    return detail::versions_at_multiples(newest_first, static_cast<double>(number),
                                                         [](const auto& v) { return static_cast<double>(v.step); });
                case retention_rule::kind::last:
                    break;
            }
            return detail::version_list(
                newest_first.begin(),
                newest_first.begin() + static_cast<std::ptrdiff_t>(std::min(newest_first.size(), number)));
        }();
        kept.insert(kept.end(), more.begin(), more.end());
    }
    std::vector<std::string> removed;
    for (auto v = newest_first.rbegin(); v != newest_first.rend(); ++v)
        if (std::find(kept.begin(), kept.end(), *v) == kept.end()) removed.push_back((*v)->name);
    return removed;
}

}  // namespace cairn
