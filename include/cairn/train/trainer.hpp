#pragma once
// One training step and one evaluation:
//   y = forward(x);  {loss, dy} = loss(y, target);  gradients = 0;  backward(dy);  parameters ← optimizer(gradients,
//   lr(step))
// With several micro-batches a step, gradients of all are added first. With several ranks, each does its part of the
// batch, and dy is weighted by that part (parallel/data.hpp): any number of ranks takes the step that one rank would
// take.
// Where layers compute in float16, dy is scaled before it is rounded, and gradients are scaled back, in float, before
// ranks add them (loss_scaler.hpp, gradient_scale.hpp).

#include <cairn/comm/any.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/parallel/data.hpp>
#include <cairn/train/any_optimizer.hpp>
#include <cairn/train/curvature.hpp>
#include <cairn/train/gradient_scale.hpp>
#include <cairn/train/graph_recorder.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/objective.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// All ranks of a training run whose networks are on D.
template <Device D = cpu>
using ranks = data_parallel<any_communicator, float, D>;

struct trainer_config {
    std::uint64_t seed = 1;
    index_t micro_batches = 1;  // a step
    bool sharded = false;       // the optimizer updates this rank's part of the parameters alone
    bool may_skip = false;      // corrupt samples are left out of batches
    bool stop_at_loss = true;   // one that is not finite is an error, though ranks skip steps whose gradients are not
    bool graph = false;         // steps are recorded and launched as a whole (graph_recorder.hpp), on devices that can
    index_t model_every = 1;    // F of the quadratic step is that of one sample in so many
    index_t sampled_every =
        0;  // curvature from labels that the model draws for one sample in so many; 0: from the data's
};

/// What one step did, over all ranks.
struct step_result {
    double loss = 0;       // of the whole batch, before the update
    index_t samples = 0;   // of the whole batch
    bool skipped = false;  // a gradient was not finite, and the policy is to go on
    bool stop = false;     // some rank was asked to stop
};

/// A model on device D, whose layers compute in T, with what trains it: weights, losses and updates are in float.
/// Batches come from the host.
template <Device D = cpu, class T = float>
class trainer {
    static_assert(std::same_as<weight_of<T>, float>);

public:
    /// `world` may be null: one rank. `curvature` too: gradients go to the optimizer as they are. And `scaler`, which
    /// is for layers in float16; where it is dynamic, the policy of several ranks must be to skip.
    trainer(sequential<T, D>& model, arena<float, D>& weights, any_optimizer<float, D> optimizer, lr_schedule rate,
            objective goal, trainer_config config, ranks<D>* world = nullptr,
            preconditioner<float, D>* curvature = nullptr, quadratic_step<D>* quadratic = nullptr,
            loss_scaler* scaler = nullptr)
        : model_(model),
          weights_(weights),
          optimizer_(std::move(optimizer)),
          rate_(std::move(rate)),
          goal_(std::move(goal)),
          config_(config),
          world_(world),
          curvature_(curvature),
          quadratic_(quadratic),
          scaler_(scaler) {
        require(!quadratic_ || config_.micro_batches == 1,
                "kfac.step_size = quadratic_model runs forward several times on a whole batch: one micro-batch a step, "
                "here there "
                "are ",
                config_.micro_batches, "; kfac.step_size = optimizer is for any");
        require(config_.micro_batches >= 1, "trainer: ", config_.micro_batches, " micro-batches a step");
        require(config_.model_every >= 1, "trainer: F of one sample in ", config_.model_every);
        require(!config_.graph || RecordsSteps<D>, "train.cuda_graph = on is for GPUs; the network is on ", D::name);
        require(!quadratic_ || !config_.graph,
                "kfac.step_size = quadratic_model keeps outputs of its forward: train.cuda_graph must be off");
        require(!quadratic_ || (std::same_as<T, float>),
                "kfac.step_size = quadratic_model takes differences that layers in float alone can show: "
                "train.precision must be "
                "float32");
        require(scales || !scaler_, "trainer: a loss scale is for layers in float16");
        if constexpr (scales) {
            if (!scaler_) return;
            scale_.emplace();
            if (world_) world_->reducer().before([divide = scale_->division()](int, std::span<float> g) { divide(g); });
        }
    }

