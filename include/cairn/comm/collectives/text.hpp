#pragma once
// Texts between ranks: settings, errors, records. Not for speed.

#include <cairn/comm/collectives/broadcast.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace cairn {

inline constexpr int text_tag = user_tags + 14;

/// The text of rank `root`, on all ranks.
template <Communicator C>
std::string broadcast_text(C& c, std::string text, int root = 0) {
    std::array<std::int64_t, 1> length{static_cast<std::int64_t>(text.size())};
    broadcast(c, std::span<std::int64_t>(length), root);
    text.resize(static_cast<std::size_t>(length[0]));
    broadcast(c, std::span<char>(text), root);
    return text;
}

/// The texts of all ranks in their order, on all ranks: up a binomial tree to rank 0, each with its length in front,
/// and back by a broadcast. 4 (p - 1) messages in 4 ⌈lg p⌉ rounds.
template <Communicator C>
std::vector<std::string> all_gather_text(C& c, const std::string& mine) {
    std::array<std::int64_t, 1> length{static_cast<std::int64_t>(mine.size())};
    std::string packed(reinterpret_cast<const char*>(length.data()), sizeof length);
    packed += mine;
    const int me = c.rank();
    for (int bit = 1; bit < c.size(); bit *= 2) {  // packed: of the ranks from me to me + bit
        if (me & bit) {
            length[0] = static_cast<std::int64_t>(packed.size());
            send(c, std::span<std::int64_t>(length), me - bit, text_tag);
            send(c, std::span<char>(packed), me - bit, text_tag);
            break;
        }
        if (me + bit >= c.size()) continue;
        recv(c, std::span<std::int64_t>(length), me + bit, text_tag);
        const std::size_t before = packed.size();
        packed.resize(before + static_cast<std::size_t>(length[0]));
        recv(c, std::span<char>(packed).subspan(before), me + bit, text_tag);
    }
    packed = broadcast_text(c, std::move(packed));
    std::vector<std::string> all;
    for (std::size_t at = 0; at < packed.size();) {
        std::memcpy(length.data(), packed.data() + at, sizeof length);
        all.push_back(packed.substr(at + sizeof length, static_cast<std::size_t>(length[0])));
        at += sizeof length + all.back().size();
    }
    return all;
}

}  // namespace cairn
