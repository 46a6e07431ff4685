#pragma once
// Schedules of the learning rate by their names in a workload file:
//   [lr_schedule] kind = one_cycle | cosine | step | polynomial | constant, or what another header enters
//   warmup_epochs (of all but one_cycle), and of each its own settings; optimizer.lr is the largest rate

#include <cairn/optim/lr_schedule.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/phases.hpp>
#include <cairn/train/registry.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// The span of a schedule: `steps` updates in all, in epochs of phases.
struct lr_schedule_span {
    double peak;
    std::int64_t steps;
    const phase_list& phases;

    /// Of so many epochs.
    std::int64_t steps_of(double epochs) const { return static_cast<std::int64_t>(phases.steps_of(epochs)); }
};

using lr_schedules = registry<lr_schedule (*)(configuration&, const lr_schedule_span&)>;

/// Enters a schedule. Entry: `name`; make(configuration&, lr_schedule_span).
template <class Entry>
struct register_lr_schedule {
    register_lr_schedule() { lr_schedules::global().add(Entry::name, typeid(Entry), &Entry::make); }
};

/// Of settings that count epochs: in steps they are still whole numbers.
inline constexpr double most_epochs = 1e6;

/// A linear rise over lr_schedule.warmup_epochs, then `rest`.
inline lr_schedule with_warmup(configuration& settings, const lr_schedule_span& span, lr_schedule rest) {
    const std::int64_t rise = span.steps_of(settings.get("lr_schedule.warmup_epochs", 0.0, from_to(0, most_epochs)));
    require(rise < span.steps || rise == 0, "lr_schedule.warmup_epochs: ", rise, " steps of warm-up in a run of ",
            span.steps, " steps");
    return warmup(rise, 0, std::move(rest));
}

namespace detail {

struct one_cycle_entry {
    static constexpr const char* name = "one_cycle";
    static lr_schedule make(configuration& settings, const lr_schedule_span& span) {
        return one_cycle(span.steps, span.peak, settings.get("lr_schedule.pct_start", 0.2, from_to(0, 1)),
                         settings.get("lr_schedule.initial_fraction", 0.05, from_to(0, 1)));
    }
};

struct cosine_entry {
    static constexpr const char* name = "cosine";
    static lr_schedule make(configuration& settings, const lr_schedule_span& span) {
        return with_warmup(settings, span, cosine(span.steps, span.peak));
    }
};

struct step_decay_entry {
    static constexpr const char* name = "step";
    static lr_schedule make(configuration& settings, const lr_schedule_span& span) {
        std::vector<std::int64_t> milestones;
        for (double epoch :
             settings.get("lr_schedule.milestones", std::vector<double>{30, 60, 80}, above_to(0, most_epochs)))
            milestones.push_back(span.steps_of(epoch));
        const double gamma = settings.get("lr_schedule.gamma", 0.1, from_to(0, 1));
        return with_warmup(settings, span, step_decay(span.peak, gamma, milestones));
    }
};

struct polynomial_entry {
    static constexpr const char* name = "polynomial";
    static lr_schedule make(configuration& settings, const lr_schedule_span& span) {
        return with_warmup(settings, span,
                           polynomial(span.steps, span.peak, settings.get("lr_schedule.power", 2.0, above(0))));
    }
};

struct constant_entry {
    static constexpr const char* name = "constant";
    static lr_schedule make(configuration& settings, const lr_schedule_span& span) {
        return with_warmup(settings, span, constant(span.peak));
    }
};

static const register_lr_schedule<one_cycle_entry> one_cycle_is_known;
static const register_lr_schedule<cosine_entry> cosine_is_known;
static const register_lr_schedule<step_decay_entry> step_decay_is_known;
static const register_lr_schedule<polynomial_entry> polynomial_is_known;
static const register_lr_schedule<constant_entry> constant_is_known;

}  // namespace detail

/// The schedule that the settings name, or their phases.
inline lr_schedule make_lr_schedule(configuration& settings, const phase_list& phases) {
    const double peak = settings.get("optimizer.lr", 0.1, at_least(0));
    if (lr_schedule of_phases = phases.rates(peak); !of_phases.segments.empty()) return of_phases;
    const std::string kind = settings.get("lr_schedule.kind", "constant");
    const auto make = lr_schedules::global().at("lr_schedule.kind", kind);
    return make(settings, {peak, phases.steps(), phases});
}

}  // namespace cairn