    /// One step on batch b, this rank's part of the whole. Throws when the loss or a gradient is not finite, on every
    /// rank alike, naming the step and the first layer whose output is not.
    step_result step(const batch& b, bool stop = false) { return step(device_batch<D>(slice(b, {0, b.count})), stop); }

    /// The same of a batch that is on D already. `meanwhile` is called when forward and backward are launched, before
    /// their results are waited for.
    step_result step(const device_batch<D>& staged, bool stop = false, const std::function<void()>& meanwhile = {}) {
        const batch& b = staged.host;
        const double whole = whole_batch(b);
        const index_t pieces = std::min(config_.micro_batches, b.count);
        listener_ = curvature_ ? curvature_->begin_step() : nullptr;
        if constexpr (scales) set_scale();
        if (listener_ && config_.sampled_every > 0) announce_sampled(staged, pieces, whole);
        if (world_) world_->begin(steps());
        step_scalars<D> launched = launch(staged, pieces, whole);
        wait_for(launched, meanwhile);
        step_totals mine{.loss = 0, .samples = static_cast<double>(b.count), .stop = stop ? 1.0 : 0.0};
        std::string reason;
        for (index_t m = 0; m < pieces; ++m) {
            const auto& piece = launched.pieces[static_cast<std::size_t>(m)];
            const range s = shard_of(b.count, static_cast<int>(pieces), static_cast<int>(m));
            const double loss = piece.loss;
            mine.loss += loss * static_cast<double>(s.count);
            correct_ += static_cast<index_t>(static_cast<double>(piece.correct));
            seen_ += s.count;
            if (std::isfinite(loss)) continue;
            const auto explain = [&] { throw_non_finite(slice(staged, s), context_of(s, m + 1 == pieces), loss); };
            if (!world_) explain();
            if (reason.empty()) reason = reason_of(explain);
        }
        step_result result{.samples = b.count, .stop = stop};
        if (world_) {
            const step_totals all = world_->finish(mine, steps() + 1, reason);
            result = {all.samples > 0 ? all.loss / all.samples : 0, static_cast<index_t>(all.samples), all.skip > 0,
                      all.stop > 0};
        } else {
            result.loss = mine.loss / mine.samples;
            result.skipped = static_cast<double>(launched.broken) > 0;
        }
        const bool nothing = result.samples == 0;  // all samples of all ranks were left out
        if (curvature_ && (result.skipped || nothing)) curvature_->skip_step();
        if (nothing) return result;
        if constexpr (scales)
            if (scaler_) adapt_scale(result);
        if (!result.skipped && quadratic_) {
            take_quadratic_step(staged, result, whole);
            ++optimizer_.steps();
        } else if (!result.skipped) {
            if (curvature_) curvature_->precondition(static_cast<double>(result.samples), rate_(steps()));
            update(launched);
            if (config_.sharded) world_->share_values();
        }
        return result;
    }

    /// Runs the model over this rank's part of one epoch of `data`, in evaluation mode.
    template <class Loader>
    evaluation evaluate(Loader& data) {
        evaluation s;
        const pass_context p{.mode = mode::evaluate};
        while (auto next = data.next()) {
            device_batch<D> b(std::move(*next));
            next.reset();
            if (b.host.count == 0) continue;
            if (b.host.x.empty() && goal_.kind() == objective_kind::reconstruction) b.host.x = b.there.x.on_host();
            saved_tensors<T, D> nothing;
            const tensor<float, D> y = cast<float>(model_.forward(cast<T>(b.there.x.share()), nothing, p));
            if constexpr (requires { data.prepare(); }) data.prepare();
            if constexpr (on_host)
                goal_.add(s, y, b.host);
            else
                goal_.add(s, y.on_host(), b.host);
        }
        return s;
    }

