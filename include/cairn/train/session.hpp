#pragma once
// A whole run from its settings: builds data, model, optimizer and schedule, trains, tests, logs, saves, reports. On
// several ranks each builds the same and trains on its part of every batch; rank 0 alone prints, logs, saves and
// reports.

#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/wait_for.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/parallel/sharded_state.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/stash/plan.hpp>
#include <cairn/state/staged.hpp>
#include <cairn/state/state_file.hpp>
#include <cairn/train/compression_factory.hpp>
#include <cairn/train/data_factory.hpp>
#include <cairn/train/interrupt.hpp>
#include <cairn/train/model_factory.hpp>
#include <cairn/train/optimizer_factory.hpp>
#include <cairn/train/process.hpp>
#include <cairn/train/progress.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/report.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/team.hpp>
#include <cairn/train/trainer.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

namespace cairn {

/// What the command line adds to the settings.
struct session_options {
    std::filesystem::path out;     // run directory; empty: a fresh one under runs/
    std::filesystem::path resume;  // run directory to go on in
    std::int64_t max_steps = -1;   // stop after this many updates in all; -1: after the epochs of the settings
    bool generated = false;        // train on random data of the right shape
};

/// The parts of a run, built from settings, with the network on device D. Throws before any training on settings that
/// do not fit together.
/// T: what the layers compute in (train/trainer.hpp).
template <Device D = cpu, class T = float>
class session {
public:
    /// `device_channel`: the same ranks, by a communicator that carries tensors of D, where `world` cannot.
    session(configuration settings, session_options options, any_communicator world = self_communicator{},
            std::optional<any_communicator> device_channel = {})
        : settings_(std::move(settings)), options_(std::move(options)), comm_(std::move(world)) {
        name_ = settings_.get("name", "run");
        seed_ = static_cast<std::uint64_t>(settings_.get<std::int64_t>("train.seed", 1));
        data_ = make_data(settings_, options_.generated, seed_);
        const bool reconstruct = settings_.choice("loss.kind", {"cross_entropy", "mse", "reconstruction"},
                                                  default_loss()) == "reconstruction";
        model_ = make_model<D, T>(settings_, data_.sample, reconstruct ? data_.sample.size() : data_.info.count());
        batch_ = settings_.get<index_t>("train.batch", 32);
        require(batch_ >= 1, "train.batch = ", batch_, "; at least 1 is needed");
        check_shapes(reconstruct);
        weights_ = std::make_unique<arena<float, D>>(model_.parameters(), seed_);
        const std::string stash =
            // what forward leaves for backward
            settings_.choice("train.activation_memory", {"keep", "recompute", "recompute_smallest"}, "keep");
        if constexpr (on_host) {
            if (stash != "keep")
                apply(model_,
                      stash == "recompute" ? sqrt_plan(model_, batch_shape()) : smallest_plan(model_, batch_shape()));
        } else {
            require(stash == "keep", "train.activation_memory = ", stash, " plans for the host alone: on ", D::name,
                    " take keep");
        }

        const loader_config loading{.batch = batch_,
                                    .workers = settings_.get("train.workers", 1),
                                    .prefetch = settings_.get<index_t>("train.prefetch", 2),
                                    .shuffle = true,
                                    .drop_last = settings_.get("train.drop_last", false),
                                    .seed = seed_,
                                    .rank = comm_.rank(),
                                    .world = comm_.size()};
        const bool as_pixels = settings_.get("train.upload_uint8", true);  // to a GPU; the bits are the same
        train_ = std::make_unique<prefetcher<D, any_dataset>>(data_.train, loading, as_pixels);
        test_every_ = settings_.get<std::int64_t>("train.test_every", 1);
        require(test_every_ >= 0, "train.test_every = ", test_every_,
                "; epochs between tests, or 0 for no test at all");
        if (data_.test && test_every_) {
            loader_config testing = loading;
            testing.shuffle = testing.drop_last = false;
            testing.batch = std::min(batch_, data_.test.size());
            require(testing.batch >= comm_.size(), "the test set of ", data_.test.size(), " samples is too small for ",
                    comm_.size(), " ranks");
            testing.workers = 0;
            test_ = std::make_unique<prefetcher<D, any_dataset>>(data_.test, testing, as_pixels);
        }
        epochs_ = settings_.get<std::int64_t>("train.epochs", 1);
        require(epochs_ >= 1 && epochs_ <= most_steps / train_->batches_per_epoch(), "train.epochs = ", epochs_,
                "; 1 to ", most_steps / train_->batches_per_epoch(), " are possible");
        total_steps_ = epochs_ * train_->batches_per_epoch();
        if constexpr (std::same_as<T, float16>)
            scaler_.emplace(read_loss_scale(settings_));
        else
            pass_over_loss_scale(settings_);
        make_ranks(std::move(device_channel));
        any_optimizer<float, D> optimizer =
            make_optimizer(settings_, *weights_, zero_stage_ ? &shard_plan_ : nullptr, has_own_momentum_);
        make_curvature();
        require(!curvature_ || zero_stage_ == 0, "optimizer.kind = ", settings_.get("optimizer.kind", std::string()),
                " needs whole gradients on every rank: parallel.zero_stage = ", zero_stage_,
                " leaves each rank a part; set it to 0");
        rate_ = make_lr_schedule(settings_, total_steps_, train_->batches_per_epoch());
        const objective_kind kind = reconstruct                               ? objective_kind::reconstruction
                                    : data_.info.kind == target_kind::classes ? objective_kind::classes
                                                                              : objective_kind::values;
        const double smoothing = kind == objective_kind::classes ? settings_.get("loss.label_smoothing", 0.0) : 0.0;
        trainer_ = std::make_unique<trainer<D, T>>(
            model_, *weights_, std::move(optimizer), rate_, objective({kind, smoothing}, data_.info),
            trainer_config{.seed = seed_,
                           .micro_batches = micro_batches(),
                           .sharded = zero_stage_ > 0,
                           .may_skip = data_may_skip(),
                           .stop_at_loss = !skips(),
                           .graph = settings_.choice("train.cuda_graph", {"off", "on"}, "off") == "on",
                           .model_every = quadratic_ ? settings_.get<index_t>("kfac.model_example_stride", 1) : 1,
                           .sampled_every = mc_label_stride(settings_)},
            ranks_.get(), curvature_.get(), quadratic_.get(), scaler_ ? &*scaler_ : nullptr);
        log_every_ = settings_.get<std::int64_t>("train.log_every", std::max<std::int64_t>(1, total_steps_ / 300));
        require(log_every_ >= 1, "train.log_every = ", log_every_, "; at least 1 is needed");
        if (options_.max_steps >= 0)
            last_step_ = std::min(total_steps_, options_.max_steps);
        else
            last_step_ = total_steps_;
        settings_.check_all_used();
        require_equal(comm_, settings_.resolved(), "the resolved configuration");
        if (curvature_)  // each rank makes the same directions, whose last bits depend on it
            require_equal(comm_, concat(threads()), "the number of threads that a preconditioner has (give --threads)");
        start_ranks();
    }

