#pragma once
// What ranks that share K-FAC's work do together, however they share it: kfac_ranks.hpp on the host, kfac_device_ranks.hpp on devices.

#include <cairn/comm/agree.hpp>
#include <cairn/comm/wait_for.hpp>
#include <cairn/optim/precondition/kfac_block.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace cairn {

/// Collective. Throws on all ranks where they precondition different layers.
template <Communicator C, class T, Device D>
void agree_on_layers(C& world, const std::vector<kfac_block<T, D>>& blocks) {
    std::string layers;
    for (const kfac_block<T, D>& b : blocks) layers += concat(b.name, ' ', b.out, 'x', b.in, '\n');
    agree(world, layers, "the layers that kfac preconditions");
}

/// Collective. Returns when every rank has made its decompositions, which may take longer than a message is waited for.
template <Communicator C, class T, Device D>
void wait_for_decompositions(C& world, const std::vector<kfac_block<T, D>>& blocks) {
    constexpr index slow = 2048;  // decompositions of this size take seconds, of 8192 minutes
    if (std::ranges::any_of(blocks, [](const kfac_block<T, D>& b) { return std::max(b.in / b.taps, b.out) >= slow; }))
        for (int r = 0; r < world.size(); ++r) wait_for(world, r);
}

}  // namespace cairn
