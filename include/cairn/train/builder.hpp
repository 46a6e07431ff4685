#pragma once
// From settings to the parts of a run, in the order of a start; each is made whole from those before it:
//   task → mesh → model (build_model.hpp) → batches → streams → replicas (build_replicas.hpp) → update
// Every rank makes the same. Throws before any training on settings that do not fit together.

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/train/activation_settings.hpp>
#include <cairn/train/admm_training.hpp>
#include <cairn/train/audit_activations.hpp>
#include <cairn/train/build_model.hpp>
#include <cairn/train/build_replicas.hpp>
#include <cairn/train/data_formats.hpp>
#include <cairn/train/loss_scaling.hpp>
#include <cairn/train/lr_schedules.hpp>
#include <cairn/train/objectives.hpp>
#include <cairn/train/optimizers.hpp>
#include <cairn/train/preconditioners.hpp>
#include <cairn/train/preconditioning.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

namespace cairn {

namespace detail {

/// Collective: reads what is asked for, and the data. Gradients go by batches; ADMM works on all samples in every step.
template <Device D, class T>
run_task read_task(configuration settings, session_options options, any_communicator& world) {
    run_task t{.settings = std::move(settings), .options = std::move(options)};
    configuration& s = t.settings;
    t.name = s.get("name", "run");
    t.algorithm = s.choice("train.algorithm", {"gradient", "dladmm", "pdadmm"}, "gradient");
    if (!t.is_split()) {
        s.leave_out("admm");  // so that a workload can be trained both ways
        const std::string others = listed(choose_optimizer<D>(s));
        if (!others.empty() && world.rank() == 0)
            std::fprintf(stderr, "optimizer.kind = %s: left out, as the file sets them for another one: %s\n",
                         s.get("optimizer.kind", "sgd").c_str(), others.c_str());
    }
    t.seed = static_cast<std::uint64_t>(s.get<std::int64_t>("train.seed", 1, any_number));
    t.states = read_state_settings(s);
    t.data = make_data(s, t.options.generated, t.seed);
    t.skips_non_finite = s.choice("train.non_finite", {"stop", "skip"}, "stop") == "skip";
    t.stops_divergence = s.choice("train.divergence", {"stop", "ignore"}, "stop") == "stop";
    require_same_data(world, t.data);
    const index_t all = t.data.train.size();
    t.batch = s.get<index_t>("train.batch", t.is_split() ? all : 32, from_to(1, 1 << 24));
    t.micro_batches = s.get<index_t>("train.micro_batches", 1, from_to(1, static_cast<double>(t.batch)));
    if (!t.is_split()) return t;
    require(std::same_as<D, cpu> && std::same_as<T, float>, "train.algorithm = ", t.algorithm,
            " is for train.device = cpu and train.precision = float32");
    require(t.batch == all && t.micro_batches == 1, "train.algorithm = ", t.algorithm, " works on all ", all,
            " training samples in every step: leave train.batch and train.micro_batches out");
    if (world.size() > 1 && !s.has("parallel.pipeline")) s.set(concat("parallel.pipeline=", world.size()));
    return t;
}

/// The axes of the mesh. Layers that ADMM trains lie on the ranks of a pipeline.
inline parallel_axes read_axes(run_task& task, int ranks) {
    const parallel_axes axes = read_parallel_axes(task.settings, ranks);
    if (!task.is_split()) return axes;
    require(axes.pipeline == ranks, "train.algorithm = ", task.algorithm,
            " puts layers on ranks, and nothing else: leave parallel.data, parallel.tensor and parallel.spatial out");
    require(task.algorithm == "pdadmm" || ranks == 1,
            "train.algorithm = dladmm sweeps over the layers one after another: start one rank, or take pdadmm, whose "
            "layers train at the same time on ",
            ranks, " ranks");
    return axes;
}

/// A step may have fewer micro-batches than asked for, where the last batch is short: throws where the schedule of the
/// pipeline does not have them.
inline void require_schedule_of_short_batch(const run_task& task, int pipelines, const pipeline_plan& plan,
                                            index_t rest) {
    std::set<index_t> counts{task.micro_batches};
    for (int r = 0; r < pipelines; ++r)
        for (const index_t batch : std::array{task.batch, rest})
            counts.insert(std::min(task.micro_batches, shard_of(batch, pipelines, r).count));
    counts.erase(0);
    for (const index_t m : counts)
        with_context(m == task.micro_batches ? concat("train.micro_batches = ", m)
                                             : concat("some batch gives a pipeline ", m,
                                                      " micro-batches (train.batch should be a multiple of "
                                                      "parallel.data, and train.drop_last = true leaves the short "
                                                      "last batch out)"),
                     [&] { plan.program(static_cast<int>(m)); });
}

/// This rank's samples of a data set: a part of each where spatial ranks share them.
template <Device D, class T>
any_dataset samples_here(const any_dataset& all, const shape& sample, const run_model<D, T>& model) {
    const shared_layers& over = model.over;
    if (!over.spatial) return all;
    const spatial_partition rows = over.rows(sample);
    const shape here = rows.tensor_shape(over.grid(), over.spatial->rank(), 1, sample.back());
    std::vector<index_t> begin = rows.begin(over.grid(), over.spatial->rank());
    begin.erase(begin.begin());  // of the batch
    return box_samples<any_dataset>(all, std::move(begin),
                                    shape(std::span(here.begin() + 1, static_cast<std::size_t>(here.rank() - 1))));
}

/// Collective: what a strategy does before the first step.
inline void start_reading(const loader_config& c, any_communicator& world) {
    any_communicator node = world.split_node();
    c.reading->start({c.batch, c.rank, c.world, c.seed, node.rank(), node.size()});
    barrier(node);
}

/// The samples of a phase. Throws where the data have one size, or the model does not take this one.
template <Device D, class T>
data_parts samples_of_phase(const run_task& task, const training_phase& phase, const run_model<D, T>& model) {
    if (phase.images == sample_size{}) return task.data;
    require(task.data.resized != nullptr, phase.name,
            ": the samples of data.format = ", task.settings.text_of_file("data.format", ""),
            " have one size: leave size and area_min out");
    data_parts parts = task.data.resized(phase.images);
    const auto outputs_for = [&](const shape& sample) {
        return model.layers.front().output_shape(model.over.batch_here(phase.batch, sample));
    };
    const shape wanted = outputs_for(task.data.sample),
                out = with_context(concat(phase.name, ".size = ", phase.images.edge),
                                   [&] { return outputs_for(parts.sample); });
    require(out == wanted, phase.name, ".size = ", phase.images.edge, ": the model gives outputs of shape ", out,
            ", not ", wanted, "; take one whose last layers average over the image, such as resnet");
    return parts;
}

/// This rank's part of every batch, for training and for tests, and how many there are.
template <Device D, class T>
run_batches<D> make_batches(run_task& task, any_communicator& world, run_mesh& mesh, const run_model<D, T>& model) {
    configuration& s = task.settings;
    const int sharers = mesh.axes.data;  // ranks that share the model have the same samples
    loader_config training{.batch = task.batch,
                           .workers = s.get("train.workers", 1, from_to(0, 1024)),
                           .prefetch = s.get<index_t>("train.prefetch", 2, from_to(1, 1024)),
                           .shuffle = true,
                           .drop_last = s.get("train.drop_last", false) || task.data.stream,
                           .stream = task.data.stream,
                           .seed = task.seed,
                           .rank = mesh.grid.coordinate("data"),
                           .world = sharers,
                           .reading = task.data.reading};
    if (training.reading) start_reading(training, world);
    require(!task.data.stream || task.batch <= task.data.train.size(), "data.stream: train.batch = ", task.batch,
            " rows of a text of ", task.data.train.size(), " segments of ", task.data.info.labels_each,
            " bytes: each row needs one of its own. Take fewer rows, shorter segments (data.text.length) or more text");
    const bool as_pixels = s.get("train.upload_uint8", true);  // to a GPU; the bits are the same
    using loader_type = typename run_batches<D>::loader_type;
    run_batches<D> made;
    const phase_list phases = read_phases(s, task.batch);
    const bool fixed = model.plan || model.over.spatial || training.reading || task.is_split() || task.data.stream;
    require(phases.all.size() == 1 || !fixed,
            "phases change the shape of a batch: leave parallel.pipeline, parallel.spatial, data.packed.reading, "
            "data.stream and train.algorithm out");
    const double test_every = s.get("train.test_every", 1.0, at_least(0));  // epochs; 0: no test
    loader_config testing = training;
    testing.reading = nullptr;
    testing.shuffle = testing.drop_last = false;  // rows of a stream that are longer go on alone
    testing.workers = 0;
    std::vector<std::unique_ptr<loader_type>> parts;
    const auto add = [&](auto& to, any_dataset samples, const loader_config& config) {
        to.push_back(std::make_unique<loader_type>(std::move(samples), config, as_pixels));
    };
    for (const training_phase& phase : phases.all) {
        const data_parts data = samples_of_phase(task, phase, model);
        training.batch = phase.batch;
        const auto add_training = [&] {
            if (task.is_split())  // a batch an epoch, which nothing reads: it counts iterations
                add(parts, subset<any_dataset>(data.train, {0}), {.batch = 1, .workers = 0, .shuffle = false});
            else
                add(parts, samples_here(data.train, task.data.sample, model), training);
        };
        phase.name.empty() ? add_training() : with_context(phase.name, add_training);
        if (!data.test || test_every == 0) continue;
        testing.batch = std::min(task.is_split() ? 1000 : task.batch, data.test.size());
        require(testing.batch >= sharers, "the test set of ", data.test.size(), " samples is too small for ", sharers,
                " ranks");
        add(made.tests, samples_here(data.test, task.data.sample, model), testing);
    }
    made.train = std::make_unique<phased_batches<D>>(phases, std::move(parts));
    if (model.plan)
        require_schedule_of_short_batch(task, sharers, *model.plan, made.train->samples_per_epoch() % task.batch);
    made.epochs = phases.all.back().end;
    made.total_steps = made.train->phases().steps();
    made.last_step = made.total_steps;
    made.test_every = test_every;
    if (const std::int64_t most = task.options.max_steps; most >= 0) made.last_step = std::min(made.last_step, most);
    if (const std::int64_t most = task.options.max_epochs; most >= 0 && most < made.epochs)
        made.last_step = std::min(made.last_step, made.train->phases().before(most));
    made.log_every =
        s.get<std::int64_t>("train.log_every", std::max<std::int64_t>(1, made.total_steps / 300), at_least(1));
    return made;
}

/// Makes what trains the model: optimizer, preconditioner, objective and trainer; or ADMM.
template <Device D, class T>
class update_builder {
public:
    update_builder(run_parts<D, T>& run) : run_(run), settings_(run.task.settings), weights_(*run.model.weights) {}

