#pragma once
// A pack: the file in which one rank has its pieces of a state (piece.hpp).
//   header     8 bytes magic, u32 0x01020304, u32 version, u64 bytes of the directory and of the file,
//              attempt (128 bits), i64 step, i32 rank and ranks, XXH3-64 of the directory, XXH3-64 of the header so far
//   directory  u64 pieces; for each: u32 length and name, u8 type, u8 axes, i64 global extents, begin and extent of the
//              box, i64 first and count, attempt and step of the pack that holds its bytes (this one's, or an earlier
//              one's that lies beside it), u64 position, bytes, XXH3-64, digest (digest.hpp); u64 replicas; for each
//              name, type and piece as above, digest of what this rank holds of a tensor that others have alike
//   data       pieces of 4096 bytes and more on multiples of 4096, smaller ones on multiples of 64, zeros between
// Numbers are in the byte order of the machine, which the header tells. A pack is laid out first; then its image is
// filled in memory by one copy (staging.hpp), sealed with checksums and written as it is (flush.hpp).
// A rank writes its share of what several have alike: the pieces that they all have, laid end to end, are cut at
// multiples of 4096 bytes. Pieces are cut again at 16 MiB, so that who needs a part reads, and checks, little more.

#include <cairn/state/digest.hpp>
#include <cairn/state/state_view.hpp>
#include <cairn/state/streaming_copy.hpp>
#include <cairn/state/xxh3.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Which start of a run wrote at which step: the name of a version.
struct version_id {
    std::int64_t step = 0;
    std::array<std::uint64_t, 2> attempt{};

    bool operator==(const version_id&) const = default;
    /// "00000500-3f2a9c41d07b": step and the first 12 digits of the attempt.
    std::string name() const {
        char text[48];
        std::snprintf(text, sizeof text, "%08lld-%012llx", static_cast<long long>(step),
                      static_cast<unsigned long long>(attempt[0] >> 16));
        return text;
    }
    /// Step and attempt as they lie in memory.
    std::array<std::byte, 24> bytes() const {
        std::array<std::byte, 24> all{};
        std::memcpy(all.data(), &step, 8);
        std::memcpy(all.data() + 8, attempt.data(), 16);
        return all;
    }
};

/// Whose pack it is.
struct pack_id {
    version_id version;
    std::int32_t rank = 0, ranks = 1;

    bool operator==(const pack_id&) const = default;
    /// "rank-0003.pack"
    std::string file() const {
        char text[32];
        std::snprintf(text, sizeof text, "rank-%04d.pack", static_cast<int>(rank));
        return text;
    }
    /// The file beside it with pieces that an earlier pack of this rank has: "rank-0003.00000400-3f2a9c41d07b.pack".
    std::string file_of(const version_id& earlier) const {
        const std::string own = file();
        return earlier == version ? own : own.substr(0, own.size() - 4) + earlier.name() + ".pack";
    }
};

/// A piece as the directory of a pack has it.
struct packed_piece {
    std::string name;
    element_type type = element_type::float32;
    piece where;
    version_id holder;  // the version whose pack has its bytes
    std::uint64_t position = 0, bytes = 0, checksum = 0, digest = 0;
    std::uint64_t zeros_from = 0;  // to `position`
};

/// What this rank holds of a tensor that other ranks have alike: not its bytes, of which each writes a share.
struct replica_digest {
    std::string name;
    element_type type = element_type::float32;
    piece where;
    std::uint64_t digest = 0;
};

