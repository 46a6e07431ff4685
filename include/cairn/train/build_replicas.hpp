#pragma once
// Ranks with the same parameters, by [parallel] and [compress] of the settings: how gradients are summed, who updates
// which parameters (ZeRO), and what adds up norms where a rank has only stages or slices of the model.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/train/compressors.hpp>
#include <cairn/train/optimizers.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// From numbers by parameter of this rank's stages of a pipeline, those of the whole model, in its order. Collective.
template <Device D, class T>
std::function<std::vector<double>(std::vector<double>)> sum_over_stages(run_mesh& mesh, const run_model<D, T>& model) {
    const std::vector<std::string>& all = model.plan->parameters;
    std::vector<std::size_t> place;  // of this rank's parameters in the whole model
    for (const auto& [name, p] : model.weights->parameters()) {
        const auto at = std::ranges::find(all, name);
        require(at != all.end(), "parameter ", name, " of a stage is not in the whole model");
        place.push_back(static_cast<std::size_t>(at - all.begin()));
    }
    return [&stages = mesh.grid["pipeline"].host, n = all.size(), place = std::move(place)](std::vector<double> mine) {
        std::vector<double> whole(n);
        for (std::size_t i = 0; i < place.size(); ++i) whole[place[i]] = mine[i];
        all_reduce(stages, std::span<double>(whole), {.label = "norms"});
        return whole;
    };
}

/// See the top of the file.
template <Device D, class T>
class replica_builder {
public:
    replica_builder(run_task& task, any_communicator& world, run_mesh& mesh, run_model<D, T>& model)
        : task_(task), settings_(task.settings), world_(world), mesh_(mesh), model_(model) {}

    /// Collective. One rank that never skips a step needs nothing of it.
    run_replicas<D> make(const run_batches<D>& batches) && {
        made_.over = std::make_unique<channel<any_communicator>>(mesh_.grid.across(world_, {"data", "spatial"}));
        const int size = made_.over->size(), rank = made_.over->rank();
        typename ranks<D>::config c;
        c.gradients.bucket_bytes = settings_.get<index_t>("parallel.bucket_mib", 25, from_to(1, 1 << 20)) << 20;
        c.gradients.overlap = settings_.get("parallel.overlap", true);
        c.gradients.all_reduce = all_reduce_named(settings_.choice(
            "parallel.all_reduce",
            {"auto", "ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical", "native"}, "auto"));
        require(std::same_as<D, cpu> || c.gradients.all_reduce == all_reduce_algorithm::automatic,
                "parallel.all_reduce: gradients on a GPU are summed by its own library; leave it out there");
        c.sync_batch_norm = settings_.get("parallel.sync_batch_norm", false) && size > 1;
        // Steps for which a dynamic loss scale was too large are skipped whatever the policy; one rank does that by
        // itself.
        const bool may_skip = task_.skips_non_finite || (model_.scales_itself() && world_.size() > 1);
        c.agree.non_finite = may_skip ? non_finite_policy::skip : non_finite_policy::stop;
        if (model_.scaler && !model_.scales_itself())
            c.agree.advice += ", or take a smaller train.loss_scale, or dynamic";
        c.gradients.seed = task_.seed;
        c.zero_stage = settings_.get("parallel.zero_stage", 0, from_to(0, 2));
        compression how = make_compression(settings_, size, rank);
        c.everyone = &mesh_.grid.everyone().host;
        if (world_.size() == 1 && !may_skip) return std::move(made_);
        if (size == 1) {
            c.zero_stage = 0;
        } else {
            constexpr bool on_host = std::same_as<D, cpu>;
            if constexpr (!on_host) c.gradients.hook_on_device = make_method<D>(settings_, size, rank);
            c.gradients.method = std::move(how.method);
            c.gradients.candidates = std::move(how.candidates);
            made_.compresses = c.gradients.method || !c.gradients.candidates.empty();
            made_.compressor_has_momentum = how.kind == "dgc";
            if constexpr (!on_host) c.device = made_.over->device.split(0, rank);
        }
        if (model_.over.tensor)
            made_.slices =
                std::make_unique<slice_sums<any_communicator>>(mesh_.grid["tensor"], *model_.weights, "tensor");
        if (c.zero_stage) share_optimizer(c);
        if (model_.plan || made_.slices) sum_over_the_model();
        if (c.sync_batch_norm && mesh_.axes.data > 1) require_even_micro_batches(batches);
        made_.ranks = std::make_unique<ranks<D>>(made_.over->host, *model_.weights, std::move(c));
        if (model_.over.spatial && !made_.ranks->group)  // statistics of whole samples in any case
            made_.ranks->group.emplace(model_.over.spatial->host.split(0, model_.over.spatial->rank()));
        return std::move(made_);
    }

private:
    // ZeRO: each rank holds the optimizer's state of its own range of the parameters.
    void share_optimizer(typename ranks<D>::config& c) {
        const std::string rule = optimizer_of_steps<D>(settings_);
        const bool whole = optimizers<D>::global().contains(rule) &&
                           optimizers<D>::global().at("optimizer.kind", rule).whole_parameters;
        c.owners = owners_of(*model_.weights, made_.over->size(), whole);
        // Ranks with slices of the same parameters add up their norms, one parameter after another.
        if (whole && made_.slices)
            require_equal(mesh_.grid["tensor"].host, parameters_of(c.owners),
                          concat("parallel.zero_stage with optimizer.kind = ", rule,
                                 ": which rank owns which parameters (tensors that do not divide evenly over "
                                 "parallel.tensor; set parallel.zero_stage = 0)"));
        made_.shard = detail::shard_plan{c.owners[static_cast<std::size_t>(made_.over->rank())],
                                         [&over = made_.over->host](std::vector<double> by_parameter) {
                                             all_reduce(over, std::span<double>(by_parameter), {.label = "norms"});
                                             return by_parameter;
                                         },
                                         {}};
    }