    /// Runs forward, and in training backward, once on zeros of this shape, so that each kernel has its algorithm;
    /// changes nothing else.
    void choose_kernels(const shape& in, mode how) {
        pass_context p{.mode = how, .random = {.seed = config_.seed}, .repeated = true, .input_gradient = false};
        if (curvature_ && p.training()) p.curvature = curvature_->discover();
        saved_tensors<T, D> scratch;
        tensor<T, D> y = model_.forward(tensor<T, D>::zeros(in), scratch, p);
        if (!p.training()) return;
        model_.backward(tensor<T, D>::zeros(y.shape()), scratch, p);
        weights_.zero_grad();
    }

    /// Steps that were launched as a whole (trainer_config::graph).
    std::int64_t recorded_steps() const {
        if constexpr (RecordsSteps<D>)
            return recorded_.launched();
        else
            return 0;
    }
    /// Graphs that one of them launches, besides that of an update by itself.
    index_t recorded_graphs() const {
        if constexpr (RecordsSteps<D>)
            return recorded_.graphs();
        else
            return 0;
    }
    /// Why some steps could not be; empty if none was tried in vain.
    std::string why_not_recorded() const {
        if constexpr (RecordsSteps<D>)
            return recorded_.refusal();
        else
            return {};
    }

    /// Updates done so far.
    std::int64_t steps() { return optimizer_.steps(); }
    double learning_rate() { return rate_(steps()); }
    any_optimizer<float, D>& optimizer() { return optimizer_; }
    const objective& goal() const { return goal_; }

    /// Training samples of this rank classified right, and seen, since the last call.
    std::pair<index_t, index_t> take_training_hits() { return {std::exchange(correct_, 0), std::exchange(seen_, 0)}; }

private:
    static constexpr bool on_host = std::same_as<D, cpu>;
    static constexpr bool scales = std::same_as<T, float16>;
    static_assert(!on_host || std::same_as<T, float>, "the host computes in float");

    // Of samples s of this rank.
    pass_context context_of(range s, bool last) {
        const pass_context p{.mode = mode::train,
                             .random = {.seed = config_.seed,
                                        .step = static_cast<std::uint32_t>(steps()),
                                        .first_sample = first_ + s.begin},
                             .input_gradient = false,
                             .curvature = listener_};
        return world_ ? world_->context_of(p, last) : p;
    }

    // One more forward and backward, from labels that the model draws: layers announce its rows. Gradients are made
    // afterwards.
    void announce_sampled(const device_batch<D>& b, index_t pieces, double whole) {
        for (index_t m = 0; m < pieces; ++m) {
            const range s = shard_of(b.host.count, static_cast<int>(pieces), static_cast<int>(m));
            const device_batch<D> piece =
                slice(b, {s.begin, (s.count + config_.sampled_every - 1) / config_.sampled_every});
            if (m + 1 == pieces) curvature_->last_micro_batch();
            pass_context p = context_of(s, false);
            p.repeated = true;
            p.weight_gradient = false;
            saved_tensors<T, D> scratch;
            const random_stream random = stream_of_path(config_.seed, p.random.path, "sampled labels", p.random.step);
            tensor<float, D> dy = goal_.sampled_gradient(
                cast<float>(model_.forward(cast<T>(piece.there.x.share()), scratch, p)), random, p.random.first_sample);
            const float weight = static_cast<float>(static_cast<double>(piece.host.count) / whole);
            for_each(functors::times<float>{weight}, dy);
            model_.backward(scaled(std::move(dy)), scratch, p);
        }
        listener_ = nullptr;
    }

