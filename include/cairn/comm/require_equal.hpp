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

/// Collective. The values of all ranks in their order, on all ranks, by way of rank 0; for what is compared or agreed
/// on before anything else is known of the others.
template <Communicator C, class T>
std::vector<T> values_of_ranks(C& c, const T& mine) {
    constexpr int tag = max_tag - 1;
    std::vector<T> all(static_cast<std::size_t>(c.size()), mine);
    if (c.rank() == 0) {
        for (int r = 1; r < c.size(); ++r) recv(c, std::span<T>(&all[static_cast<std::size_t>(r)], 1), r, tag);
        for (int r = 1; r < c.size(); ++r) send(c, std::span<const T>(all), r, tag);
    } else {
        send(c, std::span<const T>(&mine, 1), 0, tag);
        recv(c, std::span<T>(all), 0, tag);
    }
    return all;
}

/// Collective. Throws on every rank, naming those whose text differs from rank 0's; `what` says what the text is.
template <Communicator C>
void require_equal(C& c, std::string_view text, std::string_view what) {
    const auto scope = enter(c, {"require_equal", "hash", 1, 0, what});
    const std::vector<std::uint64_t> all = values_of_ranks(c, hash_of(text));
    std::string others;
    for (int r = 1; r < c.size(); ++r)
        if (all[static_cast<std::size_t>(r)] != all[0]) others += (others.empty() ? "" : ", ") + std::to_string(r);
    require(others.empty(), "ranks differ in ", what, ": that of rank(s) ", others,
            " is not rank 0's; start all ranks alike");
}

}  // namespace cairn
