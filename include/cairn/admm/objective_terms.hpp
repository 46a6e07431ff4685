#pragma once
// The terms of an ADMM objective, by name. An objective says whether a run converges, its terms where it does not:
// an iteration whose objective is no number, or far above the first one, is an error that names both.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cairn::admm {

/// See the top of the file. Numbers are sums over samples.
struct objective_terms {
    std::vector<std::pair<std::string, double>> all;
    double residual = 0;  // ‖constraints‖² / ‖what they tie together‖², over all constraints

    void add(std::string name, double value) { all.emplace_back(std::move(name), value); }
    double total() const {
        double sum = 0;
        for (const auto& [name, value] : all) sum += value;
        return sum;
    }

    /// Throws, naming the term, unless all terms are finite and their sum is at most `bound`.
    void require_sound(double bound, double rho) const {
        constexpr const char* advice =
            "; raise admm.rho (and admm.nu), regularise by admm.mu, or take smaller initial "
            "weights (admm.init_scale)";
        for (const auto& [name, value] : all)
            require(std::isfinite(value), "the term ", name, " is ", value, " with rho = ", rho, advice);
        const auto largest = std::ranges::max_element(all, {}, [](const auto& t) { return t.second; });
        require(total() <= bound, "the objective is ", total(), ", far above where it began; its largest term is ",
                largest->first, ", ", largest->second, ", with rho = ", rho, advice);
    }
};

/// How ρ changes from iteration to iteration.
///   fixed      it does not
///   rising     × factor after three iterations with a rising objective (the papers' public code), up to `most`
///   growing    × factor every iteration, up to `most`: a continuation from loose to tight constraints
enum class rho_rule { fixed, rising, growing };

struct rho_schedule {
    rho_rule rule = rho_rule::fixed;
    double factor = 10, most = 1;
};

/// The state of that rule, saved with ρ.
struct rho_state {
    double rho = 0;
    double last_objective = std::numeric_limits<double>::infinity();  // that no first objective rises above
    std::int64_t rises = 0;                                           // in a row

    /// Returns the factor by which ρ has grown.
    double after_iteration(const rho_schedule& how, double objective) {
        rises = objective > last_objective ? rises + 1 : 0;
        last_objective = objective;
        const bool now = how.rule == rho_rule::growing || (how.rule == rho_rule::rising && rises >= 3);
        if (!now || rho >= how.most * (1 - 1e-12)) return 1;
        rises = 0;
        const double before = rho;
        rho = std::min(rho * how.factor, how.most);
        return rho / before;
    }
};

}  // namespace cairn::admm
