#pragma once
// A rank's part of the model: all of it, or stages of a pipeline. Training and evaluation run it by lists of actions
// (parallel/pipeline/execute.hpp), on one rank and on many by the same text.

#include <cairn/comm/any.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/parallel/pipeline/execute.hpp>
#include <cairn/parallel/pipeline/tied_weights.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Layers and arena must outlive it.
template <Device D, class T>
class model_stages {
public:
    using links_type = stage_links<T, D, any_communicator>;

    /// The whole model.
    model_stages(sequential<T, D>& model, arena<float, D>& weights) : weights_(weights), tied_(weights) {
        stages_.emplace_back(model, weights);
        rank_of_stage_ = {0};
        schedule_ = [](int micro_batches) {
            return pipeline_program{.name = "gradient accumulation",
                                    .micro_batches = micro_batches,
                                    .rank_of_stage = {0},
                                    .actions = {gradient_accumulation(micro_batches)}};
        };
    }

    /// This rank's stages of a pipeline, which `over` leads along; `boundaries`: cut.hpp. `schedule`: the program of a
    /// step with so many micro-batches, one at least.
    model_stages(std::vector<sequential<T, D>>& layers, arena<float, D>& weights, channel<any_communicator>& over,
                 std::vector<int> rank_of_stage, std::vector<shape> boundaries,
                 std::function<pipeline_program(int)> schedule)
        : weights_(weights),
          links_(over, boundaries),
          rank_of_stage_(std::move(rank_of_stage)),
          boundaries_(std::move(boundaries)),
          schedule_(std::move(schedule)),
          tied_(weights, over) {
        for (auto& part : layers) stages_.emplace_back(part, weights);
    }

    bool is_pipeline() const { return !boundaries_.empty(); }
    bool has_last() const { return rank_of_stage_.back() == links_.rank(); }
    std::vector<stage<sequential<T, D>>>& stages() { return stages_; }
    /// Of all of them.
    arena<float, D>& weights() { return weights_; }

    /// `listener` hears in the last backward of each stage which gradients are final; may be null.
    void listen(gradient_listener* listener) {
        listener_ = listener;
        for (auto& s : stages_) s.listener = listener;
    }
    /// `call` runs before the last backward of each stage.
    void before_last_backward(const std::function<void()>& call) {
        for (auto& s : stages_) s.before_last_backward = call;
    }

    /// The treatment of activations between forward and backward; null: they are kept.
    void follow(stash_policy<T, D>* policy) {
        for (auto& s : stages_) s.policy = policy;
    }

    /// Of each stage here: its number in the model.
    std::vector<int> numbers() const {
        std::vector<int> here;
        for (std::size_t s = 0; s < rank_of_stage_.size(); ++s)
            if (rank_of_stage_[s] == links_.rank()) here.push_back(static_cast<int>(s));
        return here;
    }
    /// Shape of stage number `s`'s input, for a model input of shape `in`.
    shape input_of(int s, const shape& in) const {
        return s == 0 ? in : boundaries_[static_cast<std::size_t>(s)].with(0, in.front());
    }

    /// Adds the gradients of a step, see execute().
    template <class Objective, class Batch>
    void train(const std::vector<index_t>& samples, Objective&& objective, Batch&& batch) {
        share_values();
        tied_.begin();
        execute(program_of(samples), samples, stages_, links_, std::forward<Objective>(objective),
                std::forward<Batch>(batch));
        tied_.sum(listener_);
        values_changed();  // by the update that follows
    }

    /// The same forwards and backwards for those who watch the layers: no listener is told of gradients, which passes
    /// need not ask for.
    template <class Objective, class Batch>
    void observe(const std::vector<index_t>& samples, Objective&& objective, Batch&& batch) {
        observe(samples, std::forward<Objective>(objective), std::forward<Batch>(batch), links_);
    }
    /// The same by way of other links, such as those of a rehearsal.
    template <class Objective, class Batch, class Links>
    void observe(const std::vector<index_t>& samples, Objective&& objective, Batch&& batch, Links& links) {
        share_values();
        for (auto& s : stages_) s.listener = nullptr;
        execute(program_of(samples), samples, stages_, links, std::forward<Objective>(objective),
                std::forward<Batch>(batch));
        for (auto& s : stages_) s.listener = listener_;
    }