    session(const session&) = delete;
    session& operator=(const session&) = delete;

    /// Trains, tests after each epoch, and leaves the run's directory. Returns the final figures as a JSON object.
    nlohmann::json train() {
        const stopwatch whole;  // the choice of kernels included
        open_run();
        print_head();
        progress_line line(is_root());
        const std::int64_t first_step = trainer_->steps();
        std::vector<double> window;  // seconds of the steps since the last log line
        std::vector<double> rates;   // samples/s of all steps
        stopwatch step_watch;
        index_t empty_batches = 0;     // in a row
        const auto log_window = [&] {  // what came since the last log line
            const std::int64_t step = trainer_->steps();
            // object({…}), because clang 14 loses what a template assigns as {…}.
            last_ = nlohmann::json::object(
                {{"step", step},
                 {"epoch", static_cast<double>(step) / static_cast<double>(train_->batches_per_epoch())},
                 {"loss", loss_sum_ / static_cast<double>(since_log_)},
                 {"lr", rate_(step - 1)},
                 {"samples_per_s", median(window)},
                 {"seconds", whole.seconds()}});
            if (scaler_) last_["loss_scale"] = scaler_->scale();
            if (trainer_->goal().kind() == objective_kind::classes) last_["train_accuracy"] = training_accuracy();
            log(last_);
            loss_sum_ = 0;
            since_log_ = 0;
            window.clear();
        };
        train_->reset_stats();
        while (trainer_->steps() < last_step_ && !stopped_) {
            trace::global().enable(trainer_->steps() - first_step >= trace_begin &&
                                   trainer_->steps() - first_step < trace_end);
            step_watch.restart();
            auto b = train_->next();
            if (!b) {
                end_of_epoch(line);
                continue;
            }
            for (const std::string& skipped : b->host.skipped) line.print("skipped " + skipped);
            const bool nothing = b->host.count == 0 && !ranks_;
            const step_result done = nothing ? step_result{.stop = interrupt_guard::requested()}
                                             : trainer_->step(*b, interrupt_guard::requested(), [this] {
                                                   if (trainer_->steps() + 1 < last_step_) train_->prepare();
                                               });
            b.reset();
            stopped_ = done.stop;
            if (done.samples == 0) {  // all of them are corrupt
                require(++empty_batches < train_->batches_per_epoch(), "all samples of ", empty_batches,
                        " batches in a row are corrupt");
                continue;
            }
            empty_batches = 0;
            if (done.skipped) {
                line.print(concat("step ", trainer_->steps() + 1, ": a gradient is not finite; skipped on all ranks",
                                  scales_itself() ? concat(", the loss scale is now ", scaler_->scale()) : ""));
                ++skipped_steps_;
                require(scales_itself() || skipped_steps_ < most_skipped_steps, skipped_steps_,
                        " steps were skipped; training diverges");
                continue;
            }
            const double seconds = step_watch.seconds();
            rates.push_back(static_cast<double>(done.samples) / seconds);
            window.push_back(rates.back());
            loss_sum_ += done.loss;
            ++since_log_;
            const std::int64_t step = trainer_->steps();
            if (since_log_ == log_every_ || step == last_step_) log_window();
            line.show(step, last_step_, status_text(step, rates, whole.seconds(), first_step));
        }
        trace::global().enable(false);
        const bool interrupted = stopped_;
        if (since_log_ > 0) log_window();                         // interrupted
        const bool within_epoch = train_->position().batch != 0;  // stopped there by --steps
        test_and_save(line, test_ && !interrupted && (within_epoch || last_tested_ != trainer_->steps()));
        nlohmann::json result = finish(rates, whole.seconds(), interrupted);
        return result;
    }

