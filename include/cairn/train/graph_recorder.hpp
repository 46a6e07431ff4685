#pragma once
// What a trainer keeps for steps that are recorded (core/captured_graph.hpp,
// course/decisions/0012-recorded-steps-have-memory-of-their-own.md).
//   one rank        gradients of all micro-batches and the update are one graph
//   K-FAC           the gradients of steps in which it takes no statistics; the update is a graph of its own, behind
//                   what K-FAC launches
//   several ranks   gradients, cut where a bucket of them is full: it leaves while the next graph runs; the update is a
//                   graph of its own
// A step is recorded for each place in which batches arrive, size of the batch, and size of the batch of all ranks.
// Step numbers, learning rates and what follows from them are sent ahead (core/launch_parameters.hpp).

#include <cairn/core/captured_graph.hpp>
#include <cairn/core/device_scalar.hpp>
#include <cairn/core/launch_parameters.hpp>
#include <cairn/data/prefetcher.hpp>
#include <cairn/train/any_optimizer.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn {

/// A device on which steps are recorded.
template <class D>
concept RecordsSteps = GraphCapture<D> && CopiesIn<D> && CopiesOut<D>;

/// What the launches of a step compute for the host.
template <Device D>
struct step_scalars {
    struct piece {
        scalar_on<D> loss, correct;  // correct: samples classified right
    };
    std::vector<piece> pieces;              // of each micro-batch
    scalar_on<D> broken = 0;                // gradients that are not finite, where somebody counts
    std::optional<scalar_on<D>> norm = {};  // of the gradients, where the update was launched too
};

/// See the top of the file. Nothing on devices that do not record.
template <Device D>
struct graph_recorder {};

template <RecordsSteps D>
class graph_recorder<D> {
public:
    /// Sends what this step's launches are to know: the numbers of its passes from `first` on, and what the update is
    /// told.
    void send(std::uint32_t first, index_t micro_batches, any_optimizer<float, D>& optimizer, double lr) {
        passes_.resize(static_cast<std::size_t>(micro_batches));
        for (std::size_t m = 0; m < passes_.size(); ++m) passes_[m] = first + static_cast<std::uint32_t>(m);
        numbers_.collect();
        numbers_.place(std::span<const std::uint32_t>(passes_));
        update_begins_ = numbers_.position();
        if (optimizer.capturable()) optimizer.collect(lr, numbers_);
        numbers_.send();
    }

    /// Where launches find the numbers of the passes.
    const std::uint32_t* passes() {
        numbers_.launch();
        return numbers_.place(std::span<const std::uint32_t>(passes_));
    }
    /// What an update is launched with.
    launch_parameters& of_update() {
        numbers_.launch(update_begins_);
        return numbers_;
    }

    /// What `gradients` returns, which launches the step on batch b, of `whole` samples of all ranks.
    template <class F>
    step_scalars<D> gradients(const device_batch<D>& b, double whole, F&& f) {
        const place at{b.there.x.data(), b.there.labels.data(), b.there.targets.data(), b.host.count, whole};
        if (!by_place_.contains(at) && by_place_.size() >= most_places) return f(host_callback());
        auto& step = by_place_.try_emplace(at, memory_).first->second;
        auto numbers = step(f);
        launched_ += step.recorded();
        return numbers;
    }

    /// The norm of the gradients that an update was taken with, launched by itself.
    double update(any_optimizer<float, D>& optimizer) {
        device_scalar<D> norm = update_([&] {
            optimizer.launch(of_update());
            return optimizer.norm_of_update();
        });
        device_scalar<D>* const wanted[] = {&norm};
        to_host_.fetch(wanted, [] {});
        return norm;
    }

    /// The host knows the numbers afterwards; what is called between is done beside the step.
    template <class Meanwhile>
    void fetch(step_scalars<D>& numbers, Meanwhile&& between) {
        std::vector<device_scalar<D>*> all{&numbers.broken};
        for (auto& [loss, correct] : numbers.pieces) all.insert(all.end(), {&loss, &correct});
        if (numbers.norm) all.push_back(&*numbers.norm);
        to_host_.fetch(all, between);
    }

    /// Steps that were launched as a whole.
    std::int64_t launched() const { return launched_; }
    /// Graphs that the steps of one place launch, the most of all places; without an update that is a graph of its own.
    index_t graphs() const {
        index_t most = 0;
        for (const auto& [at, step] : by_place_) most = std::max(most, step.graphs());
        return most;
    }
    /// Why some could not be; empty if none was tried in vain.
    std::string refusal() const {
        for (const auto& [at, step] : by_place_)
            if (!step.refusal().empty()) return step.refusal();
        return update_.refusal();
    }

private:
    // Samples, labels and targets on the device, how many, and how many of all ranks.
    using place = std::tuple<const void*, const void*, const void*, index_t, double>;
    static constexpr std::size_t most_places = 8;  // two sets of buffers, whole and short batches

    graph_memory<D> memory_;
    std::map<place, captured_graph<D, step_scalars<D>>> by_place_;
    captured_graph<D, device_scalar<D>> update_{memory_};
    launch_parameter_buffer<D> numbers_;
    std::vector<std::uint32_t> passes_;  // their numbers in this step
    std::size_t update_begins_ = 0;
    scalars_to_host<D> to_host_;
    std::int64_t launched_ = 0;
};

}  // namespace cairn
