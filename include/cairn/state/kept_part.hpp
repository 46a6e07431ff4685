#pragma once
// The bytes that a rank keeps for the others of its group (state/redundancy.hpp).
//   8 bytes magic, u32 format, u32 kind, u32 ranks, u32 parities, u32 rank, u32 0, 24 bytes identity of the version,
//   u64 bytes and u64 XXH3 of the payload, for each rank u64 bytes of its data, u64 XXH3 of the header so far;
//   the payload: the left neighbour's data, or the parities one after the other.
// Numbers are in the byte order of the machine. Every length is checked before it is believed.

#include <cairn/core/error.hpp>
#include <cairn/state/parity_layout.hpp>
#include <cairn/state/xxh3.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <span>
#include <vector>

namespace cairn {

/// How a group makes up for lost hosts.
struct redundancy {
    enum kind : std::uint32_t { partner = 1, parity = 2 };

    kind how = partner;
    std::uint32_t parities = 0;  // lost hosts survived, of `parity`

    bool operator==(const redundancy&) const = default;
};

/// "partner", "xor", "rs with 2 parities"
inline std::ostream& operator<<(std::ostream& out, const redundancy& r) {
    if (r.how == redundancy::partner) return out << "partner";
    return r.parities == 1 ? out << "xor" : out << "rs with " << r.parities << " parities";
}

/// Throws unless a group of `ranks` can be kept in this way.
inline void require_possible(const redundancy& r, int ranks) {
    require(ranks > 1, "redundancy: a group of one host; it takes two at least");
    require(ranks <= 256, "redundancy: a group of ", ranks, " hosts; it has 256 at most");
    if (r.how == redundancy::parity)
        require(r.parities > 0 && r.parities < static_cast<std::uint32_t>(ranks), "redundancy: ", r.parities,
                " parities in a group of ", ranks, " hosts; there is at least one, and fewer than hosts");
}

/// What distinguishes one version of a run from all others, say attempt and step.
using version_identity = std::array<std::byte, 24>;

/// The description in front of a rank's kept bytes.
struct kept_header {
    redundancy kind;
    int rank = 0;  // within its group
    version_identity version{};
    std::vector<std::uint64_t> sizes;  // of the ranks' data, in bytes

    int ranks() const { return static_cast<int>(sizes.size()); }
    detail::parity_layout layout() const {
        return {ranks(), static_cast<int>(kind.parities),
                sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end())};
    }
    /// Bytes after the header.
    std::size_t payload_bytes() const {
        if (kind.how == redundancy::partner) return sizes[static_cast<std::size_t>((rank + ranks() - 1) % ranks())];
        return kind.parities * layout().chunk;
    }
    /// Of what all ranks' headers have in common.
    std::uint64_t encoding() const {
        xxh3_stream hash;
        hash.add(&kind, sizeof kind);
        hash.add(version.data(), version.size());
        hash.add(sizes.data(), sizes.size() * sizeof sizes[0]);
        return hash.value();
    }
};

namespace detail {

inline constexpr char kept_magic[9] = "CAIRNRD\n";
inline constexpr std::uint32_t kept_format = 1;

struct stored_kept_header {
    char magic[8];
    std::uint32_t format, kind, ranks, parities, rank, zero;
    std::byte version[24];
    std::uint64_t payload_bytes, payload_hash;
};
static_assert(sizeof(stored_kept_header) == 72);

inline std::size_t kept_header_bytes(int ranks) {
    return sizeof(stored_kept_header) + (static_cast<std::size_t>(ranks) + 1) * sizeof(std::uint64_t);
}

/// Fills the front of `kept`, whose payload is complete.
inline void write_kept_header(const kept_header& h, std::span<std::byte> kept) {
    const std::size_t bytes = kept_header_bytes(h.ranks());
    const std::span<const std::byte> payload = kept.subspan(bytes);
    stored_kept_header stored{};
    std::memcpy(stored.magic, kept_magic, sizeof stored.magic);
    stored.format = kept_format, stored.kind = h.kind.how, stored.parities = h.kind.parities;
    stored.ranks = static_cast<std::uint32_t>(h.ranks()), stored.rank = static_cast<std::uint32_t>(h.rank);
    std::memcpy(stored.version, h.version.data(), h.version.size());
    stored.payload_bytes = payload.size(), stored.payload_hash = xxh3(payload.data(), payload.size());
    std::memcpy(kept.data(), &stored, sizeof stored);
    std::memcpy(kept.data() + sizeof stored, h.sizes.data(), h.sizes.size() * sizeof(std::uint64_t));
    const std::uint64_t hash = xxh3(kept.data(), bytes - sizeof hash);
    std::memcpy(kept.data() + bytes - sizeof hash, &hash, sizeof hash);
}

}  // namespace detail

/// Kept bytes, checked: the header, and the payload as a part of them.
struct kept_part {
    kept_header header;
    std::span<const std::byte> payload;
};

/// Throws where any byte is not as it was written.
inline kept_part read_kept_part(std::span<const std::byte> kept) {
    detail::stored_kept_header stored{};
    require(kept.size() >= detail::kept_header_bytes(2), "kept for other hosts: ", kept.size(),
            " bytes, fewer than the header has: truncated");
    std::memcpy(&stored, kept.data(), sizeof stored);
    require(std::memcmp(stored.magic, detail::kept_magic, sizeof stored.magic) == 0,
            "kept for other hosts: byte 0: no copy or parity of Cairn");
    require(stored.format == detail::kept_format, "kept for other hosts: byte 8: format ", stored.format,
            ", this program reads ", detail::kept_format);
    require(stored.ranks >= 2 && stored.ranks <= 256, "kept for other hosts: byte 16: a group of ", stored.ranks);
    require(stored.rank < stored.ranks, "kept for other hosts: byte 24: rank ", stored.rank, " of ", stored.ranks);
    require(stored.kind == redundancy::partner || stored.kind == redundancy::parity,
            "kept for other hosts: byte 12: kind ", stored.kind, "; written by a newer version?");
    const std::size_t bytes = detail::kept_header_bytes(static_cast<int>(stored.ranks));
    std::uint64_t hash = 0;
    require(kept.size() >= bytes, "kept for other hosts: ", kept.size(), " bytes, the header has ", bytes,
            ": truncated");
    std::memcpy(&hash, kept.data() + bytes - sizeof hash, sizeof hash);
    require(xxh3(kept.data(), bytes - sizeof hash) == hash,
            "kept for other hosts: byte 0: the header's checksum is wrong: corrupt");
    kept_part part{
        {{static_cast<redundancy::kind>(stored.kind), stored.parities}, static_cast<int>(stored.rank), {}, {}},
        kept.subspan(bytes)};
    std::memcpy(part.header.version.data(), stored.version, sizeof stored.version);
    part.header.sizes.resize(stored.ranks);
    std::memcpy(part.header.sizes.data(), kept.data() + sizeof stored, stored.ranks * sizeof(std::uint64_t));
    require_possible(part.header.kind, part.header.ranks());
    for (const std::uint64_t size : part.header.sizes)
        require(size < std::uint64_t{1} << 56, "kept for other hosts: data of ", size, " bytes, an impossible size");
    require(part.payload.size() == stored.payload_bytes && part.payload.size() == part.header.payload_bytes(),
            "kept for other hosts: byte ", bytes, ": ", part.payload.size(), " bytes, the header says ",
            stored.payload_bytes);
    require(xxh3(part.payload.data(), part.payload.size()) == stored.payload_hash, "kept for other hosts: bytes ",
            bytes, " to ", kept.size(), ": the checksum is wrong: corrupt");
    return part;
}

}  // namespace cairn