    void take_quadratic_step(const device_batch<D>& b, const step_result& result, double whole) {
        const pass_context again = context_again();
        const device_batch<D> few = slice(b, few_of(b.host));
        const auto output = [&](bool entire) {
            saved_tensors<T, D> scratch;
            return cast<float>(model_.forward(cast<T>((entire ? b : few).there.x.share()), scratch, again));
        };
        // A rank without samples ran no forward.
        const tensor<float, D> before = b.host.count ? std::move(few_outputs_) : output(false);
        quadratic_->take(
            static_cast<double>(result.samples), result.loss, static_cast<double>(b.host.count) / whole, before, output,
            [&](tensor<float, D> y, bool entire) { return goal_.loss(std::move(y), (entire ? b : few).there); },
            [&](std::span<double> numbers) {
                if (world_) all_reduce(world_->world(), numbers);
            });
    }

    // The samples that F of the quadratic step is taken of.
    range few_of(const batch& b) const { return {0, (b.count + config_.model_every - 1) / config_.model_every}; }

    // Of the only micro-batch of this step: its outputs once more.
    pass_context context_again() {
        pass_context p = context_of({}, true);
        p.repeated = true;
        p.curvature = nullptr;
        return p;
    }

    // All of a step that waits for nothing: gradients, and where nobody changes these before it, the update. Recorded,
    // but for steps to which somebody listens.
    step_scalars<D> launch(const device_batch<D>& b, index_t pieces, double whole) {
        if constexpr (RecordsSteps<D>) {
            if (config_.graph) {
                recorded_.send(static_cast<std::uint32_t>(steps()), optimizer_, rate_(steps()));
                const auto all = [&](const host_callback& host) { return gradients(b, pieces, whole, host); };
                return listener_ || b.host.count == 0 ? all(host_callback())
                                                      : recorded_.gradients(b, whole, first_, all);
            }
        }
        return gradients(b, pieces, whole, host_callback());
    }

    step_scalars<D> gradients(const device_batch<D>& b, index_t pieces, double whole, const host_callback& host) {
        step_scalars<D> numbers;
        const bucket_watch watch(*this, host);
        weights_.zero_grad();
        for (index_t m = 0; m < pieces; ++m) {
            const range s = shard_of(b.host.count, static_cast<int>(pieces), static_cast<int>(m));
            if (listener_ && m + 1 == pieces) curvature_->last_micro_batch();
            pass_context p = context_of(s, m + 1 == pieces);
            if constexpr (RecordsSteps<D>)
                if (config_.graph) p.random.step_at = recorded_.step();
            numbers.pieces.push_back(forward_backward(slice(b, s), p, static_cast<double>(s.count) / whole));
        }
        numbers.broken = look_at_gradients();
        if constexpr (RecordsSteps<D>)
            if (updates_within()) {
                std::vector<device_scalar<D>> losses;
                for (const auto& piece : numbers.pieces) losses.push_back(piece.loss);
                optimizer_.launch(recorded_.of_update(), losses);
                numbers.norm = optimizer_.norm_of_update();
            }
        return numbers;
    }

    // Whether the update is launched before anybody has looked at the gradients: it changes nothing where they are not
    // finite.
    bool updates_within() const { return config_.graph && !world_ && !curvature_ && optimizer_.capturable(); }

    // While backward is recorded, full buckets do not leave: they do at these places each time the record is launched.
    class bucket_watch {
    public:
        bucket_watch(trainer& t, const host_callback& host) {
            if (!t.world_ || !t.config_.graph) return;
            auto& reducer = t.world_->reducer();
            host([&reducer] { reducer.begin(); });
            if (!host.recording()) return;
            held_ = &reducer;
            reducer.hold([&reducer, &host] { host([&reducer] { reducer.leave(); }); });
        }
        ~bucket_watch() {
            if (held_) held_->hold({});
        }
        bucket_watch(const bucket_watch&) = delete;
        bucket_watch& operator=(const bucket_watch&) = delete;

    private:
        gradient_reducer<float, D>* held_ = nullptr;
    };

