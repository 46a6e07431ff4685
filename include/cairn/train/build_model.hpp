#pragma once
// The model of a run, as far as this rank holds it: its layers, their tensors or samples cut where ranks share layers,
// its stages where there is a pipeline, the memory of its parameters, and what it recomputes. Every rank does the same.
// Throws before any training on settings that do not fit together.

#include <cairn/admm/split_chain.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/stash/plan.hpp>
#include <cairn/train/freeze.hpp>
#include <cairn/train/models.hpp>
#include <cairn/train/objectives.hpp>
#include <cairn/train/optimizers.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/unit_seconds.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Device D, class T>
class model_builder {
public:
    model_builder(run_task& task, any_communicator& world, run_mesh& mesh)
        : task_(task), settings_(task.settings), world_(world), mesh_(mesh) {}

    /// Collective.
    run_model<D, T> make() && {
        const objective_ends ends{task_.data.info, task_.data.sample};
        const shape of_sample = read_objective<D>(settings_, task_.data.info).outputs(ends);
        const index_t outputs = of_sample.back();    // numbers for a sample,
        const bool one_row = of_sample.rank() == 1;  // or for each of its labels
        memory_ = settings_.choice("train.activation_memory",
                                   {"keep", "recompute", "recompute_smallest", "compress", "auto"}, "keep");
        const bool packs = memory_ == "compress" || memory_ == "auto";
        require(packs_activations<T> || !packs, "train.activation_memory = ", memory_,
                " packs activations of float: in ", type_name<T>(), " take keep, recompute or recompute_smallest");
        require(!packs || settings_.get("train.cuda_graph", std::string("off")) != "on",
                "train.cuda_graph = on records steps, and how many bytes packed activations take is known in each step "
                "alone: set it to off, or train.activation_memory = keep, recompute or recompute_smallest");
        limit_memory();
        freeze_ = settings_.get("optimizer.freeze", std::vector<std::string>{});
        require(freeze_.empty() || !task_.is_split(), "optimizer.freeze is for train.algorithm = gradient; ",
                task_.algorithm, " trains all layers");
        require(
            !task_.options.slack ||
                (mesh_.axes.pipeline > 1 && !mesh_.axes.share_layers() && task_.algorithm == "gradient"),
            "--p-state slack: known before a step runs is only the slack of a pipeline that trains by gradients and "
            "whose ranks have whole layers (parallel.pipeline > 1, no parallel.tensor, no parallel.spatial); give "
            "all kernels one frequency, --p-state 0, 1, ...");
        sequential<T, D> model = make_whole(outputs, one_row);
        if constexpr (std::same_as<D, cpu> && std::same_as<T, float>)  // as ADMM is
            if (task_.is_split()) split_places_ = admm::split_places(model, task_.algorithm);
        require(split_places_.empty() || memory_ == "keep",
                "train.activation_memory is for train.algorithm = gradient");
        if (mesh_.axes.share_layers()) model = share_layers(outputs);
        const shape batch = made_.over.batch_here(task_.batch, task_.data.sample);
        std::vector<shape> inputs{batch};  // of each chain here
        if (mesh_.axes.pipeline > 1)
            inputs = cut_into_stages(model, outputs);
        else
            made_.layers.push_back(std::move(model));
        parameter_list<float, D> parameters;
        for (auto& part : made_.layers)
            for (auto& p : part.parameters()) parameters.push_back(p);
        made_.weights = std::make_unique<arena<float, D>>(std::move(parameters), task_.seed,
                                                          made_.plan ? arena_scope::stage : arena_scope::whole_model);
        for (std::size_t i = 0; i < made_.layers.size(); ++i) {
            const shape in = inputs[i].with(0, task_.batch);
            if (memory_ == "recompute") apply(made_.layers[i], stash_planner(made_.layers[i], in).sqrt_plan());
            if (memory_ == "recompute_smallest" || memory_ == "auto")  // until its own plan is made
                apply(made_.layers[i], stash_planner(made_.layers[i], in).smallest_plan());
        }
        if constexpr (std::same_as<T, float16>)
            made_.scaler.emplace(read_loss_scale(settings_));
        else
            pass_over_loss_scale(settings_);
        return std::move(made_);
    }

private:
    void limit_memory() {
        const auto mib = settings_.get<index_t>("train.memory_limit_mb", 0, at_least(0));
        if (mib > 0) made_.memory_limit = std::make_unique<limited_memory>(D::memory(), mib << 20);
        require(
            memory_ != "auto" || mib > 0,
            "train.activation_memory = auto plans for a limit: set train.memory_limit_mb, MiB that a rank may hold");
        require(memory_ != "auto" || mesh_.axes.pipeline == 1,
                "train.activation_memory = auto plans for a whole model, and parallel.pipeline = ", mesh_.axes.pipeline,
                " cuts it; take compress or recompute");
    }

