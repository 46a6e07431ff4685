#pragma once
// train --plan: what a rank would hold and do, told by its own training steps on memory that is never touched
// (core/phantom.hpp). Bytes are those of a real run to the byte, workspace included, where autotuning chose the same
// kernels.

#include <cairn/core/phantom_rank.hpp>
#include <cairn/parallel/mesh.hpp>
#include <cairn/stash/plan.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/step_movement.hpp>

#include <nlohmann/json.hpp>

#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace cairn {

/// Collective: mesh, stages, bytes of each rank and predicted bubble, from shapes alone.
template <Device D, class T>
std::string describe_plan(run_parts<D, T>& run) {
    std::string text = run.mesh.grid.describe();
    if (run.model.plan) return text + describe(*run.model.plan, static_cast<int>(run.task.micro_batches));
    const index_t here = shard_of(run.task.batch, run.mesh.axes.data, run.mesh.grid.coordinate("data")).count,
                  samples = shard_of(here, static_cast<int>(run.task.micro_batches), 0).count;
    double saved = 0;
    for (const planned_unit& u :
         planned_units(run.model.layers.front(), run.model.over.batch_here(samples, run.task.data.sample)))
        saved += u.saved_bytes;
    std::ostringstream mine;
    mine << std::fixed << std::setprecision(1) << run.model.weights->values().size() << " of " << run.model.parameters
         << " parameters, with gradients " << 2.0 * static_cast<double>(run.model.weights->values().bytes()) / (1 << 20)
         << " MiB, saved for backward at most " << saved / (1 << 20) << " MiB without recomputation\n";
    const std::vector<std::string> all = all_gather_text(run.world, mine.str());
    text += "no pipeline\n";
    for (std::size_t r = 0; r < all.size(); ++r) text += concat("  rank ", r, ": ", all[r]);
    return text;
}

/// Collective. Runs `steps` training steps, and returns the highest bytes by category since the rank began ("memory",
/// "peak_bytes"), operations and bytes of a step ("flops", "bytes"), and on a phantom rank over a counted_machine those
/// by kind of kernel ("kinds"); messages and bytes that it sends in a step, by cause with its axis, from formulas
/// ("sent", step_movement.hpp) and whether gradients are compressed ("compresses"); of the run itself "batch",
/// "parameters" and "running_statistics" (how many layers' tensors). Throws on algorithms that do not train by
/// gradients.
template <Device D, class T>
nlohmann::json needs_of_steps(run_parts<D, T>& run, std::int64_t steps) {
    require(run.update.trainer != nullptr, "--plan counts steps of train.algorithm = gradient, not of ",
            run.task.algorithm);
    using sums = std::map<std::string, counted_machine::sum>;
    const auto* const machine = dynamic_cast<const counted_machine*>(phantom_here);
    const sums before = machine ? machine->kinds() : sums{};
    const flop_counter::scope counting;
    for (std::int64_t i = 0; i < steps; ++i) {
        auto b = run.batches.train->next();
        if (!b) b = run.batches.train->next();  // of the next epoch
        run.update.trainer->step({*b, run.task.micro_batches});
    }
    const double n = static_cast<double>(steps);
    counted_machine::sum all;
    nlohmann::json kinds = nlohmann::json::object();
    for (auto [kind, here] : machine ? machine->kinds() : sums{}) {
        if (const auto b = before.find(kind); b != before.end()) here -= b->second;
        if (here.calls > 0)
            kinds[kind] = {{"calls", here.calls / n}, {"flops", here.flops / n}, {"bytes", here.bytes / n}};
        all += here;
    }
    if (!machine)
        all = {0, static_cast<double>(flop_counter::total().flops), static_cast<double>(flop_counter::total().bytes)};
    nlohmann::json sent = nlohmann::json::object();
    for (const auto& [cause, m] : sent_in_step(run))
        sent[cause] = {{"axis", axis_of(cause)}, {"messages", m.messages}, {"bytes", m.bytes}};
    return {{"memory", memory_by_category(D::memory())},
            {"peak_bytes", D::memory().total().peak},
            {"flops", all.flops / n},
            {"bytes", all.bytes / n},
            {"kinds", kinds},
            {"sent", sent},
            {"compresses", run.replicas.compresses},
            {"batch", run.task.batch},
            {"parameters", run.model.parameters},
            {"running_statistics", run.model.buffers().size()}};
}

}  // namespace cairn