    /// Times training steps on generated data. Prints what it measured and returns it; with `table` also the layers.
    nlohmann::json throughput(std::int64_t steps, bool table) {
        require(on_host || !table, "--profile times layers on the host; a profiler of ", D::name,
                " tells more, such as nsys profile train ... --throughput");
        auto b = train_->next();
        require(b.has_value(), "throughput: no batch");
        share_kernel_autotune();
        const stopwatch warming;
        for (int i = 0; i < warm_up_steps; ++i) trainer_->step(*b);
        const double estimate = broadcast_from_root(comm_, warming.seconds() / warm_up_steps);
        if (steps < 0)
            steps = std::clamp<std::int64_t>(static_cast<std::int64_t>(measured_seconds / estimate), 5, 2000);
        D::memory().reset_peaks();
        if (ranks_) ranks_->reducer().reset_time();
        trace::global().enable(table);
        std::vector<double> rates;
        progress_line line(is_root());
        for (std::int64_t i = 0; i < steps && !stopped_; ++i) {
            const stopwatch watch;
            const step_result done = trainer_->step(*b, interrupt_guard::requested());
            stopped_ = done.stop;
            skipped_steps_ += done.skipped;
            rates.push_back(static_cast<double>(done.samples) / watch.seconds());
            line.show(i + 1, steps, concat("step ", i + 1, " of ", steps));
        }
        trace::global().enable(false);
        if (rates.empty()) fail("throughput: interrupted before the first measured step");
        const index_t resident = peak_resident_bytes(), pool_peak = D::memory().total().peak;
        const nlohmann::json memory = memory_by_category(D::memory());
        if (!is_root()) return {};
        tell_what_was_not_recorded();
        // Of the host, after the memory was read.
        const double peak_flops = on_host ? 1e9 * perf::measured_matrix_peak().gflops : 0,
                     peak_bytes = on_host ? 1e9 * perf::measured_bandwidth() : 0;
        line.print("");
        const double rate = median(rates);
        const layer_cost cost = cost_of_batch();
        const double flops =
            (cost.forward.flops + cost.backward_input.flops + cost.backward_weight.flops) / static_cast<double>(batch_);
        const std::string where = comm_.size() == 1 ? concat(threads(), " threads")
                                                    : concat(comm_.size(), " ranks of ", threads(), " threads");
        if (table)
            print_profile(std::cout, profile_of(trace::global().events()), static_cast<int>(rates.size()), peak_flops,
                          peak_bytes);
        std::printf("%s, batch %td, %s: median %.1f samples/s over %zu steps (lowest %.1f, highest %.1f)\n",
                    name_.c_str(), batch_, where.c_str(), rate, rates.size(),
                    *std::min_element(rates.begin(), rates.end()), *std::max_element(rates.begin(), rates.end()));
        std::printf("%.1f effective GFLOP/s", rate * flops / 1e9);
        if (on_host)
            std::printf(" = %.1f %% of the measured matrix peak of %.0f GFLOP/s", 100 * rate * flops / peak_flops,
                        peak_flops / 1e9);
        std::printf("\n");
        for (const auto& [use, bytes] : memory.items())
            std::printf("peak %-14s %9.1f MiB\n", use.c_str(), bytes.template get<double>() / (1 << 20));
        std::printf("peak %-14s %9.1f MiB\n", "of the process", static_cast<double>(resident) / (1 << 20));
        nlohmann::json communication;
        if (ranks_) {
            const reduction_time& t = ranks_->reducer().time();
            const double n = static_cast<double>(rates.size());
            std::printf(
                "communication of gradients: %.2f ms a step, %.2f ms of it not hidden behind backward: %.0f %% "
                "hidden\n",
                1e3 * t.busy / n, 1e3 * t.exposed / n, 100 * t.hidden_share());
            if (const auto* autotuned = ranks_->autotuned()) {
                std::printf("compression autotuner, link of %.1f us and %.3g MB/s: %s\n", 1e6 * autotuned->link().alpha,
                            1e-6 / autotuned->link().beta, autotuned->describe().c_str());
            }
            communication = nlohmann::json::object(
                {{"busy_s", t.busy / n}, {"exposed_s", t.exposed / n}, {"hidden_share", t.hidden_share()}});
        }
        return {{"workload", name_},
                {"ranks", comm_.size()},
                {"skipped_steps", skipped_steps_},
                {"loss_scale", scaler_ ? nlohmann::json(scaler_->scale()) : nlohmann::json()},
                {"communication", communication},
                {"samples_per_s", rate},
                {"peak_bytes", resident},
                {"batch", batch_},
                {"threads", threads()},
                {"steps", rates.size()},
                {"parameters", weights_->count()},
                {"flops_per_sample", flops},
                {"device", D::name},
                {"recorded_steps", trainer_->recorded_steps()},
                {"share_of_matrix_peak", on_host ? nlohmann::json(rate * flops / peak_flops) : nlohmann::json()},
                {"pool_peak_bytes", pool_peak},
                {"memory", memory}};
    }

