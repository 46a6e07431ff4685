#pragma once
// Times of a pipeline's actions without waiting: every rank runs its list with inputs and output gradients at hand. All
// ranks run at the same time, so that they share memory bandwidth as in a step.
//   simulate(program, rehearsal.costs()).makespan        the step's time if messages cost nothing

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/parallel/pipeline/program.hpp>

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. execute() takes it in place of stage_links, once or more often.
template <class T, Communicator C, Device D = cpu>
class rehearsal {
public:
    /// `over`: the ranks of the pipeline; must outlive this. `boundaries`: shapes of what enters each stage, for one
    /// sample (cut.hpp).
    rehearsal(C& over, std::vector<shape> boundaries) : over_(over), boundaries_(std::move(boundaries)) {}

    int rank() const { return over_.rank(); }

    /// Collective: all ranks go on together.
    void begin(const pipeline_program& program, const std::vector<index_t>& samples) {
        stages_ = static_cast<std::size_t>(program.stages());
        mine_ = program.actions[static_cast<std::size_t>(rank())];
        ends_.clear();
        at_hand_.clear();
        for (const action& a : mine_) {
            const bool gradient = a.kind != action_kind::forward;
            const int boundary = gradient ? a.stage : a.stage - 1;
            if (a.kind == action_kind::backward_weight || boundary < 0 || boundary + 1 >= program.stages()) continue;
            const shape of_one = boundaries_[static_cast<std::size_t>(boundary + 1)];
            at_hand_[{boundary, gradient, a.micro_batch}] =
                random_numbers(of_one.with(0, samples[static_cast<std::size_t>(a.micro_batch)]), gradient ? 1e-3 : 1);
        }
        D::wait();
        barrier(over_);
    }
    void send(int, bool, int, tensor<T, D>) {}
    tensor<T, D> receive(int boundary, bool gradient, int m) { return std::move(at_hand_.at({boundary, gradient, m})); }
    void progress() {
        D::wait();
        ends_.push_back(now());
    }
    void finish() {
        progress();
        for (std::size_t i = 0; i < mine_.size(); ++i)
            seconds_[{mine_[i].stage, mine_[i].kind}].push_back(ends_[i + 1] - ends_[i]);
    }

    /// Collective. Median seconds of the actions of each stage; a B counts half as I, half as W.
    std::vector<stage_costs> costs() {
        std::vector<double> all(3 * stages_, 0.0);  // of each stage F, I, W
        for (auto& [what, seconds] : seconds_) {
            const auto [stage, kind] = what;
            const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
            std::nth_element(seconds.begin(), middle, seconds.end());
            double* const of_stage = &all[3 * static_cast<std::size_t>(stage)];
            if (kind == action_kind::forward) of_stage[0] = *middle;
            if (kind == action_kind::backward_input) of_stage[1] = *middle;
            if (kind == action_kind::backward_weight) of_stage[2] = *middle;
            if (kind == action_kind::backward) of_stage[1] = of_stage[2] = *middle / 2;
        }
        all_reduce(over_, std::span<double>(all));
        std::vector<stage_costs> costs;
        for (std::size_t s = 0; s < stages_; ++s) costs.push_back({all[3 * s], all[3 * s + 1], all[3 * s + 2]});
        return costs;
    }

private:
    static tensor<T, D> random_numbers(const shape& s, double deviation) {
        const random_stream random{1, stream_of("rehearsal"), 0};
        tensor<T> numbers(s, memory_category::workspace);
        for (index_t i = 0; i < numbers.size(); ++i)
            numbers[i] =
                static_cast<T>(static_cast<float>(deviation * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1)));
        return tensor<T, D>::copy_of(numbers);
    }

    C& over_;
    std::vector<shape> boundaries_;
    std::size_t stages_ = 0;
    action_list mine_;
    std::map<std::tuple<int, bool, int>, tensor<T, D>> at_hand_;  // by boundary, direction and micro-batch
    std::vector<double> ends_;  // of the actions of one run; the first number is its start
    std::map<std::pair<int, action_kind>, std::vector<double>> seconds_;
};

}  // namespace cairn