    // "rank 0: conv1/weight conv1/bias; rank 1: …"
    std::string parameters_of(const std::vector<range>& owners) const {
        std::string text;
        for (std::size_t r = 0; r < owners.size(); ++r) {
            text += concat(r ? "; " : "", "rank ", r, ':');
            for (const auto& [name, p] : model_.weights->parameters()) {
                const index_t begin = p->value.data() - model_.weights->values().data();
                if (begin >= owners[r].begin && begin < owners[r].end()) text += ' ' + name;
            }
        }
        return text;
    }

    // The norm of all gradients is that of all slices and stages, added up in the order of the whole model.
    void sum_over_the_model() {
        if (!made_.shard) made_.shard = detail::shard_plan{{0, model_.weights->values().size()}, {}, {}};
        const slice_sums<any_communicator>* const slices = made_.slices.get();
        if (slices) made_.shard->sum_over_slices = [slices](std::span<double> of_one) { slices->of_slices(of_one); };
        std::function<std::vector<double>(std::vector<double>)> stages;
        if (model_.plan) stages = sum_over_stages(mesh_, model_);
        made_.shard->over_ranks = [before = std::move(made_.shard->over_ranks), slices,
                                   stages](std::vector<double> mine) {
            if (before) mine = before(std::move(mine));
            if (slices) slices->by_parameter(mine);
            return stages ? stages(std::move(mine)) : mine;
        };
    }

    void require_even_micro_batches(const run_batches<D>& batches) {
        for (const auto& part : batches.train->parts()) {
            const index_t batch = part->config().batch, rest = part->samples_per_epoch() % batch,
                          least = (rest ? rest : batch) / mesh_.axes.data;
            require(least >= task_.micro_batches && !task_.data.may_skip,
                    "parallel.sync_batch_norm: every rank must run equally many micro-batches, but the smallest batch "
                    "gives a rank ",
                    least, " samples for train.micro_batches = ", task_.micro_batches,
                    ", or data.folder.corrupt = skip could leave it without; set train.drop_last = true, another "
                    "train.batch, or data.folder.corrupt = stop");
        }
    }

    run_task& task_;
    configuration& settings_;
    any_communicator& world_;
    run_mesh& mesh_;
    run_model<D, T>& model_;
    run_replicas<D> made_;
};

}  // namespace cairn