    sequential<T, D>& model() { return model_; }
    const any_communicator& world() const { return comm_; }

private:
    static constexpr bool on_host = std::same_as<D, cpu>;
    static constexpr std::int64_t trace_begin = 4, trace_end = 9;  // steps of a run that are traced
    static constexpr int warm_up_steps = 3;
    static constexpr double measured_seconds = 12;
    static constexpr int most_skipped_steps = 100;
    static constexpr std::int64_t most_steps = std::int64_t{1} << 53;  // exact as a double

    std::string default_loss() const { return data_.info.kind == target_kind::classes ? "cross_entropy" : "mse"; }

    shape batch_shape() const {
        shape s{batch_};
        for (index_t extent : data_.sample) s.push_back(extent);
        return s;
    }

    void check_shapes(bool reconstruct) const {
        const shape out = with_context("model " + name_, [&] { return model_.output_shape(batch_shape()); });
        shape wanted{batch_};
        if (!reconstruct && data_.info.labels_each > 1) wanted.push_back(data_.info.labels_each);
        wanted.push_back(reconstruct ? data_.sample.size() : data_.info.count());
        require(out == wanted, "model ", name_, ": samples of shape ", data_.sample, " give an output of shape ", out,
                ", the data need ", wanted);
    }

    layer_cost cost_of_batch() const { return model_.cost(batch_shape()); }

    bool is_root() const { return comm_.rank() == 0; }

    bool data_may_skip() {
        return settings_.has("data.corrupt") && settings_.get<std::string>("data.corrupt", "stop") == "skip";
    }

    // Whether the policy is to skip steps whose loss or gradients are not finite.
    bool skips() { return settings_.choice("train.non_finite", {"stop", "skip"}, "stop") == "skip"; }
    bool scales_itself() const { return scaler_ && scaler_->dynamic(); }

    // A preconditioner, if the settings ask for one.
    void make_curvature() {
        if constexpr (on_host) {
            curvature_ = make_preconditioner(settings_, *weights_, comm_);
        } else {
            any_communicator* const world = ranks_ && comm_.size() > 1 ? &ranks_->world() : nullptr;
            curvature_ =
                make_preconditioner_on_device(settings_, *weights_, world, world ? &ranks_->device_channel() : nullptr);
        }
        quadratic_ = make_quadratic_step(settings_, *weights_, curvature_.get());
    }

    // [parallel] of the settings; nothing is made for one rank.
    void make_ranks(std::optional<any_communicator> device_channel) {
        typename ranks<D>::config c;
        c.bucket_bytes = settings_.get<index_t>("parallel.bucket_mib", 25) << 20;
        c.overlap = settings_.get("parallel.overlap", true);
        c.sync_batch_norm = settings_.get("parallel.sync_batch_norm", false);
        // Steps for which a dynamic loss scale was too large are skipped whatever the policy; one rank does that by
        // itself.
        const bool may_skip = skips() || (scales_itself() && comm_.size() > 1);
        c.non_finite = may_skip ? non_finite_policy::skip : non_finite_policy::stop;
        if (scaler_ && !scales_itself()) c.advice += ", or take a smaller train.loss_scale, or dynamic";
        c.seed = seed_;
        compression how = make_compression(settings_, comm_.size(), comm_.rank());
        c.device_channel = std::move(device_channel);
        c.method = std::move(how.method);
        c.candidates = std::move(how.candidates);
        if constexpr (!on_host) c.hook_on_device = hook_on_device<D>(how, comm_.size(), comm_.rank());
        compresses_ = (c.method || !c.candidates.empty()) && comm_.size() > 1;
        has_own_momentum_ = comm_.size() > 1 && settings_.choice("compress.kind", compressor_names, "none") == "dgc";
        zero_stage_ = static_cast<int>(settings_.get<index_t>("parallel.zero_stage", 0));
        require(zero_stage_ >= 0 && zero_stage_ <= 2, "parallel.zero_stage = ", zero_stage_,
                "; stages 0, 1 and 2 are there");
        require(c.bucket_bytes > 0, "parallel.bucket_mib must be at least 1");
        if (comm_.size() == 1) {
            zero_stage_ = 0;
            c.method = {};  // nobody to send to
            c.hook_on_device = {};
            c.candidates.clear();
            if (c.non_finite == non_finite_policy::stop) return;
        }
        make_ranks(std::move(c));
    }

    // Collective: everybody begins with the values of rank 0.
    void start_ranks() {
        if (ranks_) ranks_->start(model_.buffers());
    }

    // Collective: running statistics become the mean over the ranks.
    void average_buffers() {
        if (ranks_) ranks_->average(model_.buffers());
    }