    // For the numbers of a step, and with them for its launches.
    void wait_for(step_scalars<D>& launched, const std::function<void()>& meanwhile) {
        const auto between = [&] {
            if (meanwhile) meanwhile();
        };
        if constexpr (RecordsSteps<D>)
            if (config_.graph) return recorded_.fetch(launched, between);
        between();  // each number is waited for when it is read
    }

    void update(const step_scalars<D>& launched) {
        if constexpr (RecordsSteps<D>) {
            if (launched.norm) return void(optimizer_.finish(*launched.norm));
            if (config_.graph && optimizer_.capturable()) return void(optimizer_.finish(recorded_.update(optimizer_)));
        }
        optimizer_.step(rate_(steps()));
    }

    // {loss, samples classified right}. `weight`: share of these samples in the whole batch.
    typename step_scalars<D>::piece forward_backward(const device_batch<D>& b, const pass_context& p, double weight) {
        tensor<float, D> y;
        {
            const trace_scope scope("", "forward", "phase");
            y = cast<float>(model_.forward(cast<T>(b.there.x.share()), saved_, p));
        }
        scalar_on<D> correct = goal_.correct(y, b.there);
        if (quadratic_) few_outputs_ = rows(y, few_of(b.host)).clone(memory_category::workspace);
        auto [loss, dy] = [&] {
            const trace_scope scope("loss", "", "loss");
            return goal_.loss(std::move(y), b.there);
        }();
        if (weight != 1) for_each(functors::times<float>{static_cast<float>(weight)}, dy);
        const trace_scope scope("", "backward", "phase");
        model_.backward(scaled(std::move(dy)), saved_, p);
        return {std::move(loss), std::move(correct)};
    }

    // dy for layers in T.
    tensor<T, D> scaled(tensor<float, D>&& dy) {
        if constexpr (scales)
            if (scale_) return scale_->template times<T>(dy);
        return cast<T>(std::move(dy));
    }

    void set_scale() {
        if (!scale_ || scale_->now() == scaler_->scale()) return;
        scale_->set(scaler_->scale());
        if (curvature_) curvature_->gradients_scaled_by(scaler_->scale());
    }

    // On a rank alone: gradients without the scale, and how many are not finite. Where there are ranks, these do both.
    scalar_on<D> look_at_gradients() {
        if constexpr (scales)
            if (scale_ && !world_) return scale_->divide_and_count(weights_.grads());
        return 0;
    }

    // After every step that had samples. Throws, on all ranks alike, where no smaller scale helps.
    void adapt_scale(const step_result& result) {
        if (!result.skipped) return scaler_->took_step();
        if (world_ && config_.stop_at_loss && !std::isfinite(result.loss))
            world_->throw_non_finite(steps() + 1, "Lower the learning rate, warm up, or clip");
        if (scaler_->skipped_step() || (world_ && !scaler_->dynamic()))
            return;  // fixed: skipping is what was asked for
        const std::string advice = scaler_->dynamic()
                                       ? concat("The loss scale is ", scaler_->scale(),
                                                ", the least: lower the learning rate, warm up, clip, or take "
                                                "train.precision = bf16, which has float's range")
                                       : concat("train.loss_scale is ", scaler_->scale(), ": take less, or dynamic");
        if (world_) world_->throw_non_finite(steps() + 1, advice);
        for (const auto& [name, p] : weights_.parameters())
            if (const std::string found = first_non_finite("gradient of " + name, p->grad); !found.empty())
                fail("step ", steps() + 1, ": ", found, "; nothing was updated. ", advice);
        fail("step ", steps() + 1, ": a gradient is not finite. ", advice);
    }

