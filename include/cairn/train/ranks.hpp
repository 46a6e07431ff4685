#pragma once
// The data axis of a training run, over any communicator.

#include <cairn/comm/any.hpp>
#include <cairn/parallel/data_axis.hpp>

namespace cairn {

/// Of a network on D whose weights are in float.
template <Device D = cpu>
using ranks = data_axis<any_communicator, float, D>;

}  // namespace cairn