namespace detail {

inline constexpr char pack_magic[9] = "CAIRNPK\n";
inline constexpr std::uint32_t pack_order = 0x01020304, pack_version = 2;
inline constexpr std::uint64_t pack_block = 4096, pack_small = 64;
inline constexpr std::uint64_t longest_piece = 16 << 20;  // bytes

struct pack_header {
    char magic[8];
    std::uint32_t order, version;
    std::uint64_t directory_bytes, file_bytes;
    std::uint64_t attempt[2];
    std::int64_t step;
    std::int32_t rank, ranks;
    std::uint64_t directory_checksum, header_checksum;
};
static_assert(sizeof(pack_header) == 80);

constexpr std::uint64_t rounded_up(std::uint64_t at, std::uint64_t to) { return (at + to - 1) / to * to; }
constexpr std::uint64_t position_in_pack(std::uint64_t end, std::uint64_t bytes) {
    return rounded_up(end, bytes >= pack_block ? pack_block : pack_small);
}

template <class T>
void append_number(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void append_place(std::string& out, const std::string& name, element_type type, const piece& where) {
    append_number(out, static_cast<std::uint32_t>(name.size()));
    out += name;
    append_number(out, type);
    const int axes = where.global.rank();
    append_number(out, static_cast<std::uint8_t>(axes));
    for (const index_t extent : where.global) append_number(out, std::int64_t{extent});
    for (int a = 0; a < axes; ++a) append_number(out, std::int64_t{where.begin[static_cast<std::size_t>(a)]});
    for (const index_t extent : where.extent) append_number(out, std::int64_t{extent});
    append_number(out, std::int64_t{where.first});
    append_number(out, std::int64_t{where.count});
}

inline std::string directory_of(const std::vector<packed_piece>& pieces, const std::vector<replica_digest>& replicas) {
    std::string out;
    append_number(out, static_cast<std::uint64_t>(pieces.size()));
    for (const packed_piece& p : pieces) {
        append_place(out, p.name, p.type, p.where);
        append_number(out, p.holder.attempt);
        append_number(out, p.holder.step);
        for (const std::uint64_t number : {p.position, p.bytes, p.checksum, p.digest}) append_number(out, number);
    }
    append_number(out, static_cast<std::uint64_t>(replicas.size()));
    for (const replica_digest& r : replicas) {
        append_place(out, r.name, r.type, r.where);
        append_number(out, r.digest);
    }
    return out;
}

/// What a piece of a tensor contributes to its digest.
inline std::uint64_t digest_of(const piece& where, std::size_t element_bytes, const std::byte* data) {
    tensor_digest sum;
    for_runs_in_whole(where, [&](index_t here, index_t in_whole, index_t n) {
        sum.add(data + static_cast<std::size_t>(here) * element_bytes, element_bytes,
                static_cast<std::uint64_t>(in_whole), static_cast<std::uint64_t>(n));
    });
    return sum.value();
}
inline std::uint64_t digest_of(const packed_piece& p, const std::byte* data) {
    if (p.type != element_type::text)
        return digest_of(p.where, element_infos[static_cast<std::size_t>(p.type)].bytes, data);
    tensor_digest sum;
    sum.add(data, 1, 0, p.bytes);
    return sum.value();
}

/// This rank's share of what it has, in bytes of all pieces that the same ranks have, laid end to end.
struct byte_range {
    std::uint64_t begin = 0, end = 0;
};
inline byte_range share_of_bytes(std::uint64_t bytes, piece_share s) {
    if (s.of == 0) return {};
    const std::uint64_t blocks = (bytes + pack_block - 1) / pack_block, of = static_cast<std::uint64_t>(s.of);
    const auto cut = [&](int r) { return std::min(bytes, blocks * static_cast<std::uint64_t>(r) / of * pack_block); };
    return {cut(s.index), cut(s.index + 1)};
}

}  // namespace detail

/// See the top of the file: the layout of one rank's pack, and what fills its image.
class pack_layout {
public:
    /// This rank's shares of the entries of `state`.
    pack_layout(pack_id id, const state_view& state) : id_(id) {
        std::map<std::pair<int, int>, std::uint64_t> totals, done;
        const auto key = [](const state_view::entry& e) { return std::pair(e.share.index, e.share.of); };
        for (const auto& e : state.entries()) totals[key(e)] += e.bytes();
        for (const auto& e : state.entries()) {
            const detail::byte_range mine = detail::share_of_bytes(totals[key(e)], e.share);
            const std::uint64_t begin = std::exchange(done[key(e)], done[key(e)] + e.bytes());
            add(e, begin, mine);
        }
        for (const auto& e : state.entries())
            if (e.alike && e.share.of > 1) {
                replicas_.push_back({e.name, e.type, e.where});
                held_.push_back(static_cast<const std::byte*>(e.bytes_begin()));
            }
        std::uint64_t end = data_begin();
        for (packed_piece& p : pieces_) {
            p.zeros_from = end;
            p.position = detail::position_in_pack(end, p.bytes);
            end = p.position + p.bytes;
        }
        bytes_ = end;
    }

    const pack_id& id() const { return id_; }
    /// Of the file.
    std::uint64_t bytes() const { return bytes_; }
    const std::vector<packed_piece>& pieces() const { return pieces_; }

    /// Copies the data into the image, and takes the digests of what other ranks have alike, by all kernel threads. On
    /// a phantom rank nothing is copied.
    void fill(std::byte* image) {
        if (on_phantom_rank()) return;
        std::vector<memory_copy> copies;
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const packed_piece& p = pieces_[i];
            std::memset(image + p.zeros_from, 0, p.position - p.zeros_from);
            copies.push_back({image + p.position, sources_[i], p.bytes});
        }
        streaming_copy(copies);
        digest_replicas();
    }
    /// Writes checksums, digests, directory and header into the image, whose data are there.
    void seal(std::byte* image) {
        seal(image, [](const packed_piece&, const std::byte*) { return true; });
    }
    /// The same; whether good(piece, data) was true of all. It stops at the first where it is not.
    template <class Good>
    bool seal(std::byte* image, Good good) {
        for (packed_piece& p : pieces_) {
            seal_piece(p, image + p.position);
            if (!good(std::as_const(p), image + p.position)) return false;
        }
        seal_directory(image);
        return true;
    }

    /// Takes pieces out of a sealed image: those for which held(i) is the piece of an earlier pack with the same bytes,
    /// and not null. The others move up.
    template <class Held>
    void leave_out(std::byte* image, Held held) {
        std::uint64_t end = data_begin();
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            packed_piece& p = pieces_[i];
            if (const packed_piece* earlier = held(i)) {
                p.holder = earlier->holder;
                p.position = p.zeros_from = earlier->position;
                continue;
            }
            const std::uint64_t from = std::exchange(p.position, detail::position_in_pack(end, p.bytes));
            std::memmove(image + p.position, image + from, p.bytes);
            std::memset(image + end, 0, p.position - end);
            p.zeros_from = end;
            end = p.position + p.bytes;
        }
        bytes_ = end;
        seal_directory(image);
    }

