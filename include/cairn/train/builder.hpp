#pragma once
// From settings to the parts of a run:
//   data → mesh → network (build_model.hpp) → batches → ranks → optimizer, preconditioner → trainer
// Every rank builds the same. Throws before any training on settings that do not fit together.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/parallel/sharded_state.hpp>
#include <cairn/train/activation_settings.hpp>
#include <cairn/train/admm_training.hpp>
#include <cairn/train/audit_activations.hpp>
#include <cairn/train/build_model.hpp>
#include <cairn/train/compressors.hpp>
#include <cairn/train/curvature.hpp>
#include <cairn/train/loss_scaling.hpp>
#include <cairn/train/lr_schedules.hpp>
#include <cairn/train/objectives.hpp>
#include <cairn/train/optimizers.hpp>
#include <cairn/train/quadratic_update.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/same_data.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <utility>

namespace cairn {

/// See the top of the file.
template <Device D = cpu, class T = float>
class builder {
    using parts = run_parts<D, T>;

public:
    /// `device_channel`: the same ranks, by a communicator that carries tensors of D, where `world` cannot.
    static std::unique_ptr<parts> build(configuration settings, session_options options, any_communicator world,
                                        std::optional<any_communicator> device_channel = {}) {
        auto run = std::make_unique<parts>(std::move(settings), std::move(options), std::move(world));
        builder b(*run);
        require_same_data(run->world, run->data);
        b.read_algorithm();
        run->axes = read_parallel_axes(run->settings, run->world.size());
        if (run->is_split()) b.require_axes_of_admm();
        run->grid = std::make_unique<mesh<any_communicator>>(run->world, run->axes.axes(), std::move(device_channel));
        b.make_network();
        b.make_batches();
        b.count_steps();
        b.make_ranks();
        if (run->is_split())
            b.make_admm_training();
        else
            b.make_trainer();
        if (!run->options.resume.empty()) leave_out_unused(*run);
        run->settings.check_all_used();
        require_equal(run->world, run->settings.resolved(), "the resolved configuration");
        // The last bits depend on it, and are not exchanged: of directions, and of gradients that tensor ranks share.
        if (run->curvature || run->axes.tensor > 1)
            require_equal(run->world, concat(threads()),
                          "the number of threads, with a preconditioner or parallel.tensor (give --threads)");
        run->start_ranks();
        return run;
    }

private:
    // ADMM's solvers are the host's, and there tensors travel by the communicator that `world` is.
    static constexpr bool on_host = std::same_as<D, cpu>, in_float = std::same_as<T, float>;
    static constexpr std::int64_t most_steps = std::int64_t{1} << 53;  // exact as a double

    explicit builder(parts& run) : run_(run), settings_(run.settings) {
        run.name = settings_.get("name", "run");
        run.seed = static_cast<std::uint64_t>(settings_.get<std::int64_t>("train.seed", 1, any_number));
        run.data = make_data(settings_, run.options.generated, run.seed);
        run.skips_non_finite = settings_.choice("train.non_finite", {"stop", "skip"}, "stop") == "skip";
        goal_ = &read_objective<D>(settings_, run.data.info);
    }

    // A run may go on with a feature switched off whose settings are in its record.
    static void leave_out_unused(parts& run) {
        std::string paths;
        for (const std::string& path : run.settings.leave_out_unused()) paths += (paths.empty() ? "" : ", ") + path;
        if (!paths.empty() && run.is_root())
            std::fprintf(stderr, "warning: %s: left out, as nothing in this run uses them: %s\n",
                         (run.options.resume / "config.toml").c_str(), paths.c_str());
    }

    // Gradients go by batches. ADMM works on all samples in every step, and its layers lie on the ranks of a pipeline.
    void read_algorithm() {
        run_.algorithm_kind = settings_.choice("train.algorithm", {"gradient", "dladmm", "pdadmm"}, "gradient");
        const index_t all = run_.data.train.size();
        run_.batch = settings_.get<index_t>("train.batch", run_.is_split() ? all : 32, from_to(1, 1 << 24));
        run_.micro_batches =
            settings_.get<index_t>("train.micro_batches", 1, from_to(1, static_cast<double>(run_.batch)));
        if (!run_.is_split()) return settings_.leave_out("admm");  // so that a workload can be trained both ways
        require(on_host && in_float, "train.algorithm = ", run_.algorithm_kind,
                " is for train.device = cpu and train.precision = float32");
        require(run_.batch == all && run_.micro_batches == 1, "train.algorithm = ", run_.algorithm_kind,
                " works on all ", all,
                " training samples in every step: leave train.batch and train.micro_batches out");
        if (run_.world.size() > 1 && !settings_.has("parallel.pipeline"))
            settings_.set(concat("parallel.pipeline=", run_.world.size()));
    }