    run_update<D, T> make() && {
        if (run_.task.is_split())
            make_admm_training();
        else
            make_trainer();
        return std::move(made_);
    }

private:
    void make_trainer() {
        const bool recorded = settings_.choice("train.cuda_graph", {"off", "on"}, "off") == "on";
        run_model<D, T>& model = run_.model;
        require(
            !recorded || (!model.plan && !model.over.is_shared()),
            "train.cuda_graph = on records steps of ranks with whole layers: what ranks that share them say to each "
            "other within a step is not recorded; set it to off, or leave parallel.pipeline, parallel.tensor and "
            "parallel.spatial out");
        const run_replicas<D>& replicas = run_.replicas;
        any_optimizer<float, D> optimizer = make_optimizer(
            settings_, weights_, replicas.shard ? &*replicas.shard : nullptr, replicas.compressor_has_momentum);
        make_curvature();
        const data_parts& data = run_.task.data;
        lr_schedule rate = make_lr_schedule(settings_, run_.batches.train->phases());
        any_objective<D> goal =
            read_objective<D>(settings_, data.info)
                .make(settings_, {data.info, data.sample, model.outputs_are_cut ? model.over.tensor : nullptr});
        auto by_gradients = std::make_unique<trainer<D, T>>(model.stages(run_.mesh),
                                                            update_rule<D>{std::move(optimizer), std::move(rate)},
                                                            std::move(goal), make_hooks(),
                                                            trainer_config<D>{.seed = run_.task.seed,
                                                                              .cuda_graph = recorded,
                                                                              .may_drop_samples = data.may_skip,
                                                                              .ranks = replicas.ranks.get(),
                                                                              .over = model.over});
        made_.trainer = by_gradients.get();
        made_.algorithm = std::move(by_gradients);
    }

