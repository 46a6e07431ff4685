#pragma once
// What one host loses, its group still has: each rank keeps bytes for the others, in memory or on its host's disk.
//
//   partner   rank r's data are also on rank r + 1.                                     Sent S, kept S bytes a rank.
//             Survives lost ranks of which no two are neighbours.
//   parity    m parities of a Reed–Solomon code (state/erasure.hpp), rotated over the   Sent m S, kept m S/(N − m).
//             ranks (state/parity_layout.hpp); m = 1 is XOR. Survives any m lost ranks.
//
//   host_group group = form_host_group(world, name_of_this_host, 4);     one rank of each of 4 hosts
//   kept = encode(group, {redundancy::parity, 1}, version, data);
//   data = rebuild(group, version, {}).value();                          on a host that has lost both
//
// Shorter data count as if zeros followed; they come back with their own length.
// Sources: Plank, Li and Puening, "Diskless checkpointing", TPDS 9(10), 1998; Moody et al., SC'10 (SCR).

#include <cairn/comm/require_equal.hpp>
#include <cairn/state/host_groups.hpp>
#include <cairn/state/kept_part.hpp>
#include <cairn/state/parity_layout.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// Collective. The bytes that this rank keeps for the others of its group: a header (state/kept_part.hpp), then a copy
/// or parities of their data. `room`: memory to reuse, such as that of the version before. Throws on all ranks where
/// they do not agree on kind and version, or a group of this size cannot be kept so.
inline std::vector<std::byte> encode(host_group& group, const redundancy& kind, const version_identity& version,
                                     std::span<const std::byte> data, std::vector<std::byte> room = {}) {
    any_communicator& c = group.ranks;
    const auto cause = because(c, "redundancy");
    const int n = c.size(), me = c.rank();
    struct told {
        std::uint64_t bytes;
        redundancy kind;
        version_identity version;
    };
    kept_header header{kind, me, version, {}};
    for (const told& t : values_of_ranks(c, told{data.size(), kind, version})) {
        require(t.kind == kind && t.version == version, "redundancy: ", group.hosts[header.sizes.size()], " encodes ",
                t.kind == kind ? "another version" : concat(t.kind), ", ", group.hosts[static_cast<std::size_t>(me)],
                ' ', kind, "; all hosts of a group do the same");
        header.sizes.push_back(t.bytes);
    }
    require_possible(kind, n);

    room.resize(detail::kept_header_bytes(n) + header.payload_bytes());
    const std::span<std::byte> payload = std::span(room).last(header.payload_bytes());
    if (kind.how == redundancy::partner)
        run_partial_sums(c, detail::copying_steps(data, (me + 1) % n, payload, (me + n - 1) % n), 1);
    else
        run_partial_sums(c, detail::encoding_steps(header.layout(), me, data, payload), kind.parities);
    detail::write_kept_header(header, room);
    return room;
}

/// What a rank still has of a version; nothing where it is lost.
struct rank_parts {
    std::optional<std::span<const std::byte>> data, kept;
};

namespace detail {

/// Collective. Rank `from`'s values, on all ranks.
template <class T>
void tell_all(any_communicator& c, int from, std::span<T> values) {
    if (c.rank() != from) return recv(c, values, from, partial_sum_tag);
    for (int r = 0; r < c.size(); ++r)
        if (r != from) send(c, std::span<const T>(values), r, partial_sum_tag);
}

/// Why a rank's data or kept bytes are of no use.
enum class part_state : std::uint8_t { usable, lost, damaged, of_another_version, of_another_group, of_another_size };

inline std::string_view text_of(part_state s) {
    constexpr std::array<std::string_view, 6> texts{
        "usable", "lost", "damaged", "of another version", "of another group", "of another size"};
    return texts[static_cast<std::size_t>(s)];
}

/// What a rank says of its parts.
struct told_parts {
    part_state data = part_state::lost, kept = part_state::lost;
    std::uint64_t data_bytes = 0, encoding = 0;
};

/// Whether `left` suffices for all lost data.
inline bool can_rebuild(const kept_header& h, const parts_left& left) {
    const int n = h.ranks();
    for (int at = 0; at < n; ++at) {  // a rank's data, or a slot
        if (h.kind.how == redundancy::partner) {
            if (!left.data[static_cast<std::size_t>(at)] && !left.kept[static_cast<std::size_t>((at + 1) % n)])
                return false;
        } else {
            const parity_layout layout = h.layout();
            int lost = 0, parities = 0;
            for (int i = 0; i < n - layout.m; ++i)
                lost += !left.data[static_cast<std::size_t>(layout.rank_of_chunk(at, i))];
            for (int j = 0; j < layout.m; ++j)
                parities += left.kept[static_cast<std::size_t>(layout.rank_of_parity(at, j))];
            if (parities < lost) return false;
        }
    }
    return true;
}

/// "b (lost), d (damaged)"
template <class StateOf>
std::string unusable_parts(const host_group& group, const std::vector<told_parts>& all, StateOf&& state_of) {
    std::vector<std::string> words;
    for (std::size_t r = 0; r < all.size(); ++r)
        if (state_of(all[r]) != part_state::usable)
            words.push_back(concat(group.hosts[r], " (", text_of(state_of(all[r])), ')'));
    return words.empty() ? "none" : listed(words);
}

}  // namespace detail

