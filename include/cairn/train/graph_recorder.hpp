#pragma once
// CUDA graphs (train.cuda_graph): a step's launches are captured once and replayed as a whole (core/captured_graph.hpp,
// course/decisions/0012-recorded-steps-have-memory-of-their-own.md). Elsewhere steps are launched one by one.
//   one rank        gradients of all micro-batches and the update are one graph
//   K-FAC           the gradients of steps without statistics; the update is a separate graph, behind K-FAC's launches
//   several ranks   gradients, cut where a bucket is full: it leaves while the next graph runs; the update is a
//                   separate graph
// A step is captured for each buffer of arriving batches, size of the batch, and size of the batch of all ranks. Step
// numbers, learning rates and values derived from them are sent ahead (core/launch_parameters.hpp).

#include <cairn/core/captured_graph.hpp>
#include <cairn/core/device_scalar.hpp>
#include <cairn/core/launch_parameters.hpp>
#include <cairn/data/micro_batches.hpp>
#include <cairn/optim/any_optimizer.hpp>
#include <cairn/parallel/gradient_reducer.hpp>
#include <cairn/train/training_algorithm.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn {

/// A device on which steps are recorded.
template <class D>
concept RecordsSteps = GraphCapture<D> && CopiesIn<D> && CopiesOut<D>;

/// How a trainer launches its steps.
struct recording_config {
    bool on = false;            // record them
    bool update_within = true;  // the update belongs to them: nothing changes gradients between backward and update
};

/// On a device that does not record: steps are launched one by one.
template <Device D>
class graph_recorder {
public:
    explicit graph_recorder(recording_config c, gradient_reducer<float, D>* /*reducer*/ = nullptr) {
        require(!c.on, "train.cuda_graph = on is for GPUs; the network is on ", D::name);
    }
    const std::uint32_t* step_at() { return nullptr; }
    template <class F>
    step_scalars<D> gradients(const micro_batches<D>&, any_optimizer<float, D>&, double, bool, F&& f) {
        return f();
    }
    /// Each number is waited for when it is read.
    void wait(step_scalars<D>&, const std::function<void()>& meanwhile) {
        if (meanwhile) meanwhile();
    }
    void update(any_optimizer<float, D>& optimizer, double lr, const step_scalars<D>&) { optimizer.step(lr); }

    std::int64_t launched() const { return 0; }
    index_t graphs() const { return 0; }
    std::string refusal() const { return {}; }
};

/// See the top of the file.
template <RecordsSteps D>
class graph_recorder<D> {
public:
    /// `reducer`: sends full buckets of gradients to other ranks; null for one rank.
    explicit graph_recorder(recording_config c, gradient_reducer<float, D>* reducer = nullptr)
        : config_(c), reducer_(reducer) {}

    /// Device address of the step number; null: it is part of the launches.
    const std::uint32_t* step_at() {
        if (!config_.on) return nullptr;
        parameters_.launch();
        return parameters_.place(step_);
    }

    /// Launches the gradients of a step: the launches of f(), and its result. Captured, except for steps whose layers
    /// announce their rows (`observed`).
    template <class F>
    step_scalars<D> gradients(const micro_batches<D>& b, any_optimizer<float, D>& optimizer, double lr, bool observed,
                              F&& f) {
        if (!config_.on) return f();
        send(static_cast<std::uint32_t>(optimizer.steps()), optimizer, lr);
        const auto all = [&](const host_callback& host) {
            const bucket_watch watch(reducer_, host);
            step_scalars<D> scalars = f();
            if (config_.update_within && optimizer.capturable()) {
                std::vector<device_scalar<D>> losses;
                for (const auto& piece : scalars.pieces) losses.push_back(piece.loss);
                optimizer.launch(of_update(), losses);
                scalars.norm = optimizer.norm_of_update();
            }
            return scalars;
        };
        place at{{}, b.global_count(), b.first_sample()};
        for (int m = 0; m < b.size(); ++m)
            std::get<0>(at).push_back(
                {b[m].there.x.data(), b[m].there.labels.data(), b[m].there.targets.data(), b[m].host.count});
        const bool one_more = !by_place_.contains(at);
        if (observed || b.count() == 0 || (one_more && by_place_.size() >= most_places)) return all(host_callback());
        auto& step = by_place_.try_emplace(std::move(at), memory_).first->second;
        auto scalars = step(all);
        launched_ += step.recorded();
        return scalars;
    }