    // All of every layer, as one rank has it. Has no memory yet.
    sequential<T, D> make_whole(index_t outputs, bool one_row) {
        sequential<T, D> model = make_model<D, T>(settings_, task_.data.sample, outputs, {}, task_.data.graph);
        const index_t frozen = freeze(model.parameters(), freeze_);
        const shape in = shared_layers{}.batch_here(task_.batch, task_.data.sample),
                    out = with_context("model " + task_.name, [&] { return model.output_shape(in); });
        shape wanted{task_.batch};
        if (!one_row) wanted.push_back(task_.data.info.labels_each);
        wanted.push_back(outputs);
        // Labels of voxels may lie along several axes.
        const bool fits = one_row
                              ? out == wanted
                              : out.front() == wanted.front() && out.back() == outputs && out.size() == wanted.size();
        require(fits, "model ", task_.name, ": samples of shape ", task_.data.sample, " give an output of shape ", out,
                ", the data need ", wanted);
        made_.training_flops = flops_of_training(model, in) / static_cast<double>(task_.batch);
        made_.parameters = model.cost(in).parameters - frozen;
        return model;
    }

    // Of a batch; backward ends behind frozen layers at the front.
    static double flops_of_training(sequential<T, D>& model, const shape& in) {
        double flops = 0;
        shape s = in;
        for (int i = 0; i < model.size(); ++i) {
            const layer_cost c = model[i].cost(s);
            flops += c.forward.flops;
            if (i >= model.first_trained()) flops += c.backward_input.flops;
            if (model[i].trains() != any_layer<T, D>::kind::frozen) flops += c.backward_weight.flops;
            s = model[i].output_shape(s);
        }
        return flops;
    }

    // The same network of layers that are shared, and the part of the samples that is here.
    sequential<T, D> share_layers(index_t outputs) {
        const std::string kind = settings_.get("optimizer.kind", std::string("sgd"));
        const std::vector<std::string> whole = preconditioner_names<D>();
        require(std::ranges::find(whole, kind) == whole.end(), "optimizer.kind = ", kind,
                " needs whole layers on every rank, but parallel.tensor and parallel.spatial share them between ranks; "
                "take sgd, adam, adamw, lars or lamb, or only parallel.pipeline");
        require_same_samples();
        shared_layers& over = made_.over;
        if (mesh_.axes.tensor > 1) {
            made_.tensor_ranks = std::make_unique<tensor_axis<any_communicator>>(
                mesh_.grid["tensor"],
                tensor_axis<any_communicator>::config{.overlap = settings_.get("parallel.overlap", true)});
            over.tensor = made_.tensor_ranks.get();
            if (mesh_.axes.sequence_parallel) over.sequences = sequence_layout::parts;
        }
        if (mesh_.axes.spatial_ranks() > 1) {
            over.spatial = &mesh_.grid["spatial"];
            over.spatial_extents = mesh_.axes.spatial;
        }
        sequential<T, D> model = make_model<D, T>(settings_, task_.data.sample, outputs, over, task_.data.graph);
        freeze(model.parameters(), freeze_);
        made_.outputs_are_cut =
            over.tensor && model.output_shape(over.batch_here(task_.batch, task_.data.sample)).back() != outputs;
        return model;
    }

    void require_same_samples() {
        require(!task_.data.may_skip,
                "data.folder.corrupt = skip: ranks that share the model read the same samples, and could leave out "
                "different "
                "ones; take data.folder.corrupt = stop, or parallel.data alone");
    }