    // In the order of train/step_hook.hpp.
    step_hooks<D, T> make_hooks() {
        step_hooks<D, T> hooks;
        if constexpr (packs_activations<T>) {
            made_.activations = make_compressed_activations(settings_, weights_);
            if (made_.activations) hooks.push_back(std::make_unique<activation_packing<D>>(*made_.activations));
        }
        if constexpr (std::same_as<T, float16>)
            hooks.push_back(std::make_unique<loss_scaling<D>>(*run_.model.scaler, !run_.task.skips_non_finite));
        if (run_.streams.train) hooks.push_back(std::make_unique<stream_reading<D, T>>(run_.streams));
        const index_t stride = mc_label_stride(settings_);
        if (made_.quadratic)
            hooks.push_back(std::make_unique<quadratic_update<D, T>>(
                *made_.quadratic, settings_.get<index_t>("kfac.model_example_stride", 1, at_least(1)), *made_.curvature,
                stride));
        else if (made_.curvature)
            hooks.push_back(std::make_unique<preconditioning<D, T>>(*made_.curvature, stride));
        if (const double decay = settings_.get("train.ema", 0.0, from_below(0, 1)); decay > 0) {
            made_.average = std::make_unique<weight_average<D>>(decay, weights_, run_.model.buffers());
            hooks.push_back(std::make_unique<weight_averaging<D, T>>(*made_.average));
        }
        return hooks;
    }

