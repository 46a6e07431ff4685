#pragma once
// The plan of a run's pipeline: its stages and schedule, from costs that are known before training (train --plan prints
// it).
//   time of a unit = max(flops / rate, bytes / bandwidth) of the declared machine below
//   time of a cut  = bytes that cross it, forward and back, / bandwidth: inside a residual block the skip crosses too
// With parallel.cut_by = machine a simulation takes both from its machine (unit_seconds.hpp); parallel.cut_before names
// the cuts.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/parallel/pipeline/balance.hpp>
#include <cairn/parallel/pipeline/csv.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/parallel/pipeline/validate.hpp>
#include <cairn/train/parallel_axes.hpp>
#include <cairn/train/pipeline_energy.hpp>

#include <algorithm>
#include <array>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace cairn {

/// An indivisible part of a pipeline, for micro-batches of one size: a unit of the model (cut.hpp), or several.
struct planned_unit {
    std::string first, last;  // paths
    stage_costs costs{0, 0, 0};
    double parameters = 0;                       // trained values
    double saved_bytes = 0, boundary_bytes = 0;  // of a micro-batch: kept for backward; what enters
    double crossing = 0;                         // time of what enters, forward and back, where it crosses a cut
    int number = 0;                              // of its first unit in the model
    bool may_lead_packed = true;                 // see join_packed()

    /// The unit behind it becomes part of it.
    void join(const planned_unit& next) {
        last = next.last;
        costs.forward += next.costs.forward;
        costs.input += next.costs.input;
        costs.weight += next.costs.weight;
        parameters += next.parameters;
        saved_bytes += next.saved_bytes;
    }
    double seconds() const { return costs.forward + costs.input + costs.weight; }
};

/// See the top of the file.
struct pipeline_plan {
    std::string schedule;
    schedule_shape shape_of_schedule;
    std::vector<int> rank_of_stage, cuts;
    std::vector<planned_unit> stages;
    std::vector<shape> boundaries;        // of a batch of one sample, cut.hpp
    std::vector<std::string> parameters;  // paths of the whole model, in order
    /// Of a simulated machine, whose ranks slow down where others wait: what stages and a message take on it.
    struct machine_slack {
        host_power power;
        std::vector<stage_costs> stages;
        double hop = 0;
    };
    std::optional<machine_slack> slack;

    /// Of a step with so many micro-batches, validated. The schedule auto sees costs where each rank has one stage:
    /// with more they could change the placement.
    pipeline_program program(int micro_batches) const {
        schedule_shape s = shape_of_schedule;
        s.micro_batches = micro_batches;
        schedule_costs costs;
        if (shape_of_schedule.virtual_stages == 1)
            for (const planned_unit& stage : stages) costs.stages.push_back(stage.costs);
        pipeline_program p = schedule_from(schedule, s, costs);
        validate(p);
        require(p.rank_of_stage == rank_of_stage, "schedule ", schedule, ": a batch of ", micro_batches,
                " micro-batches would need another placement of the stages than one of ",
                shape_of_schedule.micro_batches, "; name a schedule, or set train.drop_last = true");
        if (slack) slow_on_slack(p, slack->stages, slack->hop, slack->power);
        return p;
    }
};

/// The machine by whose costs real pipelines are cut: about one core of today. Only the ratio matters, ten operations
/// to the byte. Declared and not measured, so that every rank, and a run that goes on, cuts alike.
struct declared_machine {
    static constexpr double flops = 1e11, bandwidth = 1e10;  // operations and bytes a second

    static double seconds(const phase_cost& c) { return std::max(c.flops / flops, c.bytes / bandwidth); }
};

