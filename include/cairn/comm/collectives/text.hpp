#pragma once
// Texts between ranks: settings, errors, records. Not for speed.

#include <cairn/comm/collectives/broadcast.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// The text of rank `root`, on all ranks.
template <Communicator C>
std::string broadcast_text(C& c, std::string text, int root = 0) {
    std::array<std::int64_t, 1> length{static_cast<std::int64_t>(text.size())};
    broadcast(c, std::span<std::int64_t>(length), root);
    text.resize(static_cast<std::size_t>(length[0]));
    broadcast(c, std::span<char>(text), root);
    return text;
}

/// The texts of all ranks in their order, on all ranks.
template <Communicator C>
std::vector<std::string> all_gather_text(C& c, const std::string& mine) {
    std::vector<std::string> all;
    for (int r = 0; r < c.size(); ++r) all.push_back(broadcast_text(c, r == c.rank() ? mine : std::string{}, r));
    return all;
}

}  // namespace cairn