    // A preconditioner, if the settings ask for one.
    void make_curvature() {
        made_.curvature = make_preconditioner(settings_, weights_, run_.mesh.grid["data"].host,
                                              run_.world.size() == 1 ? nullptr : &run_.replicas.ranks->over);
        made_.quadratic = make_quadratic_step(settings_, weights_, made_.curvature.get());
        if (run_.model.plan) {
            if (auto* const k = dynamic_cast<kfac<float, D>*>(made_.curvature.get()))
                k->sum_over_model(sum_over_stages(run_.mesh, run_.model));
            if (made_.quadratic) made_.quadratic->sum_over_model(sum_over_stages(run_.mesh, run_.model));
        }
        require(!made_.curvature || !run_.replicas.share_optimizer(),
                "optimizer.kind = ", settings_.get("optimizer.kind", std::string()),
                " needs whole gradients on every rank, but parallel.zero_stage leaves each rank a part; set it to 0");
    }

    void make_admm_training() {
        require(
            !run_.replicas.share_optimizer() && !run_.replicas.compresses, "train.algorithm = ", run_.task.algorithm,
            " has no gradients: leave parallel.zero_stage and compress.kind out (admm.quantise compresses p and q)");
        if constexpr (std::same_as<D, cpu> && std::same_as<T, float>)
            made_.algorithm = make_admm(run_.task, run_.world, run_.mesh, run_.model);
    }

