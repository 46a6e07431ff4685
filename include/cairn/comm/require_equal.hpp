#pragma once
// Ranks must run with the same settings and the same build: compared once, at the start.

#include <cairn/comm/communicator.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// FNV-1a of a text, 64 bits.
constexpr std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 14695981039346656037ull;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    return hash;
}

/// Collective. Throws on every rank, naming those whose text differs from rank 0's; `what` says what the text is.
template <Communicator C>
void require_equal(C& c, std::string_view text, std::string_view what) {
    const auto scope = enter(c, {"require_equal", "hash", 1, 0, what});
    constexpr int tag = max_tag - 1;
    const std::uint64_t mine = hash_of(text);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(c.size()), mine);
    if (c.rank() == 0) {
        for (int r = 1; r < c.size(); ++r)
            recv(c, std::span<std::uint64_t>(&all[static_cast<std::size_t>(r)], 1), r, tag);
        for (int r = 1; r < c.size(); ++r) send(c, std::span<const std::uint64_t>(all), r, tag);
    } else {
        send(c, std::span<const std::uint64_t>(&mine, 1), 0, tag);
        recv(c, std::span<std::uint64_t>(all), 0, tag);
    }
    std::string others;
    for (int r = 1; r < c.size(); ++r)
        if (all[static_cast<std::size_t>(r)] != all[0]) others += (others.empty() ? "" : ", ") + std::to_string(r);
    require(others.empty(), "ranks differ in ", what, ": that of rank(s) ", others,
            " is not rank 0's; start all ranks alike");
}

}  // namespace cairn
