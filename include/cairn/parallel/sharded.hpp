#pragma once
// Sharded optimizer state (Rajbhandari et al., SC'20, "ZeRO"): of N ranks, each keeps the optimizer's state for 1/N of
// the parameters and updates those alone; then the ranks exchange the new values.
//   stage 1   every rank has all gradients (all-reduce), updates its part;  all-gather of the values
//   stage 2   every rank gets the gradients of its part alone (reduce-scatter); the same from there
// Bytes on the wire: stage 1  3 (N-1)/N n,  stage 2  2 (N-1)/N n  as a plain all-reduce. State: 1/N.
// sharded<O> satisfies Optimizer as O does; bound_optimizer(sharded{…}, arena) is the driver.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/parallel/channel.hpp>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// Optimizer O on this rank's part of an arena.
template <class O>
struct sharded {
    O inner;
    range elements;  // see owners_of
    // Collective, called once a step by every rank's optimizer: from the squares by parameter of this part those of all
    // parameters of the whole model, in path order (PartialOptimizer).
    std::function<std::vector<double>(std::vector<double>)> over_ranks;
    // Of sums over the slices of one parameter, where parameters are cut over ranks (parallel/slice_sums.hpp):
    // collective among those ranks, which own the same parameters. Layer-wise optimizers need it.
    std::function<void(std::span<double>)> sum_over_slices = {};

    inline static const std::string name = concat("sharded ", O::name);
    static constexpr bool sums_over_slices = SumsOverSlices<O>;
    using config = typename O::config;
    template <class T, Device D>
    using state = typename O::template state<T, D>;

    template <class T>
        requires ElementwiseOptimizer<O, T>
    auto rule(const update_context& at) const { return inner.template rule<T>(at); }

    template <class T, Device D>
        requires(!ElementwiseOptimizer<O, T>)
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_context& at) const {
        inner.update(theta, grad, s, at);
    }

    void check() const {
        inner.check();
        require(static_cast<bool>(over_ranks), name, ": over_ranks is not set");
    }
    range owned() const { return elements; }
    std::vector<double> over_all(std::vector<double> by_parameter) const { return over_ranks(std::move(by_parameter)); }
};

/// Collective, after a sharded optimizer's step: every rank gets the values updated by the others.
template <Communicator C, class T, Device D>
void all_gather_values(channel<C>& over, arena<T, D>& weights, const std::vector<range>& owners) {
    const trace_scope scope("all-gather values", "", "communication");
    all_gather(over.device, weights.values().span(), owners, "parameters");
}

/// Cuts an arena into one range for each of `ranks`, as equal as whole cache lines allow, or whole parameters if so
/// asked (layer-wise optimizers need norms of those). A rank's range may be empty.
template <class T, Device D>
std::vector<range> owners_of(arena<T, D>& weights, int ranks, bool whole_parameters) {
    require(ranks >= 1, "owners: ", ranks, " ranks");
    const index_t total = weights.values().size(), line = memory_pool::alignment / static_cast<index_t>(sizeof(T));
    std::vector<index_t> cuts{0};  // where a range may end
    if (whole_parameters)
        for (const auto& [name, p] : weights.parameters())
            cuts.push_back(std::min(
                total, (p->value.data() - weights.values().data() + p->shape.size() + line - 1) / line * line));
    std::vector<range> all;
    index_t begin = 0;
    for (int r = 1; r <= ranks; ++r) {
        index_t end = r == ranks ? total : total / line * r / ranks * line;
        if (whole_parameters && r < ranks) {
            const auto above = std::lower_bound(cuts.begin(), cuts.end(), end);
            const bool lower = above != cuts.begin() && (above == cuts.end() || end - *(above - 1) <= *above - end);
            end = lower ? *(above - 1) : *above;
        }
        end = std::max(end, begin);
        all.push_back({begin, end - begin});
        begin = end;
    }
    return all;
}

}  // namespace cairn