    const pipeline_program& program_of(const std::vector<index_t>& samples) {
        const int m = static_cast<int>(samples.size());
        auto at = programs_.find(m);
        if (at == programs_.end()) at = programs_.emplace(m, m > 0 ? schedule_(m) : forwards(0)).first;
        return at->second;
    }
    const std::vector<shape>& boundaries() const { return boundaries_; }
    sent_messages tied_sends() const { return tied_.sends(); }
    /// Of the last step on this rank.
    const links_time& time() const { return links_.time(); }

    /// Outputs of the last stage alone: output(m, y).
    template <class Output, class Batch>
    void predict(const std::vector<index_t>& samples, Output&& output, Batch&& batch) {
        const auto no_gradient = [&](int m, tensor<T, D> y) {
            output(m, std::move(y));
            return tensor<T, D>();
        };
        share_values();
        execute(forwards(static_cast<int>(samples.size())), samples, stages_, links_, no_gradient,
                std::forward<Batch>(batch));
    }

    /// The output for one batch by the present weights; nothing is kept. Empty on ranks without the last stage.
    tensor<T, D> output(tensor<T, D> x, const pass_context& p) {
        values_changed();
        share_values();
        tensor<T, D> y;
        const auto take = [&](int, tensor<T, D> last) {
            y = std::move(last);
            return tensor<T, D>();
        };
        execute(forwards(1), {x.extent(0)}, stages_, links_, take, [&](int) {
            return stage_input<T, D>{x.share(), p};
        });
        for (auto& s : stages_) s.forget(0);
        return y;
    }

    /// Before the first step: runs each stage once on zeros, forward and in training backward, for a model input of
    /// shape `in`. Kernels that are chosen by measurement (device/autotune.hpp) get their algorithms, and `curvature`
    /// (of discover(), may be null) learns the layers. Gradients are zero afterwards; nothing else changes.
    /// `prepare` sees each pass first.
    void choose_kernels(curvature_listener* curvature, const shape& in, mode how, std::uint64_t seed,
                        const std::function<void(pass_context&)>& prepare) {
        const std::vector<int> here = numbers();
        for (std::size_t s = 0; s < here.size(); ++s) {
            sequential<T, D>& layers = stages_[s].layers();
            const shape read = input_of(here[s], in);
            pass_context p{.mode = how,
                           .random = {.seed = seed, .samples = read.front()},
                           .repeated = true,
                           .input_gradient = here[s] > 0};
            p.curvature = curvature;
            prepare(p);
            saved_tensors<T, D> scratch;
            tensor<T, D> y = layers.forward(tensor<T, D>::zeros(read), scratch, p);
            if (!p.training()) continue;
            layers.backward(tensor<T, D>::zeros(y.shape()), scratch, p);
            weights_.zero_grad();
        }
    }

    /// Collective along the pipeline: copies of tied weights are of other values than their parameters now.
    void values_changed() { shared_ = false; }

private:
    void share_values() {
        if (!std::exchange(shared_, true)) tied_.share_values();
    }

    /// Every micro-batch forward, stage after stage.
    pipeline_program forwards(int micro_batches) const {
        pipeline_program p{.name = "forward", .micro_batches = micro_batches, .rank_of_stage = rank_of_stage_};
        for (const int r : rank_of_stage_) p.ranks = std::max(p.ranks, r + 1);
        p.actions.resize(static_cast<std::size_t>(p.ranks));
        for (int s = 0; s < p.stages(); ++s)
            for (int m = 0; m < micro_batches; ++m)
                p.actions[static_cast<std::size_t>(rank_of_stage_[static_cast<std::size_t>(s)])].push_back(
                    {action_kind::forward, s, m});
        return p;
    }

    arena<float, D>& weights_;
    links_type links_;
    std::vector<int> rank_of_stage_;
    std::vector<shape> boundaries_;
    std::function<pipeline_program(int)> schedule_;
    std::map<int, pipeline_program> programs_;  // by number of micro-batches
    std::vector<stage<sequential<T, D>>> stages_;
    tied_weights<float, D, any_communicator> tied_;
    bool shared_ = false;  // copies of tied weights have the values of now
    gradient_listener* listener_ = nullptr;
};

}  // namespace cairn
