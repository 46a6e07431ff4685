#pragma once
// Sums by parameter where a mesh axis cuts parameters into slices (parameter_layout): Σ over the slices of all ranks,
// parameters that every rank holds counted once. With it a norm of all gradients, clipping, LARS and LAMB on p ranks
// are those of one.
//   slice_sums slices(over, weights, "tensor");
//   sharded{rule, {0, weights.values().size()},
//           [&](auto by_parameter) { return slices.by_parameter(by_parameter), by_parameter; },
//           [&](std::span<double> of_one) { slices.of_slices(of_one); }}
// Bytes: one all-reduce of 8 bytes a parameter, and for layer-wise optimizers one of 16 bytes for each sliced
// parameter.
// Tested on a transformer in tests/parallel/tensor/training_test.cpp.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/parallel/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file. Every rank of the axis has the same parameters, in the same order.
template <Communicator C>
class slice_sums {
public:
    template <class T, Device D>
    slice_sums(channel<C>& over, const arena<T, D>& weights, const std::string& axis) : over_(over) {
        for (const auto& [name, p] : weights.parameters()) {
            // A parameter that is whole on this rank is whole on each rank of the axis.
            const bool replicated = p->layout.is_whole() || std::ranges::count(p->layout.replicated_over, axis) > 0;
            counts_.push_back(!replicated || over.rank() == 0);
        }
    }

    /// Collective: sums[i] of parameter i, over its slices. The same bits on each rank.
    void by_parameter(std::span<double> sums) const {
        require(sums.size() == counts_.size(), "slice_sums: ", sums.size(), " sums of ", counts_.size(), " parameters");
        for (std::size_t i = 0; i < sums.size(); ++i)
            if (!counts_[i]) sums[i] = 0;
        of_slices(sums);
    }

    /// Collective: of one parameter, every one of whose slices is on one rank.
    void of_slices(std::span<double> sums) const { all_reduce(over_.host, sums, {.label = "sums over slices"}); }

private:
    channel<C>& over_;
    std::vector<bool> counts_;
};

}  // namespace cairn
