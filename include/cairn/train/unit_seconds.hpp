#pragma once
// Costs of a pipeline's units on the machine of a phantom rank (core/phantom.hpp): each unit runs as a stage of its own
// on memory that is never touched, forward and both halves of backward, and its kernels are priced. With
// parallel.cut_by = machine pipelines are cut by what the simulated machine is slow at.

#include <cairn/core/arena.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/train/pipeline_plan.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// Adds up what kernels take on another machine, on which no time passes.
class pricing_machine final : public counted_machine {
public:
    explicit pricing_machine(phantom_machine& of) : of_(of) {}
    void charge(const kernel_work& work) override { pass(of_.kernel_seconds(work)); }

private:
    phantom_machine& of_;
};

/// Seconds of a chain alone, for inputs of shape `in`; its gradient over the input is needed where `behind` another.
template <class T>
stage_costs seconds_of(sequential<T, cpu>& part, const shape& in, bool behind) {
    const pass_context pass{
        .mode = mode::train, .random = {.samples = in.front()}, .repeated = true, .input_gradient = behind};
    saved_tensors<T, cpu> saved;
    const auto seconds = [](auto&& phase) {
        const double begin = now();
        phase();
        return now() - begin;
    };
    auto x = tensor<T, cpu>::zeros(in);
    tensor<T, cpu> y;
    stage_costs costs;
    costs.forward = seconds([&] { y = part.forward(std::move(x), saved, pass); });
    auto dy = tensor<T, cpu>::zeros(y.shape());
    costs.input = seconds([&] { part.backward_input(std::move(dy), saved, pass); });
    costs.weight = seconds([&] { part.backward_weight(saved, pass); });
    return costs;
}

}  // namespace detail

/// On a phantom rank: costs and crossing times of `units`, the units of `model` for micro-batches of shape `in`, become
/// seconds on its machine; where that only counts, and takes no time, they stay. No layer may be shared with other
/// ranks. The model is spent.
template <class T>
void price_on_machine(std::vector<planned_unit>& units, sequential<T, cpu> model, const shape& in) {
    phantom_machine& machine = *phantom_here;
    std::vector<int> everywhere;
    for (std::size_t u = 1; u < units.size(); ++u) everywhere.push_back(static_cast<int>(u));
    detail::pricing_machine prices(machine);
    const phantom_rank apart(prices);  // with memory of its own: what is tried here is not the run's
    const shape one = in.with(0, 1);
    std::vector<sequential<T, cpu>> parts = cut(model, one, everywhere);
    const std::vector<shape> reads = boundaries_of(parts, one);
    parameter_list<float, cpu> parameters;
    for (auto& part : parts)
        for (auto& p : part.parameters()) parameters.push_back(p);
    const arena<float, cpu> weights(std::move(parameters), 0);
    std::vector<stage_costs> costs;
    double all = 0;
    for (std::size_t u = 0; u < parts.size(); ++u) {
        costs.push_back(detail::seconds_of(parts[u], reads[u].with(0, in.front()), u > 0));
        all += costs.back().forward;
    }
    if (all <= 0) return;
    for (std::size_t u = 0; u < units.size(); ++u) {
        units[u].costs = costs[u];
        units[u].crossing = 2 * machine.message_seconds(units[u].boundary_bytes);
    }
}

}  // namespace cairn