    void make_ranks(typename ranks<D>::config c) {
        if (zero_stage_) {
            const std::string rule = settings_.choice("optimizer.kind", optimizer_names, "sgd");
            c.zero_stage = zero_stage_;
            c.owners = owners_of(*weights_, comm_.size(), rule == "lars" || rule == "lamb");
            shard_plan_ = {c.owners[static_cast<std::size_t>(comm_.rank())],
                           [this](std::span<double> by_parameter) { all_reduce(ranks_->world(), by_parameter); }};
            owners_ = c.owners;
        }
        const index_t rest = train_->samples_per_epoch() % batch_, least = (rest ? rest : batch_) / comm_.size();
        require(
            !c.sync_batch_norm || comm_.size() == 1 || (least >= micro_batches() && !data_may_skip()),
            "parallel.sync_batch_norm: every rank must run equally many micro-batches, but the smallest batch gives a "
            "rank ",
            least, " samples for train.micro_batches = ", micro_batches(),
            ", or data.corrupt = skip could leave it without; set train.drop_last = true, another train.batch, or "
            "data.corrupt = stop");
        ranks_ = std::make_unique<ranks<D>>(comm_, *weights_, std::move(c));
    }

    // All ranks run the kernels that rank 0 chooses, so that they, and a resumed run, compute the same bits.
    void share_kernel_autotune() {
        if (comm_.size() == 1) return;
        if (is_root()) {
            for (const index_t count : counts_of(*train_))
                for (const int piece : std::set<int>{0, micro_batches() - 1})
                    if (const index_t micro = shard_of(count, micro_batches(), piece).count; micro > 0)
                        trainer_->choose_kernels(train_->batch_shape().with(0, micro), mode::train);
            if (test_)
                for (const index_t count : counts_of(*test_))
                    trainer_->choose_kernels(test_->batch_shape().with(0, count), mode::evaluate);
        }
        wait_for(comm_, 0);  // it may measure for minutes
        share_autotune(comm_);
        // What comes up later, such as products of a preconditioner, is chosen alike too.
        autotune_cache::global().set_policy(autotune_policy::first);
    }

    int micro_batches() { return static_cast<int>(settings_.get<index_t>("train.micro_batches", 1)); }

    // Samples that a rank may get at a time, in whole batches and in the short last one; not 0.
    std::set<index_t> counts_of(const prefetcher<D, any_dataset>& from) const {
        const index_t batch = from.config().batch, rest = from.samples_per_epoch() % batch;
        std::set<index_t> counts;
        for (int r = 0; r < comm_.size(); ++r) {
            counts.insert(shard_of(batch, comm_.size(), r).count);
            counts.insert(shard_of(rest, comm_.size(), r).count);
        }
        counts.erase(0);
        return counts;
    }

    double training_accuracy() {
        const auto [correct, seen] = trainer_->take_training_hits();
        std::array<double, 2> sums{static_cast<double>(correct), static_cast<double>(seen)};
        if (ranks_) all_reduce(ranks_->world(), std::span<double>(sums));
        return sums[1] > 0 ? sums[0] / sums[1] / static_cast<double>(data_.info.labels_each) : 0;
    }

    // Everything that a resumed run needs; a dynamic loss scale, if asked for.
    state_view state(bool scale) {
        state_view s;
        if (scale) {
            s.add("loss_scale/scale", saved_scale_.scale);
            s.add("loss_scale/good_steps", saved_scale_.good_steps);
        }
        staged_.clear();
        for (const auto& [name, p] : weights_->parameters()) s.add("model/" + name, staged_.host_of(p->value));
        for (const auto& [name, t] : model_.buffers()) s.add("buffers/" + name, staged_.host_of(*t));
        for (const auto& [name, t] : whole_ ? whole_->tensors() : trainer_->optimizer().tensors())
            s.add("optimizer/" + name, staged_.host_of(t));
        s.add("optimizer_steps", trainer_->optimizer().steps());
        if (curvature_) {
            for (const auto& [name, t] : curvature_tensors_) s.add("kfac/" + name, staged_.host_of(t));
            for (auto& [name, number] : curvature_->counters()) s.add("kfac/" + name, *number);
            if (quadratic_) {
                s.add("kfac/lambda", quadratic_->lambda());
                s.add("kfac/quadratic_steps", quadratic_->steps());
                s.add("kfac/previous", staged_.host_of(quadratic_->previous()));
            }
        }
        if (residuals_) s.add("compression", residuals_->tensors());
        s.add("loader_epoch", saved_epoch_);
        s.add("loader_batch", saved_batch_);
        return s;
    }

    // Throws on all ranks alike where training went wrong in its last update: the state that is there stays.
    void save() {
        for (const auto& [name, p] : weights_->parameters())  // not gradients: those of a skipped step are a rank's own
            if (const std::string found = first_non_finite(name, p->value); !found.empty()) fail_diverged(found);
        saved_epoch_ = train_->position().epoch;
        saved_batch_ = train_->position().batch;
        average_buffers();
        if (zero_stage_) {
            whole_.emplace(trainer_->optimizer(), *weights_);
            whole_->collect(ranks_->device_channel(), owners_);
        }
        if (compresses_) show_residuals(), residuals_->collect();
        collect_curvature();
        if (is_root()) write_state();
        release_curvature();
        hide_residuals();
        whole_.reset();
        staged_.clear();
    }

    // What compressors of all ranks keep, as tensors of the host for as long as it is saved or loaded.
    void show_residuals() {
        std::vector<compressor_tensor> all = ranks_->tensors();
        for (auto& [name, t] : ranks_->tensors_on_device()) all.push_back({name, staged_residuals_.host_of(t)});
        residuals_.emplace(ranks_->world(), std::move(all));
    }
    void hide_residuals() {
        residuals_.reset();
        staged_residuals_.clear();
    }

