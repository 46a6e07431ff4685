#pragma once
// Heals the damaged packs of a version from what there is elsewhere:
//   a pack that is the same: of another version, which refers to it, of another run, or on a host's own disk
//   what hosts keep for one another (redundancy.hpp): a copy, or parities with the packs of the others of a group
//   pieces that are the same, one by one, where the damaged pack's directory is whole
// The healed pack is written beside, checked byte by byte against the manifest, and renamed over the damaged one: a
// version never gets worse. A manifest that is damaged itself is made anew of the packs, which prove what they hold as
// they do at a commit.

#include <cairn/comm/threads.hpp>
#include <cairn/state/kept_part.hpp>
#include <cairn/state/pack_sharing.hpp>
#include <cairn/state/redundancy.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What became of a version's damage, in words: "rank-0001.pack from …".
struct repair_report {
    std::vector<std::string> healed, lost;
};

namespace detail {

/// One version's repair.
class version_repair {
public:
    version_repair(std::filesystem::path version, const std::vector<std::filesystem::path>& sources)
        : version_(std::move(version)), sources_(sources) {}

    repair_report run() && {
        const std::optional<manifest> written = readable_manifest();
        try {
            const manifest m = written ? *written : of_packs();
            for (const manifest::pack& p : m.packs) heal(m, p);
            if (!written && report_.lost.empty()) {
                write_atomically(version_ / "manifest", to_text(m));
                report_.healed.push_back("manifest from the packs");
            }
        } catch (const error& e) {
            report_.lost.push_back(e.what());
        }
        return std::move(report_);
    }

private:
    std::optional<manifest> readable_manifest() const {
        try {
            return read_manifest(version_);
        } catch (const error&) {
            return {};
        }
    }
    // Throws where headers and directories of the packs do not prove it.
    manifest of_packs() const {
        std::string why = version_.string() + ": the manifest is damaged, and no pack tells of the version";
        for (const std::string& name : names_in(version_)) try {
                if (!name.ends_with(".pack")) continue;
                const pack_id id = cairn::read_pack_directory(version_ / name).id;
                if (id.version.name() == version_.filename().string())
                    return survey_packs(version_, id.version, id.ranks);
            } catch (const error& e) {
                why = e.what();
            }
        fail(why);
    }

    static bool is(const std::filesystem::path& path, const manifest::pack& wanted) {
        try {
            std::error_code unknown;
            if (std::filesystem::file_size(path, unknown) != wanted.bytes || unknown) return false;
            if (cairn::read_pack_directory(path).header_checksum != wanted.header_checksum) return false;
            verify_pack(path);
            return true;
        } catch (const error&) {
            return false;
        }
    }

    void heal(const manifest& m, const manifest::pack& wanted) {
        const std::filesystem::path path = version_ / wanted.file;
        if (is(path, wanted)) return;
        std::string from;
        try {
            from = from_same_pack(wanted);
            if (from.empty()) from = from_other_hosts(m, wanted);
            if (from.empty()) from = from_pieces(wanted);
        } catch (const error& e) {
            report_.lost.push_back(concat(path.string(), ": ", e.what()));
            return;
        }
        if (from.empty())
            report_.lost.push_back(path.string() + ": no copy, parity or equal pieces of it were found");
        else
            report_.healed.push_back(concat(wanted.file, " from ", from));
    }

    // The file beside becomes the pack, where it is what is wanted. Whether it is.
    bool put_in_place(const std::filesystem::path& beside, const manifest::pack& wanted) const {
        posix_system system;
        const bool good = is(beside, wanted);
        if (!good) system.unlink(beside.c_str());
        if (good) rename_version(beside, version_ / wanted.file, system);
        return good;
    }
    std::filesystem::path beside(const manifest::pack& wanted) const {
        const std::filesystem::path path = version_ / (wanted.file + ".healed");
        posix_system().unlink(path.c_str());
        return path;
    }
    bool write(const manifest::pack& wanted, std::span<const std::byte> bytes) const {
        const std::filesystem::path path = beside(wanted);
        atomic_file<> file(path);
        file.write(bytes.data(), bytes.size());
        file.commit();
        return put_in_place(path, wanted);
    }

    std::string from_same_pack(const manifest::pack& wanted) const {
        for (const std::filesystem::path& source : sources_) {
            if (source.extension() != ".pack" || !is(source, wanted)) continue;
            if (source.parent_path().parent_path() == version_.parent_path()) {  // versions of a run share packs
                const std::filesystem::path path = beside(wanted);
                share_pack(source, path);
                if (put_in_place(path, wanted)) return source.string();
            } else if (write(wanted, bytes_of(source))) {
                return source.string();
            }
        }
        return {};
    }

    // A rank of a group of hosts: what it keeps for the others, and its own pack.
    struct member {
        std::vector<std::byte> kept, data;
        std::string file;  // of its pack
    };
    using group = std::vector<member>;

