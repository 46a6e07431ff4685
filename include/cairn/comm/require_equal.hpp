#pragma once
// Ranks must run with the same settings and the same build: compared once, at the start.

#include <cairn/comm/communicator.hpp>

#include <algorithm>
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

/// Collective. The values of all ranks in their order, on all ranks; for what is compared or agreed on before anything
/// else is known of the others. Up a binomial tree to rank 0 and down again: 2 (p - 1) messages in 2 ⌈lg p⌉ rounds.
template <Communicator C, class T>
std::vector<T> values_of_ranks(C& c, const T& mine) {
    constexpr int tag = max_tag - 1;
    const int me = c.rank(), p = c.size();
    std::vector<T> all(static_cast<std::size_t>(p), mine);
    const auto of_ranks = [&](int first, int count) {
        return std::span<T>(all).subspan(static_cast<std::size_t>(first),
                                         static_cast<std::size_t>(std::min(count, p - first)));
    };
    int bit = 1;
    for (; bit < p && !(me & bit); bit *= 2)  // known: those of the ranks from me to me + bit
        if (me + bit < p) recv(c, of_ranks(me + bit, bit), me + bit, tag);
    if (me > 0) {
        send(c, std::span<const T>(of_ranks(me, bit)), me - bit, tag);
        recv(c, std::span<T>(all), me - bit, tag);
    }
    while (bit /= 2)
        if (me + bit < p) send(c, std::span<const T>(all), me + bit, tag);
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
