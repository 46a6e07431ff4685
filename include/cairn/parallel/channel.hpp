#pragma once
// The communicators of one mesh axis: one for the host's messages, one for tensors of the network's device. On the host
// both carry the same memory, and two threads may use one each.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/tensor.hpp>

#include <optional>
#include <utility>

namespace cairn {

/// Two communicators of the same ranks.
template <Communicator C>
struct channel {
    C host;    // messages of the host, by the thread that trains
    C device;  // tensors of the network's device

    /// Collective. Two communicators of the ranks of `world`; the second one is `of_device` where it is given: a
    /// communicator of the device's memory, for ranks in the same order.
    explicit channel(C& world, std::optional<C> of_device = {})
        : host(world.split(0, world.rank())),
          device(of_device ? *std::move(of_device) : world.split(0, world.rank())) {}

    int rank() const { return host.rank(); }
    int size() const { return host.size(); }
};

/// Throws unless `over` carries tensors of D between its ranks. Every communicator carries those of the host.
template <Device D, Communicator C>
void require_carries(channel<C>& over) {
    require(
        std::same_as<D, cpu> || over.size() == 1 || (buffers_on_gpu(over.device) && over.device.size() == over.size()),
        "channel: ", over.device.name(), " cannot carry tensors of ", D::name,
        "; give the channel a communicator of the device's memory between the same ranks");
}

}  // namespace cairn