    void require_axes_of_admm() {
        require(
            run_.axes.pipeline == run_.world.size(), "train.algorithm = ", run_.algorithm_kind,
            " puts layers on ranks, and nothing else: leave parallel.data, parallel.tensor and parallel.spatial out");
        require(
            run_.algorithm_kind == "pdadmm" || run_.world.size() == 1,
            "train.algorithm = dladmm sweeps over the layers one after another: start one rank, or take pdadmm, whose "
            "layers train at the same time on ",
            run_.world.size(), " ranks");
    }

    void make_network() {
        const shape outputs = goal_->outputs({run_.data.info, run_.data.sample});  // of a sample
        model_builder<D, T>(run_).make(outputs.back(), outputs.rank() == 1);
        if constexpr (std::same_as<T, float16>)
            run_.scaler.emplace(read_loss_scale(settings_));
        else
            pass_over_loss_scale(settings_);
    }

    // This rank's part of every batch, for training and for tests.
    void make_batches() {
        const int sharers = run_.axes.data;  // ranks that share the model have the same samples
        const loader_config training{.batch = run_.batch,
                                     .workers = settings_.get("train.workers", 1, from_to(0, 1024)),
                                     .prefetch = settings_.get<index_t>("train.prefetch", 2, from_to(1, 1024)),
                                     .shuffle = true,
                                     .drop_last = settings_.get("train.drop_last", false),
                                     .seed = run_.seed,
                                     .rank = run_.grid->coordinate("data"),
                                     .world = sharers};
        const bool as_pixels = settings_.get("train.upload_uint8", true);  // to a GPU; the bits are the same
        if (run_.is_split())  // a batch an epoch, which nobody reads: it counts iterations
            run_.train_batches = std::make_unique<typename parts::batches>(
                subset<any_dataset>(run_.data.train, {0}), loader_config{.batch = 1, .workers = 0, .shuffle = false},
                as_pixels);
        else
            run_.train_batches = std::make_unique<typename parts::batches>(run_.data.train, training, as_pixels);
        if (run_.plan) require_schedule_of_short_batch(run_);
        run_.test_every = settings_.get<std::int64_t>("train.test_every", 1, at_least(0));  // epochs; 0: no test
        run_.save_every = settings_.get<std::int64_t>("train.save_every", 1, at_least(1));  // epochs
        if (!run_.data.test || !run_.test_every) return;
        loader_config testing = training;
        testing.shuffle = testing.drop_last = false;
        testing.batch = std::min(run_.is_split() ? 1000 : run_.batch, run_.data.test.size());
        require(testing.batch >= sharers, "the test set of ", run_.data.test.size(), " samples is too small for ",
                sharers, " ranks");
        testing.workers = 0;
        run_.test_batches = std::make_unique<typename parts::batches>(run_.data.test, testing, as_pixels);
    }

    void count_steps() {
        const index_t epoch = run_.train_batches->batches_per_epoch();
        run_.epochs =
            settings_.get<std::int64_t>("train.epochs", 1, from_to(1, static_cast<double>(most_steps / epoch)));
        run_.total_steps = run_.epochs * epoch;
        run_.last_step =
            run_.options.max_steps >= 0 ? std::min(run_.total_steps, run_.options.max_steps) : run_.total_steps;
        run_.log_every = settings_.get<std::int64_t>("train.log_every",
                                                     std::max<std::int64_t>(1, run_.total_steps / 300), at_least(1));
    }