    // What a preconditioner spread over the ranks, on every rank for as long as it is saved or loaded.
    void collect_curvature() {
        if (curvature_) curvature_tensors_ = curvature_->tensors();
    }
    void release_curvature() {
        curvature_tensors_.clear();
        if (curvature_) curvature_->release();
    }

    void write_state() {
        if (scaler_) saved_scale_ = scaler_->saved();
        save_state(run_->file("state.cairn"), state(scales_itself()));
        autotune_cache::global().save(run_->file("autotune.tsv").string(), perf::fingerprint());
    }

    void open_run() {
        const bool resuming = !options_.resume.empty();
        share_kernel_autotune();
        if (curvature_) {  // its state names the model's layers
            const index_t share = shard_of(batch_, comm_.size(), comm_.rank()).count;
            trainer_->choose_kernels(batch_shape().with(0, shard_of(share, micro_batches(), 0).count), mode::train);
        }
        if (resuming && zero_stage_) whole_.emplace(trainer_->optimizer(), *weights_);
        if (resuming && compresses_) show_residuals();
        if (resuming) collect_curvature();
        if (is_root()) open_directory(resuming);
        if (resuming) take_over();
        require(!resuming || trainer_->steps() < last_step_ || (trainer_->steps() == last_step_ && !recorded_),
                options_.resume.string(), ": this run has done ", trainer_->steps(), " of ", last_step_,
                " steps, nothing is left to do; raise --steps or --set train.epochs to go on");
        if (is_root()) {
            if (resuming) keep_metrics_until(trainer_->steps());
            run_->write("config.toml", settings_.resolved());
        }
        release_curvature();
    }

    // What rank 0 read is everybody's.
    void take_over() {
        if (ranks_) share_what_was_read();
        train_->seek({static_cast<index_t>(saved_epoch_), static_cast<index_t>(saved_batch_)});
    }

    void share_what_was_read() {
        std::array<std::int64_t, 4> numbers{trainer_->steps(), saved_epoch_, saved_batch_, recorded_ ? 1 : 0};
        broadcast(ranks_->world(), std::span<std::int64_t>(numbers), 0);
        trainer_->optimizer().steps() = numbers[0];
        saved_epoch_ = numbers[1];
        saved_batch_ = numbers[2];
        recorded_ = numbers[3] != 0;
        if (scales_itself()) {
            loss_scaler::state now = scaler_->saved();
            broadcast(ranks_->world(), std::span<double>(&now.scale, 1), 0);
            broadcast(ranks_->world(), std::span<std::int64_t>(&now.good_steps, 1), 0);
            scaler_->restore(now);
        }
        start_ranks();
        for (auto& [name, t] : whole_ ? whole_->tensors() : trainer_->optimizer().tensors())
            broadcast(ranks_->device_channel(), t.span(), 0);
        if (curvature_) {
            for (auto& [name, t] : curvature_tensors_) broadcast(ranks_->device_channel(), t.span(), 0);
            for (auto& [name, number] : curvature_->counters())
                broadcast(ranks_->world(), std::span<std::int64_t>(number, 1), 0);
        }
        if (quadratic_) {
            broadcast(ranks_->device_channel(), quadratic_->previous().span(), 0);
            broadcast(ranks_->world(), std::span<double>(&quadratic_->lambda(), 1), 0);
            broadcast(ranks_->world(), std::span<std::int64_t>(&quadratic_->steps(), 1), 0);
        }
        if (whole_) whole_->distribute();
        if (residuals_) residuals_->distribute();
        staged_residuals_.put_back();
        hide_residuals();
        whole_.reset();
    }

    void open_directory(bool resuming) {
        run_.emplace(resuming ? options_.resume : options_.out.empty() ? run_directory::fresh(name_) : options_.out);
        const auto has = [&](const char* name) { return std::filesystem::exists(run_->file(name)); };
        if (resuming) {
            require(has("state.cairn"), "run directory ", run_->path().string(),
                    " has no state.cairn: the run ended before its first state was saved; start it again with another "
                    "--out, or remove this folder");
            // A run may go on in another precision than that in which it was saved.
            const bool has_scale = std::ranges::any_of(list_state(run_->file("state.cairn")), [](const auto& entry) {
                return entry.name == "loss_scale/scale";
            });
            load_state(run_->file("state.cairn"), state(has_scale));
            staged_.put_back();
            if (has_scale && scaler_) scaler_->restore(saved_scale_);
            std::ifstream in(run_->file("record.json"));
            const nlohmann::json record = in ? nlohmann::json::parse(in, nullptr, false) : nlohmann::json{};
            if (record.is_object() && record.contains("result") && record["result"].is_object())
                recorded_ = record["result"].value("finished", false) &&
                            record["result"].value("steps", std::int64_t{-1}) == trainer_->steps();
        } else if (has("state.cairn") || has("record.json") || has("metrics.jsonl")) {
            fail("run directory ", run_->path().string(), " holds a run already; ",
                 has("state.cairn")
                     ? "continue it with --resume, or choose another with --out"
                     : "choose another with --out, or remove it: it ended before its first state was saved");
        }
    }