    // This rank's stages of a pipeline; returns their inputs, for one sample. Every rank cuts alike.
    std::vector<shape> cut_into_stages(sequential<T, D>& model, index_t outputs) {
        require_same_samples();
        const index_t here = shard_of(task_.batch, mesh_.axes.data, 0).count;
        require(here >= task_.micro_batches, "train.micro_batches = ", task_.micro_batches, ": a batch of ",
                task_.batch, " gives the pipelines ", here, " samples each");
        const auto m = static_cast<int>(task_.micro_batches);
        const shape one = made_.over.batch_here(1, task_.data.sample);
        const shape in = one.with(0, shard_of(here, m, 0).count);
        std::vector<planned_unit> units = planned_units(model, in);
        std::vector<planned_unit> priced;  // on the machine of a simulation
        if constexpr (std::same_as<D, cpu>)
            if (mesh_.axes.cut_by == "machine" || task_.options.slack) {
                require(on_phantom_rank(),
                        "parallel.cut_by = machine is for simulations (train --simulate), which print the stages; a "
                        "run on real ranks takes them by parallel.cut_before");
                require(!mesh_.axes.share_layers(),
                        "parallel.cut_by = machine prices layers one by one; those that ranks share (parallel.tensor, "
                        "parallel.spatial) send as they run: take parallel.cut_by = declared");
                priced = units;
                price_on_machine(priced, make_model<D, T>(settings_, task_.data.sample, outputs, {}, task_.data.graph),
                                 in);
                if (mesh_.axes.cut_by == "machine") units = priced;
            }
        if (made_.over.spatial) join_after_switch(units, model);
        if (!split_places_.empty()) join_split_layers(units);
        if (memory_ == "compress")
            for (auto* const all : {&units, &priced})
                if (!all->empty()) join_packed(*all);
        require(split_places_.empty() || mesh_.axes.pipeline <= std::ssize(units),
                "train.algorithm = ", task_.algorithm, " puts layers on ranks: ", mesh_.axes.pipeline,
                " ranks, but the model has ", units.size(), " layers to split; start at most ", units.size(),
                " (mpirun -np ", units.size(), ')');
        agree_on_costs(world_, units);
        if (!priced.empty()) agree_on_costs(world_, priced);
        pipeline_plan plan = plan_pipeline(units, mesh_.axes, m, memory_limit());
        for (const auto& [name, parameter] : model.parameters())
            if (parameter->tied_to.empty()) plan.parameters.push_back(name);
        require_equal(world_, describe(plan, m) + schedule_csv(plan.program(m)), "the plan of the pipeline");
        if (task_.options.slack) plan.slack = slack_of(plan, priced, *task_.options.slack);
        for (int& c : plan.cuts) c = units[static_cast<std::size_t>(c)].number;
        std::vector<sequential<T, D>> stages = cut(model, one, plan.cuts);
        plan.boundaries = boundaries_of(stages, one);
        std::vector<shape> inputs;
        for (std::size_t s = 0; s < stages.size(); ++s)
            if (plan.rank_of_stage[s] == mesh_.grid.coordinate("pipeline")) {
                inputs.push_back(plan.boundaries[s]);
                made_.layers.push_back(std::move(stages[s]));
            }
        made_.plan = std::make_shared<const pipeline_plan>(std::move(plan));
        return inputs;
    }

    // ADMM cuts between split layers alone. Its iteration has five products of a layer, three of the first, and with
    // admm.solver = exact a Gram matrix and a product with its inverse; all in proportion to the layer's forward.
    void join_split_layers(std::vector<planned_unit>& units) {
        std::vector<planned_unit> joined;
        for (const admm::split_place& place : split_places_) {
            planned_unit whole = units[static_cast<std::size_t>(place.begin)];
            for (int u = place.begin + 1; u < place.end; ++u) whole.join(units[static_cast<std::size_t>(u)]);
            whole.costs = {(joined.empty() ? 3 : 5) * whole.costs.forward, 0, 0};
            joined.push_back(std::move(whole));
        }
        units = std::move(joined);
    }

    // Bytes that a rank may take, the least of all ranks; 0: any.
    double memory_limit() {
        constexpr double unlimited = static_cast<double>(std::numeric_limits<index_t>::max() / 2);
        double limit = static_cast<double>(D::memory().limit());
        all_reduce(world_, std::span<double>(&limit, 1), {.op = reduction::min});
        return memory_ != "keep" || limit >= unlimited ? 0 : limit;
    }

    // Behind the switch to whole samples a rank has another number of them: no stage begins there.
    void join_after_switch(std::vector<planned_unit>& units, sequential<T, D>& model) {
        const index_t n = 2 * made_.over.spatial->size();
        const std::vector<model_unit> probe = units_of(model, made_.over.batch_here(n, task_.data.sample));
        const auto dealt = std::ranges::find_if(probe, [&](const model_unit& u) { return u.in.front() != n; });
        if (dealt == probe.end()) return;
        const auto last = units.begin() + (dealt - probe.begin()) - 1;
        for (auto u = last + 1; u != units.end(); ++u) last->join(*u);
        units.erase(last + 1, units.end());
    }

    run_task& task_;
    configuration& settings_;
    any_communicator& world_;
    run_mesh& mesh_;
    run_model<D, T> made_;
    std::string memory_;                           // train.activation_memory
    std::vector<std::string> freeze_;              // optimizer.freeze
    std::vector<admm::split_place> split_places_;  // of ADMM
};

}  // namespace cairn