    run_parts<D, T>& run_;
    configuration& settings_;
    arena<float, D>& weights_;
    run_update<D, T> made_;
};

/// What the layers remember of the rows that are here, if the data are a stream and the layers remember anything.
template <Device D, class T>
run_streams<D> make_streams(run_task& task, run_mesh& mesh, run_model<D, T>& model, const run_batches<D>& batches) {
    run_streams<D> made;
    if (!task.data.stream) return made;
    configuration& s = task.settings;
    require(mesh.axes.pipeline == 1 && !mesh.axes.share_layers() && !task.is_split(),
            "data.stream: what a text's layers remember lies on ranks with the whole model: leave parallel.pipeline, "
            "parallel.tensor and parallel.spatial out, and take train.algorithm = gradient");
    require(s.get("train.cuda_graph", std::string("off")) != "on",
            "train.cuda_graph = on records steps that are all alike, and the memory of data.stream fills up: set it to "
            "off");
    const std::vector<remembering_layer> layers = layers_that_remember(model.layers.front());
    if (layers.empty()) return made;
    const auto make = [&](const char* setting, index_t length, const auto& loader) {
        const index_t segment = task.data.info.labels_each, text = loader.batches_per_epoch() * segment;
        require(length <= text, setting, " = ", length, " is longer than a row's text, ", text,
                " bytes: ", loader.batches_per_epoch(), " segments of ", segment, " in each of ", loader.config().batch,
                " rows. Take a shorter memory or fewer rows (train.batch)");
        const range rows = shard_of(loader.config().batch, mesh.axes.data, mesh.grid.coordinate("data"));
        auto memory = std::make_unique<stream_memory<float, D>>(length, rows);
        for (const auto& [name, width] : layers) memory->of(name, width);
        return memory;
    };
    const auto length = s.get<index_t>("model.memory_length", 0, from_to(0, 1 << 20));
    made.train = make("model.memory_length", length, *batches.train);
    const auto longer = s.get<index_t>("model.evaluation_memory_length", 0, from_to(0, 1 << 20));
    if (!batches.test()) return made;
    const index_t tested = batches.test()->batches_per_epoch() * task.data.info.labels_each;  // positions of a row
    made.test = make("model.evaluation_memory_length", longer ? longer : std::min(length, tested), *batches.test());
    return made;
}

// A run may go on with a feature switched off whose settings are in its record.
inline void leave_out_unused(run_task& task, bool is_root) {
    const std::string paths = listed(task.settings.leave_out_unused());
    if (!paths.empty() && is_root)
        std::fprintf(stderr, "warning: %s: left out, as nothing in this run uses them: %s\n",
                     (task.options.resume / "config.toml").c_str(), paths.c_str());
}

}  // namespace detail

template <Device D, class T>
run_parts<D, T>::run_parts(configuration settings, session_options options, any_communicator w,
                           std::optional<any_communicator> device_channel)
    : world(std::move(w)),
      task(detail::read_task<D, T>(std::move(settings), std::move(options), world)),
      mesh(detail::read_axes(task, world.size()), world, std::move(device_channel)),
      model(model_builder<D, T>(task, world, mesh).make()),
      batches(detail::make_batches(task, world, mesh, model)),
      streams(detail::make_streams<D, T>(task, mesh, model, batches)),
      replicas(replica_builder<D, T>(task, world, mesh, model).make(batches)),
      update(detail::update_builder<D, T>(*this).make()) {
    if (!task.options.resume.empty()) detail::leave_out_unused(task, is_root());
    task.settings.check_all_used();
    require_equal(world, task.settings.resolved(), "the resolved configuration");
    // The last bits depend on it, and are not exchanged: of directions, and of gradients that tensor ranks share.
    if (update.curvature || mesh.axes.tensor > 1)
        require_equal(world, concat(threads()),
                      "the number of threads, with a preconditioner or parallel.tensor (give --threads)");
    start_ranks();
}

}  // namespace cairn
