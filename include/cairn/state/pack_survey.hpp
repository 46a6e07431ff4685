#pragma once
// What the packs in a directory hold together: the proof that they are one version, whole. Reads headers and
// directories, no data. Elements of a tensor are covered where the runs of its pieces, sorted, follow each other
// without a hole.

#include <cairn/state/digest.hpp>
#include <cairn/state/manifest.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// Names in a directory, in order. Throws where it cannot be read.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    std::error_code problem;
    for (std::filesystem::directory_iterator at(directory, problem), end; !problem && at != end; at.increment(problem))
        names.push_back(at->path().filename().string());
    if (problem) fail(directory.string(), ": cannot be read: ", problem.message());
    std::sort(names.begin(), names.end());
    return names;
}

/// A piece, and the pack whose directory has it.
struct piece_of_pack {
    const packed_piece* piece;
    const std::string* file;
};

/// Throws unless each element of the tensor is in exactly one of its pieces.
inline void require_covered(const std::string& where, const std::vector<piece_of_pack>& pieces) {
    struct run {
        index_t begin, end;
        const std::string* file;
    };
    const packed_piece& first = *pieces.front().piece;
    const cairn::piece whole = cairn::piece::whole(first.where.global);
    std::vector<run> runs;
    for (const auto& [p, file] : pieces) {
        require(p->type == first.type && p->where.global == first.where.global, where, ": tensor ", p->name, " is ",
                element_infos[static_cast<std::size_t>(p->type)].name, ' ', p->where.global, " in ", *file, ", ",
                element_infos[static_cast<std::size_t>(first.type)].name, ' ', first.where.global, " in ",
                *pieces.front().file);
        for_runs_in_whole(p->where, [&, file = file](index_t, index_t at, index_t n) {
            if (!runs.empty() && runs.back().file == file && runs.back().end == at)
                runs.back().end += n;
            else
                runs.push_back({at, at + n, file});
        });
    }
    std::sort(runs.begin(), runs.end(), [](const run& a, const run& b) { return a.begin < b.begin; });
    runs.push_back({whole.count, whole.count, nullptr});  // the end
    const run* before = nullptr;
    for (const run& r : runs) {
        const index_t end = before ? before->end : 0;
        if (r.begin > end)
            fail(where, ": tensor ", first.name, ' ', whole.global, ": elements ", end, " to ", r.begin,
                 " are in no pack");
        if (r.begin < end)
            fail(where, ": tensor ", first.name, ' ', whole.global, ": elements ", r.begin, " to ",
                 std::min(end, r.end), " are in two pieces, of ", *before->file, " and of ", *r.file);
        before = &r;
    }
}

}  // namespace detail

/// Ranks that are to hold the same bits do not.
class drift_error : public error {
public:
    using error::error;
};

namespace detail {

/// Throws a drift_error that names the tensor, and the ranks whose bits fewer have than others; of equally many, those
/// of the higher ranks.
inline void require_alike(const std::map<std::string, pack_directory>& packs) {
    struct replicas {
        piece where;
        std::map<std::uint64_t, std::vector<std::int32_t>> ranks;  // by digest
    };
    std::map<std::string, std::vector<replicas>> tensors;
    for (const auto& [file, d] : packs)
        for (const replica_digest& r : d.replicas) {
            auto& all = tensors[r.name];
            auto same = std::ranges::find(all, r.where, &replicas::where);
            if (same == all.end()) same = all.insert(all.end(), {r.where, {}});
            same->ranks[r.digest].push_back(d.id.rank);
        }
    const auto words = [](std::vector<std::int32_t> ranks) {
        std::ranges::sort(ranks);
        std::string text = ranks.size() > 1 ? "ranks" : "rank";
        for (const std::int32_t r : ranks) text += concat(r == ranks.front() ? " " : ", ", r);
        return text;
    };
    state_differences drifted;
    for (const auto& [name, all] : tensors)
        for (const auto& [where, ranks] : all) {
            const auto most = std::ranges::max_element(ranks, [](const auto& a, const auto& b) {
                return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
            });
            for (const auto& [digest, whose] : ranks)
                if (digest != most->first)
                    drifted.add(name, ' ', where, " of ", words(whose), " is not that of ", words(most->second));
        }
    if (!drifted.none())
        throw drift_error(concat("ranks that are to hold the same parameters have drifted apart: ", drifted.text()));
}

}  // namespace detail

/// What the packs in a directory say, as a manifest; nothing in it is believed that a pack does not say itself. Throws
/// where a pack is missing, too many, damaged in header or directory, or of another version, where a tensor's elements
/// are not covered, and where replicas have drifted apart.
inline manifest survey_packs(const std::filesystem::path& directory, const version_id& id, std::int32_t ranks) {
    std::map<std::string, pack_directory> packs;  // by file
    for (std::int32_t r = 0; r < ranks; ++r) {
        const pack_id expected{id, r, ranks};
        pack_directory d = read_pack_directory(directory / expected.file());
        require(d.id == expected, (directory / expected.file()).string(), ": of version ", d.id.version.name(),
                ", rank ", d.id.rank, " of ", d.id.ranks, "; this is ", id.name(), ", rank ", r, " of ", ranks);
        packs.emplace(expected.file(), std::move(d));
    }
    detail::require_alike(packs);
    manifest found{id, ranks, {}, {}, 0};
    std::map<std::string, std::vector<detail::piece_of_pack>> tensors;
    std::map<std::string, pack_directory> earlier;
    for (const auto& [file, d] : packs)
        for (const packed_piece& p : d.pieces) {
            tensors[p.name].push_back({&p, &file});
            if (p.holder == id) continue;
            const std::string name = d.id.file_of(p.holder), at = (directory / name).string();
            auto held = earlier.find(name);
            if (held == earlier.end())
                held = earlier.emplace(name, read_pack_directory(std::filesystem::path(at))).first;
            require(held->second.id.version == p.holder, at, ": of version ", held->second.id.version.name());
            const bool found_there = std::ranges::any_of(held->second.pieces, [&](const packed_piece& q) {
                return q.position == p.position && q.bytes == p.bytes && q.checksum == p.checksum && q.name == p.name &&
                       q.type == p.type && q.where == p.where && q.digest == p.digest && q.holder == p.holder;
            });
            require(found_there, at, ": does not hold ", p.name, ", bytes ", p.position, " to ", p.position + p.bytes,
                    ", which ", file, " refers to");
        }
    packs.merge(earlier);
    for (const auto& [file, d] : packs) found.packs.push_back({file, d.file_bytes, d.header_checksum});
    for (const std::string& name : detail::names_in(directory))
        require(!name.ends_with(".pack") || packs.contains(name), (directory / name).string(),
                ": a pack that the version does not need");
    for (const auto& [name, pieces] : tensors) {
        detail::require_covered(directory.string(), pieces);
        manifest::tensor t{name, pieces.front().piece->type, pieces.front().piece->where.global, 0};
        for (const detail::piece_of_pack& p : pieces) t.digest += p.piece->digest;
        if (!name.starts_with("machine/"))  // what a machine is best at is no part of what was trained
            found.digest += named_digest(name, t.digest);
        found.tensors.push_back(std::move(t));
    }
    return found;
}

}  // namespace cairn
