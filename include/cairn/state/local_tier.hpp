#pragma once
// Versions on the disks, or in the memory, of the hosts themselves: nearer than the run's directory, so that they can
// be taken more often. Each rank has its own pack there, and what it keeps for the other hosts of its group
// (redundancy.hpp), each file whole by itself:
//   LOCAL/00000500-3f2a9c41d07b/rank-0003.pack, rank-0003.kept, lineage.json
// Whether a version is whole is decided at a restart, by all ranks together: lost packs are rebuilt from the groups,
// and it goes to the run's directory first, where any mesh reads it as any other.

#include <cairn/comm/collectives/first_failure.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/state/direct_file.hpp>
#include <cairn/state/pack.hpp>
#include <cairn/state/redundancy.hpp>
#include <cairn/state/version.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// How hosts make up for one another.
struct host_redundancy {
    host_group group;
    redundancy kind;
};

/// See the top of the file.
class local_tier {
public:
    /// `directory`: this run's, on this rank's host.
    local_tier(std::filesystem::path directory, int rank, std::string host, std::optional<host_redundancy> others)
        : directory_(std::move(directory)), rank_(rank), host_(std::move(host)), others_(std::move(others)) {
        std::filesystem::create_directories(directory_);
    }

    /// Collective over the group, on the helpers of its ranks in the same order of versions: keeps this rank's sealed
    /// pack, and copies or parities of the others'. Throws where this rank's disk fails.
    void store(const pack_id& id, std::span<const std::byte> pack, const std::string& lineage) {
        if (others_) kept_ = encode(others_->group, others_->kind, id.version.bytes(), pack, std::move(kept_));
        const std::filesystem::path folder = directory_ / id.version.name();
        std::filesystem::create_directories(folder);
        direct_file<> file(folder / id.file());
        file.write(pack.data(), pack.size());
        file.commit();
        if (others_) write_file(folder / kept_file(rank_), kept_);
        if (!lineage.empty()) write_atomically(folder / "lineage.json", lineage);
    }
    /// Removes this rank's files of all versions but one, and of those that this start of the run has taken after it:
    /// another rank of the host may be writing the next.
    void keep_only(const std::string& version) const {
        const auto attempt_of = [](const std::string& name) { return name.substr(name.find('-')); };
        std::error_code ignored;
        for (const std::string& name : names()) {
            const bool is_later =
                attempt_of(name) == attempt_of(version) && detail::step_of_name(name) > detail::step_of_name(version);
            if (name == version || is_later) continue;
            std::filesystem::remove(directory_ / name / pack_id{{}, rank_, 0}.file(), ignored);
            std::filesystem::remove(directory_ / name / kept_file(rank_), ignored);
            if (rank_ == 0) std::filesystem::remove(directory_ / name / "lineage.json", ignored);
            std::filesystem::remove(directory_ / name, ignored);  // where it is empty
        }
    }

    /// Collective over `world`: the versions that any rank has something of, later than step `after`, newest first.
    std::vector<std::string> versions(any_communicator& world, std::int64_t after) const {
        std::string mine;
        for (const std::string& name : names()) mine += name + '\n';
        std::set<std::pair<std::int64_t, std::string>> all;
        for (const std::string& of_rank : all_gather_text(world, mine)) {
            std::istringstream lines(of_rank);
            for (std::string name; std::getline(lines, name);)
                if (const std::int64_t step = detail::step_of_name(name); step > after) all.emplace(step, name);
        }
        std::vector<std::string> newest_first;
        for (const auto& [step, name] : all) newest_first.insert(newest_first.begin(), name);
        return newest_first;
    }