    // A run that was killed may have logged steps after its last saved state.
    void keep_metrics_until(std::int64_t step) {
        std::ifstream in(run_->file("metrics.jsonl"));
        std::string kept;
        for (std::string text; std::getline(in, text);) {
            const nlohmann::json entry = nlohmann::json::parse(text, nullptr, false);
            if (entry.is_discarded() || entry.value("step", std::int64_t{0}) > step) continue;
            metric_log_.push_back(entry);
            kept += text + '\n';
        }
        run_->write("metrics.jsonl", kept);
    }

    void log(const nlohmann::json& entry) {
        if (!is_root()) return;
        metric_log_.push_back(entry);
        run_->append("metrics.jsonl", entry.dump());
    }

    void print_head() const {
        if (!is_root()) return;
        const layer_cost cost = cost_of_batch();
        std::fprintf(stderr,
                     "%s: %td training and %td test samples of %s, %td parameters, %.2f GFLOP a training sample\n",
                     name_.c_str(), data_.train.size(), data_.test ? data_.test.size() : 0,
                     concat(data_.sample).c_str(), weights_->count(),
                     (cost.forward.flops + cost.backward_input.flops + cost.backward_weight.flops) /
                         static_cast<double>(batch_) / 1e9);
        std::fprintf(stderr, "%lld epochs of %td steps, batch %td, %s%s%d threads, seed %llu, results in %s\n",
                     static_cast<long long>(epochs_), train_->batches_per_epoch(), batch_,
                     on_host ? "" : concat("on ", D::name, ", ").c_str(),
                     comm_.size() == 1 ? "" : concat(comm_.size(), " ranks of ").c_str(), threads(),
                     static_cast<unsigned long long>(seed_), run_->path().c_str());
    }

    std::string status_text(std::int64_t step, const std::vector<double>& rates, double seconds,
                            std::int64_t first_step) const {
        char text[160];
        const std::vector<double> recent(
            rates.end() - std::min<std::ptrdiff_t>(21, static_cast<std::ptrdiff_t>(rates.size())), rates.end());
        const double per_step = seconds / static_cast<double>(step - first_step);
        std::snprintf(text, sizeof text, "epoch %lld/%lld%s%s  %.0f samples/s  %s left",
                      static_cast<long long>((step - 1) / train_->batches_per_epoch() + 1),
                      static_cast<long long>(epochs_), loss_text("  loss").c_str(), quality_text().c_str(),
                      median(recent), clock_text(per_step * static_cast<double>(last_step_ - step)).c_str());
        return text;
    }

    /// The mean training loss of late, with `name` in front; empty before the first step.
    std::string loss_text(const char* name) const {
        const auto loss = recent_loss();
        if (!loss) return {};
        char text[64];
        std::snprintf(text, sizeof text, "%s %.4f", name, *loss);
        return text;
    }
    std::optional<double> recent_loss() const {
        if (last_.contains("loss")) return last_["loss"].get<double>();
        if (since_log_ > 0) return loss_sum_ / static_cast<double>(since_log_);
        return std::nullopt;
    }

    std::string quality_text() const {
        std::string text;
        if (last_.contains("train_accuracy")) text += "  accuracy " + metric_value("accuracy", last_["train_accuracy"]);
        if (!metrics_.empty()) text += "  test " + metric_value(metrics_.front().first, metrics_.front().second);
        return text;
    }

    void end_of_epoch(progress_line& line) {
        const std::int64_t epoch = train_->position().epoch;
        test_and_save(line, test_ && (epoch % test_every_ == 0 || epoch == epochs_));
    }

    // A test set that cannot be read costs no epoch; but a state that training has spoilt does not replace a good one.
    void test_and_save(progress_line& line, bool due) {
        std::exception_ptr unreadable;
        try {
            if (due) test(line);
        } catch (const error&) {
            if (comm_.size() > 1) throw;  // the others wait in the test
            unreadable = std::current_exception();
        }
        if (due && !unreadable && evaluation_.count && !std::isfinite(evaluation_.loss()))
            fail_diverged("the test loss is not finite");
        save();
        if (unreadable) std::rethrow_exception(unreadable);
    }

    [[noreturn]] void fail_diverged(const std::string& what) {
        fail("after step ", trainer_->steps(), ": ", what,
             "; nothing was saved, an earlier state.cairn is as it was. Lower the learning rate, warm up, or clip");
    }

    void test(progress_line& line) {
        average_buffers();
        test_->reset_stats();
        evaluation_ = trainer_->evaluate(*test_);
        if (const auto skipped = test_->stats().skipped; skipped > 0)
            line.print(concat(skipped, " corrupt test samples were left out"));
        if (ranks_) add_over_ranks(ranks_->world(), evaluation_);
        metrics_ = trainer_->goal().metrics(evaluation_);
        last_tested_ = trainer_->steps();
        nlohmann::json entry{{"step", trainer_->steps()}, {"test_loss", evaluation_.loss()}};
        std::string text;
        for (const auto& figure : metrics_) {
            entry["test_" + figure.first] = figure.second;
            if (!figure.first.starts_with("mae_"))
                text += (text.empty() ? "" : ", ") + metric_label(figure.first) + ' ' +
                        metric_value(figure.first, figure.second);
        }
        log(entry);
        char head[96];
        std::snprintf(head, sizeof head, "epoch %-4.4g%s  test loss %.4f  ",
                      static_cast<double>(trainer_->steps()) / static_cast<double>(train_->batches_per_epoch()),
                      loss_text(" training loss").c_str(), evaluation_.loss());
        line.print(head + text);
    }