    /// Waits for the results of a step, and so for its launches; calls `meanwhile`, if set, before it waits.
    void wait(step_scalars<D>& scalars, const std::function<void()>& meanwhile) {
        const auto between = [&] {
            if (meanwhile) meanwhile();
        };
        if (!config_.on) return between();  // each number is waited for when it is read
        std::vector<device_scalar<D>*> all{&scalars.broken};
        for (auto& [loss, correct] : scalars.pieces) all.insert(all.end(), {&loss, &correct});
        if (scalars.norm) all.push_back(&*scalars.norm);
        to_host_.fetch(all, between);
    }

    /// The update of a step whose gradients are final, unless it was launched with them.
    void update(any_optimizer<float, D>& optimizer, double lr, const step_scalars<D>& scalars) {
        if (scalars.norm)
            optimizer.finish(*scalars.norm);
        else if (config_.on && optimizer.capturable())
            optimizer.finish(launched_update(optimizer));
        else
            optimizer.step(lr);
    }

    /// Steps that were launched as a whole.
    std::int64_t launched() const { return launched_; }
    /// Graphs that the steps of one place launch, the most of all places; without an update that is a graph of its own.
    index_t graphs() const {
        index_t most = 0;
        for (const auto& [at, step] : by_place_) most = std::max(most, step.graphs());
        return most;
    }
    /// Why some steps could not be captured; empty if none failed.
    std::string refusal() const {
        for (const auto& [at, step] : by_place_)
            if (!step.refusal().empty()) return step.refusal();
        return update_.refusal();
    }

private:
    // Of each micro-batch: samples, labels and targets on the device, and how many. Then how many of all ranks, and how
    // many of those come before.
    using piece_at = std::tuple<const void*, const void*, const void*, index_t>;
    using place = std::tuple<std::vector<piece_at>, index_t, index_t>;
    static constexpr std::size_t most_places = 8;  // two sets of buffers, whole and short batches

    // While backward is captured, no bucket is submitted: each replay does so at these places.
    class bucket_watch {
    public:
        bucket_watch(gradient_reducer<float, D>* reducer, const host_callback& host) {
            if (!reducer) return;
            host([reducer] { reducer->begin(); });
            if (!host.recording()) return;
            held_ = reducer;
            reducer->hold([reducer, &host] { host([reducer] { reducer->submit_next_bucket(); }); });
        }
        ~bucket_watch() {
            if (held_) held_->hold({});
        }
        bucket_watch(const bucket_watch&) = delete;
        bucket_watch& operator=(const bucket_watch&) = delete;

    private:
        gradient_reducer<float, D>* held_ = nullptr;
    };

    // Sends the parameters of this step's launches: its number, and those of the update.
    void send(std::uint32_t step, any_optimizer<float, D>& optimizer, double lr) {
        step_ = step;
        parameters_.collect();
        parameters_.place(step_);
        update_begins_ = parameters_.position();
        if (optimizer.capturable()) optimizer.collect(lr, parameters_);
        parameters_.send();
    }
    // Parameters of the update's launches.
    launch_parameters& of_update() {
        parameters_.launch(update_begins_);
        return parameters_;
    }
    // The norm of the gradients that an update was taken with, launched by itself.
    double launched_update(any_optimizer<float, D>& optimizer) {
        device_scalar<D> norm = update_([&] {
            optimizer.launch(of_update());
            return optimizer.norm_of_update();
        });
        device_scalar<D>* const wanted[] = {&norm};
        to_host_.fetch(wanted, [] {});
        return norm;
    }

    recording_config config_;
    gradient_reducer<float, D>* reducer_;
    graph_memory<D> memory_;
    std::map<place, captured_graph<D, step_scalars<D>>> by_place_;
    captured_graph<D, device_scalar<D>> update_{memory_};
    launch_parameter_buffer<D> parameters_;
    std::uint32_t step_ = 0;
    std::size_t update_begins_ = 0;
    scalars_to_host<D> to_host_;
    std::int64_t launched_ = 0;
};

}  // namespace cairn