/// Collective. This rank's data, where it came with none, or with another number of bytes than was encoded; nothing
/// where it came with its own. Throws on all ranks, naming the hosts whose parts are missing, where the rest does not
/// suffice. Kept bytes that are lost are not rebuilt: encode() again. The caller knows damaged data by their own
/// checksums and leaves them out.
inline std::optional<std::vector<std::byte>> rebuild(host_group& group, const version_identity& version,
                                                     const rank_parts& mine) {
    using detail::part_state;
    any_communicator& c = group.ranks;
    const auto cause = because(c, "redundancy");
    const int n = c.size(), me = c.rank();

    detail::told_parts told;
    kept_part kept;
    if (mine.data) told.data = part_state::usable, told.data_bytes = mine.data->size();
    if (mine.kept) {
        try {
            kept = read_kept_part(*mine.kept);
            const kept_header& h = kept.header;
            told.kept = h.version != version             ? part_state::of_another_version
                        : h.ranks() != n || h.rank != me ? part_state::of_another_group
                                                         : part_state::usable;
            told.encoding = h.encoding();
        } catch (const error&) {
            told.kept = part_state::damaged;
        }
    }
    std::vector<detail::told_parts> all = values_of_ranks(c, told);

    // The first rank with usable kept bytes tells all what was encoded.
    int first = 0;
    while (first < n && all[static_cast<std::size_t>(first)].kept != part_state::usable) ++first;
    kept_header header{{}, me, version, std::vector<std::uint64_t>(static_cast<std::size_t>(n))};
    if (first < n) {
        if (me == first) header = kept.header;
        detail::tell_all(c, first, std::span(&header.kind, 1));
        detail::tell_all(c, first, std::span(header.sizes));
        header.rank = me;
    }
    detail::parts_left left;
    for (std::size_t r = 0; r < all.size(); ++r) {
        detail::told_parts& t = all[r];
        if (first < n && t.data == part_state::usable && t.data_bytes != header.sizes[r])
            t.data = part_state::of_another_size;
        if (t.kept == part_state::usable && t.encoding != all[static_cast<std::size_t>(first)].encoding)
            t.kept = part_state::of_another_group;
        left.data.push_back(t.data == part_state::usable);
        left.kept.push_back(t.kept == part_state::usable);
    }
    if (std::find(left.data.begin(), left.data.end(), false) == left.data.end()) return std::nullopt;
    require(first < n && detail::can_rebuild(header, left), "redundancy",
            first < n ? concat(" (", header.kind, ')') : "", ": the group of ", listed(group.hosts),
            " cannot rebuild this version. Data missing: ",
            detail::unusable_parts(group, all, [](const auto& t) { return t.data; }),
            "; copies or parities missing: ", detail::unusable_parts(group, all, [](const auto& t) { return t.kept; }));

    const bool rebuilds = !left.data[static_cast<std::size_t>(me)];
    const std::span<const std::byte> data = rebuilds ? std::span<const std::byte>{} : *mine.data;
    const std::span<const std::byte> payload =
        left.kept[static_cast<std::size_t>(me)] ? kept.payload : std::span<const std::byte>{};
    std::vector<std::byte> rebuilt;
    if (header.kind.how == redundancy::partner) {
        const int before = (me + n - 1) % n;
        if (rebuilds) rebuilt.resize(header.sizes[static_cast<std::size_t>(me)]);
        const bool before_rebuilds = !left.data[static_cast<std::size_t>(before)];
        run_partial_sums(
            c, detail::copying_steps(before_rebuilds ? payload : data.first(0), before, rebuilt, (me + 1) % n), 1);
    } else {
        const detail::parity_layout layout = header.layout();
        if (rebuilds) rebuilt.resize(layout.place(n - layout.m));
        run_partial_sums(c, detail::rebuilding_steps(layout, me, left, data, payload, rebuilt), header.kind.parities);
        if (rebuilds) rebuilt.resize(header.sizes[static_cast<std::size_t>(me)]);
    }
    if (!rebuilds) return std::nullopt;
    return rebuilt;
}

}  // namespace cairn