namespace detail {

/// Numbers of the units in front of which a stage begins.
inline std::vector<int> named_cuts(const std::vector<planned_unit>& units, const std::vector<std::string>& names,
                                   int stages) {
    require(std::ssize(names) == stages - 1, "parallel.cut_before names ", names.size(), " layers; ", stages,
            " stages begin with the model and in front of ", stages - 1);
    std::vector<int> cuts;
    for (const std::string& name : names) {
        const auto begins = [&](const planned_unit& u) { return u.first == name || u.first.starts_with(name + '/'); };
        const auto at = std::ranges::find_if(units, begins);
        require(at != units.end(), "parallel.cut_before: no piece of the model that may be cut off begins with ", name,
                "; train --plan names them");
        cuts.push_back(static_cast<int>(at - units.begin()));
        require(cuts.back() > (cuts.size() > 1 ? cuts[cuts.size() - 2] : 0), "parallel.cut_before: ", name,
                " does not come after the layer before it");
    }
    return cuts;
}

/// Units that became one up to each cut; `cuts`: numbers of units, ascending.
inline std::vector<planned_unit> joined_at(const std::vector<planned_unit>& units, const std::vector<int>& cuts) {
    std::vector<planned_unit> stages;
    auto next = cuts.begin();
    for (std::size_t u = 0; u < units.size(); ++u)
        if (u == 0 || (next != cuts.end() && static_cast<int>(u) == *next)) {
            if (u > 0) ++next;
            stages.push_back(units[u]);
        } else {
            stages.back().join(units[u]);
        }
    return stages;
}

/// Parameters, gradients, and two numbers a parameter of the optimizer.
inline double fixed_bytes(const planned_unit& u) { return 4.0 * sizeof(float) * u.parameters; }

/// Throws where the stages of a rank take more than `limit` bytes together.
inline void require_ranks_within(const pipeline_program& p, const std::vector<planned_unit>& stages, double limit) {
    std::vector<saved_bytes> saved;
    std::vector<double> fixed(static_cast<std::size_t>(p.ranks));
    for (std::size_t s = 0; s < stages.size(); ++s) {
        saved.push_back({stages[s].saved_bytes, stages[s].saved_bytes});
        fixed[static_cast<std::size_t>(p.rank_of_stage[s])] += fixed_bytes(stages[s]);
    }
    for (int r = 0; r < p.ranks; ++r) {
        const double bytes = fixed[static_cast<std::size_t>(r)] + peak_saved(p, r, saved);
        require(bytes <= limit, "train.memory_limit_mb: the ", p.virtual_stages, " stages of pipeline rank ", r,
                " take ", bytes, " bytes together, ", limit,
                " are allowed; take more pipeline ranks, fewer stages a rank (parallel.schedule), smaller "
                "micro-batches or a larger limit");
    }
}

/// How many micro-batches each stage has in flight at once.
inline std::vector<double> in_flight(const pipeline_program& p) {
    std::vector<double> all;
    for (int s = 0; s < p.stages(); ++s) {
        std::vector<saved_bytes> one(static_cast<std::size_t>(p.stages()));
        one[static_cast<std::size_t>(s)] = {1, 1};
        all.push_back(peak_saved(p, p.rank_of_stage[static_cast<std::size_t>(s)], one));
    }
    return all;
}

}  // namespace detail

/// Units of a model that is still whole, for micro-batches of shape `in`.
template <class T, Device D>
std::vector<planned_unit> planned_units(sequential<T, D>& model, const shape& in) {
    std::vector<planned_unit> all;
    bool saved = false;  // by a unit in front: what the next one reads
    for (const model_unit& u : units_of(model, in)) {
        const double entering = all.empty() ? 0 : static_cast<double>(u.in.size()) * sizeof(T);
        all.push_back(
            {.first = u.path,
             .last = u.path,
             .costs = {declared_machine::seconds(u.cost.forward), declared_machine::seconds(u.cost.backward_input),
                       declared_machine::seconds(u.cost.backward_weight)},
             .parameters = static_cast<double>(u.cost.parameters),
             .saved_bytes = static_cast<double>(u.saved_bytes),
             .boundary_bytes = entering,
             .crossing = declared_machine::seconds({0, 2 * entering}),
             .number = static_cast<int>(all.size()),
             .may_lead_packed = !u.cost.saves_input || (u.cost.parameters > 0 && !saved)});
        saved = u.cost.saves_output || (u.cost.passes_through && (saved || u.cost.saves_input));
    }
    return all;
}

/// For activations that are packed: two layers that save one block, as attention and the linear layer behind it do,
/// have one packed form and one bound, and what packing the input of a layer without weights adds to gradients shows in
/// the weight in front. A stage knows its own layers alone: it does not begin between these.
inline void join_packed(std::vector<planned_unit>& units) {
    std::vector<planned_unit> joined;
    for (planned_unit& u : units)
        if (joined.empty() || u.may_lead_packed)
            joined.push_back(std::move(u));
        else
            joined.back().join(u);
    units = std::move(joined);
}

/// Collective: each number becomes the largest of all ranks. Ranks that share layers may have uneven parts, and cut
/// alike all the same.
inline void agree_on_costs(any_communicator& world, std::vector<planned_unit>& units) {
    std::vector<double> all;
    const auto each = [&](auto&& what) {
        for (planned_unit& u : units)
            for (double* number : {&u.costs.forward, &u.costs.input, &u.costs.weight, &u.parameters, &u.saved_bytes,
                                   &u.boundary_bytes, &u.crossing})
                what(*number);
    };
    each([&](double number) { all.push_back(number); });
    all_reduce(world, std::span<double>(all), {.op = reduction::max});
    auto largest = all.begin();
    each([&](double& number) { number = *largest++; });
}