private:
    std::uint64_t data_begin() const {
        return sizeof(detail::pack_header) + detail::directory_of(pieces_, replicas_).size();
    }

    // In parts, which add up: one large tensor keeps all threads busy, too.
    void digest_replicas() {
        constexpr index_t most = 1 << 16;
        struct part {
            std::size_t of;
            index_t from, count;
        };
        std::vector<part> parts;
        for (std::size_t i = 0; i < replicas_.size(); ++i)
            for (index_t at = 0, n = 0; at < replicas_[i].where.count; at += n)
                parts.push_back({i, at, n = std::min(most, replicas_[i].where.count - at)});
        std::vector<std::uint64_t> digests(parts.size());
        parallel_for(static_cast<index_t>(parts.size()), 1, [&](index_t begin, index_t end) {
            for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
                const auto& [of, from, count] = parts[k];
                const std::size_t each = element_infos[static_cast<std::size_t>(replicas_[of].type)].bytes;
                digests[k] = detail::digest_of(replicas_[of].where.part(from, count), each,
                                               held_[of] + static_cast<std::size_t>(from) * each);
            }
        });
        for (replica_digest& r : replicas_) r.digest = 0;
        for (std::size_t k = 0; k < parts.size(); ++k) replicas_[parts[k].of].digest += digests[k];
    }

    // Both in parts that stay in a core's cache: the image comes from memory once.
    static void seal_piece(packed_piece& p, const std::byte* data) {
        constexpr std::uint64_t at_once = 128 << 10;
        if (p.bytes <= at_once || p.type == element_type::text) {
            p.checksum = xxh3(data, p.bytes);
            p.digest = detail::digest_of(p, data);
            return;
        }
        const std::uint64_t each = element_infos[static_cast<std::size_t>(p.type)].bytes;
        xxh3_stream checksum;
        p.digest = 0;
        for (std::uint64_t at = 0, n = 0; at < p.bytes; at += n) {
            n = std::min(at_once, p.bytes - at);
            checksum.add(data + at, n);
            p.digest += detail::digest_of(p.where.part(static_cast<index_t>(at / each), static_cast<index_t>(n / each)),
                                          each, data + at);
        }
        p.checksum = checksum.value();
    }

    // Directory and header.
    void seal_directory(std::byte* image) const {
        const std::string directory = detail::directory_of(pieces_, replicas_);
        detail::pack_header h{{},
                              detail::pack_order,
                              detail::pack_version,
                              directory.size(),
                              bytes_,
                              {id_.version.attempt[0], id_.version.attempt[1]},
                              id_.version.step,
                              id_.rank,
                              id_.ranks,
                              xxh3(directory.data(), directory.size()),
                              0};
        std::memcpy(h.magic, detail::pack_magic, 8);
        h.header_checksum = xxh3(&h, sizeof h - 8);
        std::memcpy(image, &h, sizeof h);
        std::memcpy(image + sizeof h, directory.data(), directory.size());
    }

    // The part of an entry, which begins at `begin` of the list laid end to end, that lies in `mine`.
    void add(const state_view::entry& e, std::uint64_t begin, detail::byte_range mine) {
        const auto* data = static_cast<const std::byte*>(e.bytes_begin());
        if (e.type == element_type::text) {  // is not cut
            if (mine.begin <= begin && begin < std::max(mine.end, mine.begin + (e.share.of == 1)))
                put(e, e.where, data, e.bytes());
            return;
        }
        const std::uint64_t each = e.element_bytes();
        const auto element = [&](std::uint64_t at) {  // a cut within an element moves behind it
            const std::uint64_t clamped = std::clamp(at, begin, begin + e.bytes()) - begin;
            return static_cast<index_t>((clamped + each - 1) / each);
        };
        const index_t last = element(mine.end);
        for (index_t at = element(mine.begin), n = 0; at < last; at += n) {
            n = std::min(last - at, static_cast<index_t>(detail::longest_piece / each));
            put(e, e.where.part(at, n), data + static_cast<std::uint64_t>(at) * each,
                static_cast<std::uint64_t>(n) * each);
        }
        if (e.where.count == 0 && e.share.index == 0 && e.share.of > 0) put(e, e.where, data, 0);
    }
    void put(const state_view::entry& e, const piece& where, const std::byte* data, std::uint64_t bytes) {
        pieces_.push_back({.name = e.name, .type = e.type, .where = where, .holder = id_.version, .bytes = bytes});
        sources_.push_back(data);
    }

    pack_id id_;
    std::vector<packed_piece> pieces_;
    std::vector<const std::byte*> sources_;
    std::vector<replica_digest> replicas_;
    std::vector<const std::byte*> held_;  // their data
    std::uint64_t bytes_ = 0;
};

}  // namespace cairn