    // Samples of all ranks in this step, and in first_ those before this rank's. Where ranks left corrupt samples out,
    // they must tell each other.
    double whole_batch(const batch& b) {
        first_ = world_ ? b.first_sample : 0;
        if (!world_) return static_cast<double>(b.count);
        if (!config_.may_skip) return static_cast<double>(b.global_count);
        std::vector<double> kept(static_cast<std::size_t>(world_->size()));
        const auto mine = kept.begin() + world_->rank();
        *mine = static_cast<double>(b.count);
        all_gather(world_->world(), std::span<double>(kept));
        first_ = static_cast<index_t>(std::accumulate(kept.begin(), mine, 0.0));
        return std::accumulate(kept.begin(), kept.end(), 0.0);
    }

    static device_batch<D> slice(const device_batch<D>& b, range s) {
        const auto part = [&](const auto& t) { return t.empty() ? t.share() : rows(t, s); };
        return {slice(b.host, s), {part(b.there.x), part(b.there.labels), part(b.there.targets)}};
    }

    static batch slice(const batch& b, range s) {
        batch part;
        if (!b.x.empty()) part.x = rows(b.x, s);  // there may be pixels instead, which are where the network is
        if (!b.labels.empty()) part.labels = rows(b.labels, s);
        if (!b.targets.empty()) part.targets = rows(b.targets, s);
        part.at = b.at;
        part.count = s.count;
        part.global_count = b.global_count;
        part.first_sample = b.first_sample + s.begin;
        return part;
    }

    template <class U, class Where>
    static tensor<U, Where> rows(const tensor<U, Where>& t, range s) {
        const index_t width = t.extent(0) ? t.size() / t.extent(0) : 0;
        return t.slice(s.begin * width, t.shape().with(0, s.count));
    }

    template <class Action>
    static std::string reason_of(Action&& action) {
        try {
            action();
        } catch (const error& e) {
            return e.what();
        }
        return {};
    }

    [[noreturn]] void throw_non_finite(const device_batch<D>& staged, pass_context p, double loss) {
        const batch& b = staged.host;
        const std::string where = concat("step ", steps() + 1, ": loss is ", loss, "; ");
        const std::string advice = concat("; lower the learning rate, warm up, or clip gradients",
                                          scales ? ", or take train.precision = bf16, which has float's range" : "");
        if (!b.targets.empty() && first_non_finite(b.targets))
            fail(where, "a target of the batch is not finite (sample data, not training)");
        if (first_non_finite(staged.there.x))
            fail(where, "the input batch holds a value that is not finite (sample data, not training)");
        for (const auto& [name, parameter] : weights_.parameters())
            if (first_non_finite(parameter->value)) fail(where, "parameter ", name, " is not finite", advice);
        p.repeated = true;
        p.group = nullptr;  // the other ranks do not take part
        saved_tensors<T, D> scratch;
        tensor<T, D> x = cast<T>(staged.there.x.share());
        for (int i = 0; i < model_.size(); ++i) {
            x = model_[i].forward(std::move(x), scratch.child(i), model_.context_of(i, p));
            if (first_non_finite(cast<float>(x)))
                fail(where, "the first layer with a non-finite output is ", model_.name(i), " (", model_[i].describe(),
                     ')', advice);
        }
        fail(where, "all layers give finite outputs: the loss itself overflows", advice);
    }

    sequential<T, D>& model_;
    arena<float, D>& weights_;
    any_optimizer<float, D> optimizer_;
    lr_schedule rate_;
    objective goal_;
    trainer_config config_;
    ranks<D>* world_;
    preconditioner<float, D>* curvature_;
    quadratic_step<D>* quadratic_;
    loss_scaler* scaler_;
    std::optional<gradient_scale<D>> scale_;  // where there is a scaler_
    curvature_listener* listener_ = nullptr;  // of the step at hand
    index_t first_ = 0;                       // samples of the step at hand that are other ranks' and come before
    graph_recorder<D> recorded_;
    saved_tensors<T, D> saved_;     // goes first: it may hold tensors of a step that could not be recorded
    tensor<float, D> few_outputs_;  // of the step at hand
    index_t correct_ = 0, seen_ = 0;
};

}  // namespace cairn