/// The plan for these units. `limit`: bytes that a rank may take for parameters, gradients, optimizer (two numbers a
/// parameter) and saved activations; 0: any. Throws, saying what to change, where model, schedule and ranks do not fit.
inline pipeline_plan plan_pipeline(const std::vector<planned_unit>& units, const parallel_axes& axes, int micro_batches,
                                   double limit) {
    pipeline_plan plan{.schedule = axes.schedule,
                       .shape_of_schedule = {axes.pipeline, micro_batches, axes.virtual_stages}};
    const pipeline_program p =
        with_context("parallel.schedule", [&] { return schedule_from(axes.schedule, plan.shape_of_schedule, {}); });
    plan.shape_of_schedule.virtual_stages = p.virtual_stages;
    plan.rank_of_stage = p.rank_of_stage;
    require(
        !p.mirrored, "parallel.schedule = ", axes.schedule,
        " needs two copies of every stage: it can be printed and validated, not trained with; dualpipe_v needs one");

    std::vector<unit_load> loads;
    for (const planned_unit& u : units)
        loads.push_back({u.seconds(), detail::fixed_bytes(u), u.saved_bytes, u.crossing});
    memory_bound bound{.in_flight = detail::in_flight(p)};
    if (limit > 0) bound.limit = limit;  // of each stage; those of a rank together below
    plan.cuts = with_context(concat("parallel.pipeline = ", axes.pipeline), [&] {
        return axes.cut_before.empty() ? balance(loads, p.stages(), bound)
                                       : detail::named_cuts(units, axes.cut_before, p.stages());
    });

    plan.stages = detail::joined_at(units, plan.cuts);
    if (limit > 0) detail::require_ranks_within(p, plan.stages, limit);
    return plan;
}

/// What a plan's stages take by the costs of these units, the ones that it cut.
inline pipeline_plan::machine_slack slack_of(const pipeline_plan& plan, const std::vector<planned_unit>& units,
                                             const host_power& power) {
    pipeline_plan::machine_slack slack{power, {}, 0};
    for (const planned_unit& stage : detail::joined_at(units, plan.cuts)) {
        if (!slack.stages.empty()) slack.hop = std::max(slack.hop, stage.crossing / 2);
        slack.stages.push_back(stage.costs);
    }
    return slack;
}

/// Stages, bytes of each rank, and the bubble that the schedule has with these costs.
inline std::string describe(const pipeline_plan& plan, int micro_batches) {
    const pipeline_program p = plan.program(micro_batches);
    constexpr double mib = 1 << 20;
    const auto number = [](double x) {
        std::ostringstream out;
        out << std::fixed << std::setprecision(1) << x;
        return out.str();
    };
    std::vector<stage_costs> costs;
    std::vector<saved_bytes> saved;
    double whole = 0;
    for (const planned_unit& s : plan.stages) {
        costs.push_back(s.costs);
        saved.push_back({s.saved_bytes, s.saved_bytes});
        whole += s.seconds();
    }
    std::string text = concat("schedule ", p.name, ", ", micro_batches, " micro-batches, ", p.stages(), " stages\n");
    for (int s = 0; s < p.stages(); ++s) {
        const planned_unit& of = plan.stages[static_cast<std::size_t>(s)];
        text += concat("  stage ", s, " on pipeline rank ", p.rank_of_stage[static_cast<std::size_t>(s)], ": ",
                       of.first, of.first == of.last ? "" : " to " + of.last, "; ", number(100 * of.seconds() / whole),
                       " % of the time, ", static_cast<index_t>(of.parameters), " parameters",
                       s > 0 ? concat(", receives ", number(of.boundary_bytes / mib), " MiB a micro-batch") : "", '\n');
    }
    for (int r = 0; r < p.ranks; ++r) {
        double parameters = 0;
        for (int s = 0; s < p.stages(); ++s)
            if (p.rank_of_stage[static_cast<std::size_t>(s)] == r)
                parameters += plan.stages[static_cast<std::size_t>(s)].parameters;
        const double fixed = parameters * sizeof(float);
        text += concat("  pipeline rank ", r, ": parameters ", number(fixed / mib), " MiB, gradients ",
                       number(fixed / mib), " MiB, saved for backward at most ", number(peak_saved(p, r, saved) / mib),
                       " MiB without recomputation\n");
    }
    const pipeline_times times = simulate(p, costs);
    return text + concat("  predicted bubble: ", number(100 * times.makespan_bubble / times.makespan),
                         " % of a step, if messages cost nothing\n");
}

}  // namespace cairn
