#pragma once
// The audit of packed activations (stash/activation_memory.hpp) before a step of training: three times forward and
// backward of an eighth of the batch each, of which gradients alone are kept, and then a new plan where
// train.activation_memory = auto. Running statistics, random numbers of training and parameters stay as they are. On
// several ranks collective: bounds and plan are those of the first rank that has the place. The step packs by them.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/stash/activation_memory.hpp>
#include <cairn/train/plan_activations.hpp>
#include <cairn/train/step_hook.hpp>

#include <algorithm>

namespace cairn {

/// Before forward of the step `now`.
template <Device D>
void audit_activations(compressed_activations<D>& activations, const training_step<D, float>& now) {
    const micro_batches<D>& batch = now.batch;
    model_stages<D, float>& model = now.model;
    any_communicator* const everyone = now.everyone();
    const index_t count = batch.count(), part = std::max<index_t>(std::min<index_t>(2, count / 2), count / 8);
    require(part >= 1, "train.activation_memory = compress: a rank has ", count,
            " samples of a batch, and measures the noise of gradients by two parts of it; take a larger train.batch");
    // Other numbers than the step's.
    activations.packer().begin_step(now.pass.random.seed, ~now.pass.random.step);
    const auto run = [&](index_t first, index_t samples, curvature_listener* listener) {
        micro_batches<D> piece(samples_of(batch.whole(), {first, samples}));
        piece.place(piece.first_sample(), samples);
        step_scalars<D> losses;
        model.observe(
            {samples}, [&](int m, tensor<float, D> y) { return now.loss.gradient(piece, m, std::move(y), losses); },
            [&](int m) {
                pass_context p = now.pass_of(piece[m]);
                p.repeated = true;
                p.curvature = listener;
                return stage_input<float, D>{piece[m].there.x.share(), p};
            });
    };
    const auto recompute = [&](bool on) {
        if (!activations.plans()) return;
        sequential<float, D>& chain = model.stages().front().layers();
        on&& activations.plan() ? apply(chain, *activations.plan()) : chain.recompute({});
    };
    const auto audit = [&] {
        activations.audit([&](int number, curvature_listener* listener) { run(number * part, part, listener); },
                          recompute);
        if (everyone) restore(activations, all_gather_text(*everyone, text_of(activations)));
    };
    audit();
    rank_agreement ranks;
    if (everyone) {
        ranks.of_root = [&](const std::string& mine) { return broadcast_text(*everyone, mine); };
        ranks.largest = [&](double mine) {
            all_reduce(*everyone, std::span<double>(&mine, 1), {.op = reduction::max});
            return mine;
        };
    }
    activations.schedule_after(now.number);
    if (!activations.plans()) return;
    const bool first = !activations.plan();
    const std::vector<index_t> samples = batch.samples();  // of the micro-batches
    const shape in = batch.whole().there.x.shape().with(0, *std::ranges::max_element(samples));
    plan_activations(activations, model.stages().front().layers(), in, part, D::memory().limit(), ranks,
                     [&](index_t n) {
                         run(0, n, nullptr);
                         model.weights().zero_grad();
                     });
    if (first) audit();  // bounds of the segments' inputs, which nothing has measured yet
}

/// See the top of the file.
template <Device D>
class activation_packing final : public step_hook<D, float> {
public:
    /// `activations` outlives this.
    explicit activation_packing(compressed_activations<D>& activations) : activations_(activations) {}

    void attach(model_stages<D, float>& model, const trainer_config<D>&) override {
        model_ = &model;
        model.follow(&activations_.packer());
    }

    void begin(training_step<D, float>& now) override {
        // A short last batch may leave a rank without samples: all wait for the next.
        const index_t ranks = now.ranks ? now.ranks->size() : 1;
        if (activations_.due(now.number) && (now.number == 0 || now.batch.global_count() >= 2 * ranks))
            audit_activations(activations_, now);
        activations_.packer().begin_step(now.pass.random.seed, now.pass.random.step);
    }

    void state_loaded() override {
        if (activations_.plan()) apply(model_->stages().front().layers(), *activations_.plan());
    }

private:
    compressed_activations<D>& activations_;
    model_stages<D, float>* model_ = nullptr;
};

}  // namespace cairn