    /// Collective over `world`: writes a version to the run's directory `states`, rebuilding what hosts have lost.
    /// Returns where each rank's part came from. Throws on all ranks where it is not whole.
    std::string publish(any_communicator& world, const std::string& name, const std::filesystem::path& states) {
        const std::filesystem::path folder = directory_ / name;
        std::optional<pack_directory> found = first_pack(folder);
        // What all packs of the version say: who wrote it, on how many ranks.
        const std::vector<pack_id> ids = values_of_ranks(world, found ? found->id : pack_id{{-1, {}}, -1, -1});
        const auto known = std::ranges::find_if(ids, [](const pack_id& id) { return id.ranks > 0; });
        require(known != ids.end(), name, ": no host has an undamaged pack of it");
        const version_id version = known->version;
        const std::int32_t ranks = known->ranks;
        std::string from = concat("rank ", rank_, " (", host_, "): ");
        std::string failure = first_failure(world, [&] {
            from += ranks == world.size() ? publish_own(folder, {version, rank_, ranks}, states)
                                          : publish_all(folder, version, states);
        });
        require(failure.empty(), failure);
        failure = first_failure(world, [&] {
            if (world.rank() != 0) return;
            std::ifstream in(folder / "lineage.json");
            commit_version(states, version, ranks, std::string(std::istreambuf_iterator<char>(in), {}));
        });
        require(failure.empty(), failure);
        std::string text;
        for (const std::string& of_rank : all_gather_text(world, from)) text += (text.empty() ? "" : ", ") + of_rank;
        return text;
    }

private:
    static std::string kept_file(int rank) {
        const std::string pack = pack_id{{}, rank, 0}.file();
        return pack.substr(0, pack.size() - 4) + "kept";
    }
    static void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
        atomic_file<> file(path);
        file.write(bytes.data(), bytes.size());
        file.commit();
    }
    static std::optional<std::vector<std::byte>> read_file(const std::filesystem::path& path) {
        try {
            const detail::state_reader file(path);
            std::vector<std::byte> bytes(file.size());
            file.read(0, bytes.data(), bytes.size(), "the file");
            return bytes;
        } catch (const error&) {
            return {};
        }
    }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        std::error_code unreadable;
        for (const auto& entry : std::filesystem::directory_iterator(directory_, unreadable))
            if (detail::step_of_name(entry.path().filename().string()) >= 0)
                all.push_back(entry.path().filename().string());
        return all;
    }
    std::vector<std::filesystem::path> packs(const std::filesystem::path& folder) const {
        std::vector<std::filesystem::path> all;
        std::error_code unreadable;
        for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable))
            if (entry.path().extension() == ".pack") all.push_back(entry.path());
        std::ranges::sort(all);
        return all;
    }
    std::optional<pack_directory> first_pack(const std::filesystem::path& folder) const {
        for (const std::filesystem::path& path : packs(folder)) try {
                return read_pack_directory(path);
            } catch (const error&) {  // another may do
            }
        return {};
    }
    static bool is_whole(const std::filesystem::path& path) {
        try {
            verify_pack(path);
            return true;
        } catch (const error&) {
            return false;
        }
    }

    // Collective over the group. Returns where the pack came from.
    std::string publish_own(const std::filesystem::path& folder, const pack_id& id,
                            const std::filesystem::path& states) {
        std::optional<std::vector<std::byte>> data, kept = read_file(folder / kept_file(rank_));
        if (is_whole(folder / id.file())) data = read_file(folder / id.file());
        const bool own = data.has_value();
        if (others_) {
            rank_parts parts;
            if (data) parts.data = *data;
            if (kept) parts.kept = *kept;
            if (auto rebuilt = rebuild(others_->group, id.version.bytes(), parts)) data = std::move(rebuilt);
        }
        require(data.has_value(), folder.string(), ": the pack of rank ", rank_, " is lost on ", host_,
                others_ ? "" : ", and state.redundancy keeps no copy");
        write_file(prepare_version(states, id.version) / id.file(), *data);
        return own ? "its own disk" : "rebuilt from the other hosts";
    }
    // Another number of ranks has written it: whoever finds a pack brings it; two that bring one write the same.
    std::string publish_all(const std::filesystem::path& folder, const version_id& version,
                            const std::filesystem::path& states) const {
        const std::filesystem::path to = prepare_version(states, version);
        int count = 0;
        for (const std::filesystem::path& path : packs(folder)) {
            if (!is_whole(path) || !(read_pack_directory(path).id.version == version)) continue;
            atomic_file<> file(to / path.filename(), {}, concat(".tmp", rank_));
            const auto bytes = read_file(path);
            file.write(bytes->data(), bytes->size());
            file.commit();
            ++count;
        }
        return concat(count, " packs of its disk");
    }

    std::filesystem::path directory_;
    int rank_;
    std::string host_;
    std::optional<host_redundancy> others_;
    std::vector<std::byte> kept_;
};

}  // namespace cairn