    // [parallel] and [compress] of the settings. One rank that never skips a step needs nothing of it.
    void make_ranks() {
        channel<any_communicator>& replicas = run_.replicas.emplace(run_.grid->across(run_.world, {"data", "spatial"}));
        const int size = replicas.size(), rank = replicas.rank();
        typename ranks<D>::config c;
        c.gradients.bucket_bytes = settings_.get<index_t>("parallel.bucket_mib", 25, from_to(1, 1 << 20)) << 20;
        c.gradients.overlap = settings_.get("parallel.overlap", true);
        c.sync_batch_norm = settings_.get("parallel.sync_batch_norm", false) && size > 1;
        // Steps for which a dynamic loss scale was too large are skipped whatever the policy; one rank does that by
        // itself.
        const bool may_skip = run_.skips_non_finite || (run_.scales_itself() && run_.world.size() > 1);
        c.agree.non_finite = may_skip ? non_finite_policy::skip : non_finite_policy::stop;
        if (run_.scaler && !run_.scales_itself()) c.agree.advice += ", or take a smaller train.loss_scale, or dynamic";
        c.gradients.seed = run_.seed;
        c.zero_stage = settings_.get("parallel.zero_stage", 0, from_to(0, 2));
        compression how = make_compression(settings_, size, rank);
        c.everyone = &run_.grid->everyone().host;
        if (run_.world.size() == 1 && !may_skip) return;
        if (size == 1) {
            c.zero_stage = 0;
        } else {
            if constexpr (!on_host) c.gradients.hook_on_device = make_method<D>(settings_, size, rank);
            c.gradients.method = std::move(how.method);
            c.gradients.candidates = std::move(how.candidates);
            run_.compresses = c.gradients.method || !c.gradients.candidates.empty();
            compressor_has_momentum_ = how.kind == "dgc";
            if constexpr (!on_host) c.device = replicas.device.split(0, rank);
        }
        if (run_.over.tensor) run_.slices.emplace((*run_.grid)["tensor"], *run_.weights, "tensor");
        if (c.zero_stage) share_optimizer(c);
        if (run_.plan || run_.slices) sum_over_the_model();
        if (c.sync_batch_norm && run_.axes.data > 1) require_even_micro_batches();
        run_.ranks = std::make_unique<ranks<D>>(replicas.host, *run_.weights, std::move(c));
        if (run_.over.spatial && !run_.ranks->group)  // statistics of whole samples in any case
            run_.ranks->group.emplace(run_.over.spatial->host.split(0, run_.over.spatial->rank()));
    }

    // ZeRO: each rank holds the optimizer's state of its own range of the parameters.
    void share_optimizer(typename ranks<D>::config& c) {
        const std::string rule = optimizer_of_steps<D>(settings_);
        const bool whole = optimizers<D>::global().contains(rule) &&
                           optimizers<D>::global().at("optimizer.kind", rule).whole_parameters;
        run_.owners = owners_of(*run_.weights, run_.replicas->size(), whole);
        c.owners = run_.owners;
        // Ranks with slices of the same parameters add up their norms, one parameter after another.
        if (whole && run_.slices)
            require_equal((*run_.grid)["tensor"].host, parameters_of(run_.owners),
                          concat("parallel.zero_stage with optimizer.kind = ", rule,
                                 ": which rank owns which parameters (tensors that do not divide evenly over "
                                 "parallel.tensor; set parallel.zero_stage = 0)"));
        shard_ = detail::shard_plan{run_.owners[static_cast<std::size_t>(run_.replicas->rank())],
                                    [&run = run_](std::vector<double> by_parameter) {
                                        all_reduce(run.ranks->over.host, std::span<double>(by_parameter));
                                        return by_parameter;
                                    },
                                    {}};
    }

    // "rank 0: conv1/weight conv1/bias; rank 1: …"
    std::string parameters_of(const std::vector<range>& owners) const {
        std::string text;
        for (std::size_t r = 0; r < owners.size(); ++r) {
            text += concat(r ? "; " : "", "rank ", r, ':');
            for (const auto& [name, p] : run_.weights->parameters()) {
                const index_t begin = p->value.data() - run_.weights->values().data();
                if (begin >= owners[r].begin && begin < owners[r].end()) text += ' ' + name;
            }
        }
        return text;
    }

    // From numbers by parameter of this rank's stages those of the whole model, in its order. Collective.
    std::function<std::vector<double>(std::vector<double>)> over_stages() {
        std::vector<std::size_t> place;  // of this rank's parameters in the whole model
        for (const auto& [name, p] : run_.weights->parameters()) {
            const auto at = std::ranges::find(run_.plan->parameters, name);
            require(at != run_.plan->parameters.end(), "parameter ", name, " of a stage is not in the whole model");
            place.push_back(static_cast<std::size_t>(at - run_.plan->parameters.begin()));
        }
        return [&run = run_, place = std::move(place)](std::vector<double> mine) {
            std::vector<double> whole(run.plan->parameters.size());
            for (std::size_t i = 0; i < place.size(); ++i) whole[place[i]] = mine[i];
            all_reduce((*run.grid)["pipeline"].host, std::span<double>(whole));
            return whole;
        };
    }

    // The norm of all gradients is that of all slices and stages, added up in the order of the whole model.
    void sum_over_the_model() {
        if (!shard_) shard_ = detail::shard_plan{{0, run_.weights->values().size()}, {}, {}};
        if (run_.slices)
            shard_->sum_over_slices = [&run = run_](std::span<double> of_one) { run.slices->of_slices(of_one); };
        std::function<std::vector<double>(std::vector<double>)> stages;
        if (run_.plan) stages = over_stages();
        shard_->over_ranks = [&run = run_, before = std::move(shard_->over_ranks), stages](std::vector<double> mine) {
            if (before) mine = before(std::move(mine));
            if (run.slices) run.slices->by_parameter(mine);
            return stages ? stages(std::move(mine)) : mine;
        };
    }

