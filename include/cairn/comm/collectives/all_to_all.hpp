#pragma once
// All-to-all: part j of what rank i sends becomes part i of what rank j receives. p-1 rounds in which rank r sends to
// r + s and receives from r - s, so that in each round every link carries one message each way.
// Time (p-1) (α + n/p β).

#include <cairn/comm/reduction.hpp>

#include <span>
#include <vector>

namespace cairn {

inline constexpr int all_to_all_tag = user_tags + 6;

/// Part j of `out` goes to rank j; part i of `in` comes from rank i. Any sizes: what i says it sends to j must be what
/// j says it receives from i.
template <Communicator C, class T>
void all_to_all(C& c, std::span<const T> out, const std::vector<range>& out_parts, std::span<T> in,
                const std::vector<range>& in_parts) {
    const int p = c.size(), me = c.rank();
    require(static_cast<int>(out_parts.size()) == p && static_cast<int>(in_parts.size()) == p,
            "all-to-all: ", out_parts.size(), " and ", in_parts.size(), " parts for ", p, " ranks");
    [[maybe_unused]] const auto scope = enter(c, {"all-to-all", type_name<T>()});
    const auto at = [](const std::vector<range>& parts, int r) { return parts[static_cast<std::size_t>(r)]; };
    const std::span<const T> kept = subspan(out, at(out_parts, me));
    const std::span<T> room = subspan(in, at(in_parts, me));
    require(kept.size() == room.size(), "all-to-all: rank ", me, " sends ", kept.size(),
            " elements to itself and receives ", room.size());
    cpu::copy_within(room.data(), kept.data(), static_cast<index_t>(kept.size_bytes()));
    for (int s = 1; s < p; ++s) {
        const int to = (me + s) % p, from = (me + p - s) % p;
        sendrecv(c, subspan(out, at(out_parts, to)), to, subspan(in, at(in_parts, from)), from, all_to_all_tag);
    }
}

/// Equal parts: `out` and `in` have p times n elements. Throws otherwise.
template <Communicator C, class T>
void all_to_all(C& c, std::span<const T> out, std::span<T> in) {
    require(out.size() == in.size() && out.size() % static_cast<std::size_t>(c.size()) == 0, "all-to-all: ", out.size(),
            " elements out and ", in.size(), " in; both must be the same multiple of ", c.size());
    const std::vector<range> parts = shards_of(static_cast<index_t>(out.size()), c.size());
    all_to_all(c, out, parts, in, parts);
}

}  // namespace cairn
