#pragma once
// How a run's model is cut into the stages of a pipeline, and by which schedule they run: made from modelled costs
// before anything is trained (train --plan prints it).
//   time of a unit = max(flops / peak, bytes / bandwidth), of a machine with ten flops to the byte; only ratios matter
//   time of a cut  = bytes that cross it, forward and back, / bandwidth: inside a residual block the skip crosses too

#include <cairn/parallel/pipeline/balance.hpp>
#include <cairn/parallel/pipeline/csv.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/parallel/pipeline/validate.hpp>
#include <cairn/train/parallel_axes.hpp>

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// One stage, for micro-batches of one size.
struct stage_plan {
    std::string first, last;  // units
    stage_costs costs;
    index_t parameters = 0;                      // trained values
    double saved_bytes = 0, boundary_bytes = 0;  // of a micro-batch: kept for backward; what enters
};

/// See the top of the file.
struct pipeline_plan {
    std::string schedule;
    schedule_shape shape_of_schedule;
    std::vector<int> rank_of_stage, cuts;
    std::vector<stage_plan> stages;
    std::vector<shape> boundaries;        // of a batch of one sample, cut.hpp
    std::vector<std::string> parameters;  // paths of the whole model, in order

    /// Of a step with so many micro-batches, validated. The schedule auto sees costs where each rank has one stage: with
    /// more they could change the placement.
    pipeline_program program(int micro_batches) const {
        schedule_shape s = shape_of_schedule;
        s.micro_batches = micro_batches;
        schedule_costs costs;
        if (shape_of_schedule.virtual_stages == 1)
            for (const stage_plan& stage : stages) costs.stages.push_back(stage.costs);
        pipeline_program p = schedule_from(schedule, s, costs);
        validate(p);
        require(p.rank_of_stage == rank_of_stage, "schedule ", schedule, ": a batch of ", micro_batches,
                " micro-batches would need another placement of the stages than one of ",
                shape_of_schedule.micro_batches, "; name a schedule, or set train.drop_last = true");
        return p;
    }
};

namespace detail {

inline double modelled_seconds(const phase_cost& c) { return std::max(c.flops / 1e11, c.bytes / 1e10); }

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

/// The plan for a model that is still whole. `sample`: a batch of one sample; `micro_batches` of at most `samples` each.
/// `limit`: bytes that a rank may take for parameters, gradients, optimizer (two numbers a parameter) and saved
/// activations; 0: any. Throws, saying what to change, where model, schedule and ranks do not fit.
template <class T, Device D>
pipeline_plan plan_pipeline(sequential<T, D>& model, const parallel_axes& axes, const shape& sample, index_t samples,
                            int micro_batches, double limit) {
    pipeline_plan plan{.schedule = axes.schedule,
                       .shape_of_schedule = {axes.pipeline, micro_batches, axes.virtual_stages}};
    const pipeline_program p =
        with_context("parallel.schedule", [&] { return schedule_from(axes.schedule, plan.shape_of_schedule, {}); });
    plan.shape_of_schedule.virtual_stages = p.virtual_stages;
    plan.rank_of_stage = p.rank_of_stage;
    require(
        !p.mirrored, "parallel.schedule = ", axes.schedule,
        " needs two copies of every stage: it can be printed and validated, not trained with; dualpipe_v needs one");
    for (const auto& [name, parameter] : model.parameters())
        if (parameter->tied_to.empty()) plan.parameters.push_back(name);

    const std::vector<model_unit> units = units_of(model, sample.with(0, samples));
    std::vector<unit_load> loads;
    for (const model_unit& u : units)
        loads.push_back({detail::modelled_seconds(u.cost.forward) + detail::modelled_seconds(u.cost.backward_input) +
                             detail::modelled_seconds(u.cost.backward_weight),
                         4.0 * sizeof(float) * static_cast<double>(u.cost.parameters),
                         static_cast<double>(u.saved_bytes),
                         detail::modelled_seconds({0, 2.0 * sizeof(T) * static_cast<double>(u.in.size())})});
    memory_bound bound{.in_flight = detail::in_flight(p)};
    if (limit > 0) bound.limit = limit;  // each stage by itself
    plan.cuts =
        with_context(concat("parallel.pipeline = ", axes.pipeline), [&] { return balance(loads, p.stages(), bound); });

    std::size_t at = 0;
    for (int s = 0; s < p.stages(); ++s) {
        const std::size_t end =
            s + 1 < p.stages() ? static_cast<std::size_t>(plan.cuts[static_cast<std::size_t>(s)]) : units.size();
        stage_plan stage{.first = units[at].path, .last = units[end - 1].path, .costs = {0, 0, 0}};
        stage.boundary_bytes = s == 0 ? 0 : static_cast<double>(units[at].in.size()) * sizeof(T);
        for (; at < end; ++at) {
            stage.costs.forward += detail::modelled_seconds(units[at].cost.forward);
            stage.costs.input += detail::modelled_seconds(units[at].cost.backward_input);
            stage.costs.weight += detail::modelled_seconds(units[at].cost.backward_weight);
            stage.parameters += units[at].cost.parameters;
            stage.saved_bytes += static_cast<double>(units[at].saved_bytes);
        }
        plan.stages.push_back(stage);
    }
    return plan;
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
    for (const stage_plan& s : plan.stages) {
        costs.push_back(s.costs);
        saved.push_back({s.saved_bytes, s.saved_bytes});
        whole += s.costs.forward + s.costs.input + s.costs.weight;
    }
    std::string text = concat("schedule ", p.name, ", ", micro_batches, " micro-batches, ", p.stages(), " stages\n");
    for (int s = 0; s < p.stages(); ++s) {
        const stage_plan& of = plan.stages[static_cast<std::size_t>(s)];
        text += concat("  stage ", s, " on pipeline rank ", p.rank_of_stage[static_cast<std::size_t>(s)], ": ",
                       of.first, of.first == of.last ? "" : " to " + of.last, "; ",
                       number(100 * (of.costs.forward + of.costs.input + of.costs.weight) / whole), " % of the time, ",
                       of.parameters, " parameters",
                       s > 0 ? concat(", receives ", number(of.boundary_bytes / mib), " MiB a micro-batch") : "", '\n');
    }
    for (int r = 0; r < p.ranks; ++r) {
        index_t parameters = 0;
        for (int s = 0; s < p.stages(); ++s)
            if (p.rank_of_stage[static_cast<std::size_t>(s)] == r)
                parameters += plan.stages[static_cast<std::size_t>(s)].parameters;
        const double fixed = static_cast<double>(parameters) * sizeof(float);
        text += concat("  pipeline rank ", r, ": parameters ", number(fixed / mib), " MiB, gradients ",
                       number(fixed / mib), " MiB, saved for backward at most ", number(peak_saved(p, r, saved) / mib),
                       " MiB without recomputation\n");
    }
    const pipeline_times times = simulate(p, costs);
    return text + concat("  predicted bubble: ", number(100 * times.makespan_bubble / times.makespan),
                         " % of a step, if messages cost nothing\n");
}

}  // namespace cairn