    void tell_what_was_not_recorded() const {
        if (const std::string why = trainer_->why_not_recorded(); !why.empty())
            std::fprintf(stderr,
                         "train.cuda_graph = on: steps were launched one by one, for they could not be recorded: %s\n",
                         why.c_str());
    }

    // Names of classes may be those of folders, in any encoding.
    static std::string printable(const nlohmann::json& j) {
        return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }

    // Writes the run's files and returns its final figures.
    nlohmann::json finish(const std::vector<double>& rates, double seconds, bool interrupted) {
        const index_t resident = peak_resident_bytes();
        const nlohmann::json memory =
            memory_by_category(D::memory());  // both before the machine's ceilings are measured
        const std::vector<std::string> traces = traces_of_all_ranks(comm_);
        if (!is_root()) return {};
        const std::vector<std::string> diagnostics =
            curvature_ ? curvature_->diagnostics() : std::vector<std::string>{};
        tell_what_was_not_recorded();
        for (const std::string& line : diagnostics) std::fprintf(stderr, "%s\n", line.c_str());
        nlohmann::json result{
            {"workload", name_},
            {"finished", !interrupted && trainer_->steps() >= last_step_},
            {"steps", trainer_->steps()},
            {"epochs", static_cast<double>(trainer_->steps()) / static_cast<double>(train_->batches_per_epoch())},
            {"seed", seed_},
            {"ranks", comm_.size()},
            {"seconds", seconds},
            {"samples_per_s", median(rates)},
            {"peak_bytes", resident},
            {"skipped_steps", skipped_steps_},
            {"stall_fraction", seconds > 0 ? train_->stats().stall_seconds / seconds : 0},
            {"skipped_samples", train_->stats().skipped}};
        if (const auto loss = recent_loss()) result["train_loss"] = *loss;
        if (evaluation_.count) result["test_loss"] = evaluation_.loss();
        if (scaler_) result["loss_scale"] = scaler_->scale();
        if (!on_host) result["recorded_steps"] = trainer_->recorded_steps();
        for (const auto& [figure, value] : metrics_) result["test_" + figure] = value;

        nlohmann::json record = record_of(name_, result, metrics_, rates);
        record["memory"] = memory;
        record["threads"] = threads();
        record["device"] = D::name;
        record["batch"] = batch_;
        record["parameters"] = weights_->count();
        if (curvature_) record["preconditioner"] = diagnostics;
        const nlohmann::json profile = profile_json(trace::global().events());
        run_->write("trace.json", joined_traces(traces));
        run_->write("record.json", record.dump(1) + '\n');
        run_->write("report.html",
                    report_html({name_, record.dump(), metric_log_.dump(), profile.dump(),
                                 printable(examples_json(evaluation_, data_.info.names)), settings_.resolved()}));
        print_result(name_, result, metrics_, interrupted, run_->file("report.html").string());
        return result;
    }

    configuration settings_;
    session_options options_;
    any_communicator comm_;
    std::string name_;
    std::uint64_t seed_ = 1;
    data_parts data_;
    sequential<T, D> model_;
    index_t batch_ = 1;
    std::unique_ptr<arena<float, D>> weights_;
    std::unique_ptr<prefetcher<D, any_dataset>> train_, test_;
    lr_schedule rate_;
    int zero_stage_ = 0;
    detail::shard_plan shard_plan_;
    std::vector<range> owners_;
    std::unique_ptr<ranks<D>> ranks_;                        // null on one rank
    std::unique_ptr<preconditioner<float, D>> curvature_;    // null unless the optimizer has one
    std::vector<named_tensor<float, D>> curvature_tensors_;  // while a state is saved or loaded
    std::unique_ptr<quadratic_step<D>> quadratic_;           // null unless kfac.step_size asks for it
    std::optional<loss_scaler> scaler_;                      // of layers in float16
    loss_scaler::state saved_scale_;                         // while a state is saved or loaded
    std::unique_ptr<trainer<D, T>> trainer_;
    std::optional<whole_state<float, D>> whole_;   // while the state is saved or loaded
    std::optional<residuals_of_ranks> residuals_;  // likewise
    staged_tensors<D> staged_, staged_residuals_;  // likewise
    bool has_own_momentum_ = false;                // the compressor, so that the optimizer has none
    bool compresses_ = false;
    bool stopped_ = false;
    bool recorded_ = false;  // the run that is resumed had come to its end, with its record written
    double loss_sum_ = 0;    // since the last log line
    std::int64_t since_log_ = 0;
    int skipped_steps_ = 0;
    std::int64_t epochs_ = 1, total_steps_ = 0, last_step_ = 0, test_every_ = 1, log_every_ = 1, last_tested_ = -1;
    std::int64_t saved_epoch_ = 0, saved_batch_ = 0;
    std::optional<run_directory> run_;
    nlohmann::json metric_log_ = nlohmann::json::array(), last_ = nlohmann::json::object();
    evaluation evaluation_;
    metric_list metrics_;
};

}  // namespace cairn