    void require_even_micro_batches() {
        const index_t rest = run_.train_batches->samples_per_epoch() % run_.batch,
                      least = (rest ? rest : run_.batch) / run_.axes.data;
        require(
            least >= run_.micro_batches && !run_.data.may_skip,
            "parallel.sync_batch_norm: every rank must run equally many micro-batches, but the smallest batch gives a "
            "rank ",
            least, " samples for train.micro_batches = ", run_.micro_batches,
            ", or data.folder.corrupt = skip could leave it without; set train.drop_last = true, another train.batch, "
            "or "
            "data.folder.corrupt = stop");
    }

    void make_trainer() {
        const bool recorded = settings_.choice("train.cuda_graph", {"off", "on"}, "off") == "on";
        require(
            !recorded || (!run_.plan && !run_.over.is_shared()),
            "train.cuda_graph = on records steps of ranks with whole layers: what ranks that share them say to each "
            "other within a step is not recorded; set it to off, or leave parallel.pipeline, parallel.tensor and "
            "parallel.spatial out");
        any_optimizer<float, D> optimizer =
            make_optimizer(settings_, *run_.weights, shard_ ? &*shard_ : nullptr, compressor_has_momentum_);
        make_curvature();
        run_.rate = make_lr_schedule(settings_, run_.total_steps, run_.train_batches->batches_per_epoch());
        any_objective<D> goal = goal_->make(
            settings_, {run_.data.info, run_.data.sample, run_.outputs_are_cut ? run_.over.tensor : nullptr});
        auto by_gradients = std::make_unique<trainer<D, T>>(
            run_.stages(), update_rule<D>{std::move(optimizer), run_.rate}, std::move(goal), make_hooks(),
            trainer_config<D>{.seed = run_.seed,
                              .cuda_graph = recorded,
                              .may_drop_samples = run_.data.may_skip,
                              .ranks = run_.ranks.get(),
                              .over = run_.over});
        run_.trainer = by_gradients.get();
        run_.algorithm = std::move(by_gradients);
    }

    // In the order of train/step_hook.hpp.
    step_hooks<D, T> make_hooks() {
        step_hooks<D, T> hooks;
        if constexpr (packs_activations<T>) {
            run_.activations = make_compressed_activations(settings_, *run_.weights);
            if (run_.activations) hooks.push_back(std::make_unique<activation_packing<D>>(*run_.activations));
        }
        if constexpr (std::same_as<T, float16>)
            hooks.push_back(std::make_unique<loss_scaling<D>>(*run_.scaler, !run_.skips_non_finite));
        const index_t stride = mc_label_stride(settings_);
        if (run_.quadratic)
            hooks.push_back(std::make_unique<quadratic_update<D, T>>(
                *run_.quadratic, settings_.get<index_t>("kfac.model_example_stride", 1, at_least(1)), *run_.curvature,
                stride));
        else if (run_.curvature)
            hooks.push_back(std::make_unique<preconditioning<D, T>>(*run_.curvature, stride));
        return hooks;
    }

    void make_admm_training() {
        require(
            run_.owners.empty() && !run_.compresses, "train.algorithm = ", run_.algorithm_kind,
            " has no gradients: leave parallel.zero_stage and compress.kind out (admm.quantise compresses p and q)");
        if constexpr (on_host && in_float) run_.algorithm = make_admm(run_);
    }

    // A preconditioner, if the settings ask for one.
    void make_curvature() {
        run_.curvature = make_preconditioner(settings_, *run_.weights, (*run_.grid)["data"].host,
                                             run_.world.size() == 1 ? nullptr : &run_.ranks->over);
        run_.quadratic = make_quadratic_step(settings_, *run_.weights, run_.curvature.get());
        if (run_.plan) {
            if (auto* const k = dynamic_cast<kfac<float, D>*>(run_.curvature.get())) k->sum_over_model(over_stages());
            if (run_.quadratic) run_.quadratic->sum_over_model(over_stages());
        }
        require(!run_.curvature || run_.owners.empty(),
                "optimizer.kind = ", settings_.get("optimizer.kind", std::string()),
                " needs whole gradients on every rank, but parallel.zero_stage leaves each rank a part; set it to 0");
    }

    parts& run_;
    configuration& settings_;
    const objective_maker<D>* goal_ = nullptr;
    std::optional<detail::shard_plan> shard_;
    bool compressor_has_momentum_ = false;  // so that the optimizer has none
};

}  // namespace cairn
