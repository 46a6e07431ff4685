#pragma once
// Reading of packs (pack.hpp). Every length is checked against the file before it is believed, every number against the
// rest, and each byte that is read against a checksum or for being zero: a damaged one is named.

#include <cairn/state/pack.hpp>
#include <cairn/state/state_format.hpp>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Header and directory of a pack.
struct pack_directory {
    pack_id id;
    std::uint64_t file_bytes = 0, header_checksum = 0;
    std::vector<packed_piece> pieces;
    std::vector<replica_digest> replicas;
};

namespace detail {

/// Name, type and piece of the `number`th entry of a directory, into a packed_piece or replica_digest.
template <class Entry>
void parse_place(directory_parser& in, const std::string& file, std::uint64_t number, Entry& p) {
    p.name = in.text(in.number<std::uint32_t>());
    const auto type = in.number<std::uint8_t>(), axes = in.number<std::uint8_t>();
    require(type < element_infos.size() && axes <= shape::max_rank, file, ": piece ", number, " (", p.name,
            ") has type ", int{type}, " and ", int{axes}, " axes; written by a newer version?");
    p.type = static_cast<element_type>(type);
    std::array<std::int64_t, shape::max_rank> extents{};
    const auto read_shape = [&](shape& s) {
        for (int a = 0; a < axes; ++a) {
            extents[static_cast<std::size_t>(a)] = in.number<std::int64_t>();
            require(extents[static_cast<std::size_t>(a)] >= 0, file, ": piece ", p.name, " has a negative extent");
        }
        with_context(concat(file, ": piece ", p.name), [&] {
            for (int a = 0; a < axes; ++a) s.push_back(extents[static_cast<std::size_t>(a)]);
        });
    };
    read_shape(p.where.global);
    for (int a = 0; a < axes; ++a) p.where.begin[static_cast<std::size_t>(a)] = in.number<std::int64_t>();
    read_shape(p.where.extent);
    p.where.first = in.number<std::int64_t>();
    p.where.count = in.number<std::int64_t>();
    require(p.where.fits(), file, ": piece ", p.name, " does not lie within its tensor: ", p.where);
    require(p.type != element_type::text || p.where == piece::whole({}), file, ": text ", p.name, " is a piece ",
            p.where);
}

inline packed_piece parse_piece(directory_parser& in, const std::string& file, std::uint64_t number) {
    packed_piece p;
    parse_place(in, file, number, p);
    p.holder.attempt = in.number<std::array<std::uint64_t, 2>>();
    p.holder.step = in.number<std::int64_t>();
    for (std::uint64_t* number_of : {&p.position, &p.bytes, &p.checksum, &p.digest})
        *number_of = in.number<std::uint64_t>();
    const element_info& info = element_infos[static_cast<std::size_t>(p.type)];
    require(p.type == element_type::text || p.bytes == static_cast<std::uint64_t>(p.where.count) * info.bytes, file,
            ": piece ", p.name, ' ', p.where, " of ", info.name, " claims ", p.bytes, " bytes");
    return p;
}

static_assert(pack_order == state_order);

inline pack_directory read_pack_directory(const state_reader& file) {
    pack_header h{};
    const std::string bytes = read_header_and_directory(file, h, pack_magic, pack_version, "pack",
                                                        [](const void* data, std::size_t n) { return xxh3(data, n); });
    require(h.file_bytes == file.size(), file.name(), h.file_bytes > file.size() ? ": truncated: " : ": ", file.size(),
            " bytes, the header says ", h.file_bytes);
    pack_directory d{
        {{h.step, {h.attempt[0], h.attempt[1]}}, h.rank, h.ranks}, h.file_bytes, h.header_checksum, {}, {}};
    directory_parser in(bytes, file.name(), sizeof h);
    const auto count = in.number<std::uint64_t>();
    std::uint64_t end = sizeof h + h.directory_bytes;
    for (std::uint64_t i = 0; i < count; ++i) {
        d.pieces.push_back(parse_piece(in, file.name(), i));
        packed_piece& p = d.pieces.back();
        if (p.holder != d.id.version) {  // in another file
            p.zeros_from = p.position;
            continue;
        }
        p.zeros_from = end;
        require(p.position == position_in_pack(end, p.bytes) && p.bytes <= file.size() &&
                    p.position <= file.size() - p.bytes,
                file.name(), ": piece ", p.name, " claims bytes ", p.position, " to ", p.position + p.bytes,
                ", the one before ends at ", end, " and the file at ", file.size());
        end = p.position + p.bytes;
    }
    for (std::uint64_t i = 0, n = in.number<std::uint64_t>(); i < n; ++i) {
        parse_place(in, file.name(), i, d.replicas.emplace_back());
        d.replicas.back().digest = in.number<std::uint64_t>();
    }
    require(in.left() == 0, file.name(), ": the directory has ", in.left(), " bytes after its last entry");
    require(end == file.size(), file.name(), ": ", file.size() - end, " bytes after the last piece, from byte ", end);
    return d;
}

}  // namespace detail

/// Header and directory of the pack at `path`. Throws on a file that is absent, truncated or corrupt there.
inline pack_directory read_pack_directory(const std::filesystem::path& path) {
    return detail::read_pack_directory(detail::state_reader(path));
}

/// Reads the bytes of a piece from the pack that holds them, into memory for p.bytes. Throws where they, or those in
/// front of them, are not what was written, naming file, piece and bytes.
inline void read_piece(const detail::state_reader& file, const packed_piece& p, void* to) {
    detail::require_zeros(file, p.zeros_from, p.position, p.name);
    file.read(p.position, to, p.bytes, p.name);
    require(xxh3(to, p.bytes) == p.checksum, file.name(), ": ", p.name, ", bytes ", p.position, " to ",
            p.position + p.bytes, ": the checksum is wrong: corrupt file");
}

/// Throws unless every byte of the pack is as it was written: its own pieces, and the zeros in front of them.
inline void verify_pack(const std::filesystem::path& path) {
    const detail::state_reader file(path);
    const pack_directory d = detail::read_pack_directory(file);
    std::string bytes;
    for (const packed_piece& p : d.pieces) {
        if (p.holder != d.id.version) continue;
        bytes.resize(p.bytes);
        read_piece(file, p, bytes.data());
    }
}

}  // namespace cairn