    std::string from_other_hosts(const manifest& m, const manifest::pack& wanted) const {
        std::map<std::uint64_t, std::pair<kept_header, group>> groups;  // by what their headers have in common
        for (const std::filesystem::path& source : sources_) try {
                if (source.extension() != ".kept") continue;
                std::vector<std::byte> bytes = bytes_of(source);
                const kept_header h = read_kept_part(bytes).header;
                if (h.version != m.version.bytes()) continue;
                auto& [header, members] = groups.try_emplace(h.encoding(), h, group(h.sizes.size())).first->second;
                member& one = members[static_cast<std::size_t>(h.rank)];
                one.kept = std::move(bytes);
                one.file = source.stem().string() + ".pack";
            } catch (const error&) {  // another may do
            }
        for (auto& [encoding, all] : groups) {
            const kept_header& header = all.first;
            group& members = all.second;
            const auto is_in = [&](std::size_t g) {
                return members[g].file == wanted.file || (members[g].file.empty() && header.sizes[g] == wanted.bytes);
            };
            for (std::size_t g = 0; g < members.size(); ++g) read_data(m, members[g], wanted);
            for (std::size_t g = 0; g < members.size(); ++g)
                if (is_in(g) && write(wanted, rebuilt(header, members, g)))
                    return concat("what ", members.size(), " hosts keep for one another (", header.kind, ')');
        }
        return {};
    }
    // An undamaged pack of a member, but for the one that is wanted.
    void read_data(const manifest& m, member& of, const manifest::pack& wanted) const {
        const auto its = std::ranges::find(m.packs, of.file, &manifest::pack::file);
        if (its == m.packs.end() || of.file == wanted.file) return;
        std::vector<std::filesystem::path> places{version_ / of.file};
        places.insert(places.end(), sources_.begin(), sources_.end());
        for (const std::filesystem::path& path : places)
            if (path.filename() == of.file && is(path, *its)) return void(of.data = bytes_of(path));
    }
    // The data of a member; empty where they cannot be rebuilt. Its ranks are threads here.
    static std::vector<std::byte> rebuilt(const kept_header& header, const group& members, std::size_t wanted) {
        std::vector<std::byte> result;
        try {
            run_ranks(header.ranks(), {.kernel_threads = 1}, [&](threads_communicator& c) {
                host_group hosts{any_communicator(c.split(0, c.rank())), {}};
                for (int r = 0; r < c.size(); ++r) hosts.hosts.push_back(concat("host ", r));
                const auto me = static_cast<std::size_t>(c.rank());
                rank_parts parts;
                if (!members[me].data.empty()) parts.data = members[me].data;
                if (!members[me].kept.empty()) parts.kept = members[me].kept;
                auto bytes = rebuild(hosts, header.version, parts);
                if (me == wanted && bytes) result = std::move(*bytes);
            });
        } catch (const error&) {  // too much is lost
        }
        return result;
    }

    std::string from_pieces(const manifest::pack& wanted) const {
        const state_reader file(version_ / wanted.file);
        const pack_directory d = cairn::detail::read_pack_directory(file);
        if (d.header_checksum != wanted.header_checksum) return {};
        pack_header h{};
        file.read(0, &h, sizeof h, "the header");
        std::vector<std::byte> image(d.file_bytes);
        file.read(0, image.data(), sizeof h + h.directory_bytes, "the directory");
        std::set<std::string> from;
        for (const packed_piece& p : d.pieces) {
            if (p.holder != d.id.version) continue;
            std::byte* const to = image.data() + p.position;
            file.read(p.position, to, p.bytes, p.name);
            if (xxh3(to, p.bytes) == p.checksum) continue;
            const std::string source = equal_piece(p, to);
            require(!source.empty(), p.name, ", bytes ", p.position, " to ", p.position + p.bytes,
                    ", is damaged, and no other version has it");
            from.insert(source);
        }
        if (!write(wanted, image)) return {};
        return from.empty() ? "itself" : "pieces of " + listed({from.begin(), from.end()});
    }
    // Reads a piece with the same content from another pack; where from, "" where there is none.
    std::string equal_piece(const packed_piece& p, std::byte* to) const {
        for (const std::filesystem::path& source : sources_) try {
                if (source.extension() != ".pack") continue;
                const state_reader file(source);
                const pack_directory d = cairn::detail::read_pack_directory(file);
                for (const packed_piece& q : d.pieces)
                    if (q.holder == d.id.version && same_content(p, q)) {
                        read_piece(file, q, to);
                        return source.string();
                    }
            } catch (const error&) {  // another may do
            }
        return {};
    }

    static std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
        const state_reader file(path);
        std::vector<std::byte> bytes(file.size());
        file.read(0, bytes.data(), bytes.size(), "the file");
        return bytes;
    }

    std::filesystem::path version_;
    const std::vector<std::filesystem::path>& sources_;
    repair_report report_;
};

}  // namespace detail

/// Heals what is damaged of the version in this directory, from `sources`: packs, *.pack, and what hosts keep for one
/// another, *.kept. Nothing changes that is whole, and nothing is written that is not what the manifest says. To be
/// called while no run writes there.
inline repair_report repair_version(const std::filesystem::path& version,
                                    const std::vector<std::filesystem::path>& sources) {
    return detail::version_repair(version, sources).run();
}

/// The files below a directory that may serve as sources, in order.
inline std::vector<std::filesystem::path> repair_sources(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> all;
    std::error_code unreadable;
    for (std::filesystem::recursive_directory_iterator
             at(directory, std::filesystem::directory_options::skip_permission_denied, unreadable),
         end;
         !unreadable && at != end; at.increment(unreadable))
        if (at->path().extension() == ".pack" || at->path().extension() == ".kept") all.push_back(at->path());
    std::ranges::sort(all);
    return all;
}

}  // namespace cairn
