#pragma once
// Versions of a run's state: directories RUN/states/STEP-ATTEMPT with the packs of all ranks (pack.hpp), a manifest and
// lineage.json. A version is there whole or not at all:
//   each rank   mkdir states/.ATTEMPT-STEP;  write, fsync and rename its pack there;  fsync the directory
//   rank 0      checks all packs: attempt, step, ranks, sizes, each element of each tensor in one piece;  writes
//               lineage and manifest;  rename(.ATTEMPT-STEP, STEP-ATTEMPT): the commit;  fsync states/
// A process that dies before the rename leaves a hidden directory, which clean_leavings() removes at the next start.
// An attempt is a random number of one start of a run, so that packs of a step reached twice never mix. Packs of
// earlier versions that hold a piece are hard links beside the own ones: each version is whole by itself, the file
// system counts, and removing one is unlink. Removed and damaged versions first get a hidden name, as a whole.
// Tested by failing and dying at every system call (tests/state/version_test.cpp).

#include <cairn/core/atomic_file.hpp>
#include <cairn/state/pack_survey.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/random.h>

namespace cairn {

/// A random number for one start of a run.
inline std::array<std::uint64_t, 2> new_attempt() {
    std::array<std::uint64_t, 2> bits{};
    require(::getrandom(bits.data(), sizeof bits, 0) == ssize_t{sizeof bits},
            "no random numbers from the system: ", std::strerror(errno));
    return bits;
}

namespace detail {

[[noreturn]] inline void fail_at(const std::filesystem::path& path, const std::string& what) {
    const int reason = errno;
    fail(path.string(), ": ", what, ": ", std::strerror(reason));
}

/// Step of a directory's name "00000500-3f2a9c41d07b", −1 for any other name.
inline std::int64_t step_of_name(std::string_view name) {
    const std::size_t dash = name.find('-');
    const auto only = [](std::string_view part, const char* of) {
        return part.find_first_not_of(of) == std::string_view::npos;
    };
    if (dash == std::string_view::npos || dash < 8 || dash > 18 || !only(name.substr(0, dash), "0123456789")) return -1;
    if (name.size() != dash + 13 || !only(name.substr(dash + 1), "0123456789abcdef")) return -1;
    return std::stoll(std::string(name.substr(0, dash)));
}

inline bool is_there(const std::filesystem::path& path) {
    std::error_code unknown;
    return std::filesystem::exists(std::filesystem::symlink_status(path, unknown));
}

/// A directory that is there afterwards, and on disk.
template <class System>
void make_directory(const std::filesystem::path& path, System& system) {
    if (uninterrupted([&] { return system.mkdir(path.c_str()); }) == 0) {
        const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
        if (!sync_directory(system, parent)) fail_at(path, "may not survive a power failure: fsync of " + parent);
    } else if (errno != EEXIST) {
        fail_at(path, "cannot be made");
    }
}

/// Removes a directory and what is in it. What another process removes meanwhile is no error.
template <class System>
void remove_directory(const std::filesystem::path& path, System& system) {
    for (const std::string& name : names_in(path)) {
        const std::filesystem::path entry = path / name;
        std::error_code unknown;
        if (std::filesystem::is_directory(std::filesystem::symlink_status(entry, unknown))) {
            remove_directory(entry, system);
        } else if (uninterrupted([&] { return system.unlink(entry.c_str()); }) != 0 && errno != ENOENT) {
            fail_at(entry, "cannot be removed");
        }
    }
    if (uninterrupted([&] { return system.rmdir(path.c_str()); }) != 0 && errno != ENOENT)
        fail_at(path, "cannot be removed");
}

template <class System>
void rename_version(const std::filesystem::path& from, const std::filesystem::path& to, System& system) {
    if (uninterrupted([&] { return system.rename(from.c_str(), to.c_str()); }) != 0)
        fail_at(from, "cannot be renamed to " + to.filename().string());
    const std::string states = from.parent_path().string();
    if (!sync_directory(system, states)) fail_at(to, "may not survive a power failure: fsync of " + states);
}

}  // namespace detail

/// states/.ATTEMPT-STEP, where a version is while it is written.
inline std::filesystem::path directory_in_making(const std::filesystem::path& states, const version_id& id) {
    const std::string name = id.name();
    const std::size_t dash = name.find('-');
    return states / ('.' + name.substr(dash + 1) + '-' + name.substr(0, dash));
}

/// Makes that directory, and `states`, where they are not there; each rank may. Returns it.
template <class System = posix_system>
std::filesystem::path prepare_version(const std::filesystem::path& states, const version_id& id, System system = {}) {
    const std::filesystem::path directory = directory_in_making(states, id);
    detail::make_directory(states, system);
    detail::make_directory(directory, system);
    return directory;
}

/// Puts the pack `from` of an earlier version at `to` as well: one file with two names, or a copy where the file system
/// refuses that. On disk once the directory of `to` is synced, as writing a pack there does.
template <class System = posix_system>
void share_pack(const std::filesystem::path& from, const std::filesystem::path& to, System system = {}) {
    if (uninterrupted([&] { return system.link(from.c_str(), to.c_str()); }) == 0 || errno == EEXIST) return;
    if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
        detail::fail_at(to, "cannot be linked to " + from.string());
    const detail::state_reader in(from);
    atomic_file<System> out(to, system);
    std::string room;
    for (std::uint64_t at = 0; at < in.size(); at += room.size()) {
        room.resize(std::min<std::uint64_t>(in.size() - at, 4 << 20));
        in.read(at, room.data(), room.size(), "a copy");
        out.write(room.data(), room.size());
    }
    out.commit();
}

/// Checks the packs of all ranks and makes them a version, with `lineage` as lineage.json. Rank 0, when all ranks have
/// written theirs. When it returns, the version survives whatever happens. Throws where something is missing or wrong;
/// the directory in the making is then still there.
template <class System = posix_system>
manifest commit_version(const std::filesystem::path& states, const version_id& id, std::int32_t ranks,
                        const std::string& lineage, System system = {}) {
    const std::filesystem::path directory = directory_in_making(states, id);
    const manifest m = survey_packs(directory, id, ranks);
    for (const auto& [name, text] : {std::pair("lineage.json", lineage), std::pair("manifest", to_text(m))}) {
        atomic_file<System> file(directory / name, system);
        file.write(text.data(), text.size());
        file.commit();
    }
    detail::rename_version(directory, states / id.name(), system);
    return m;
}

/// Removes a version in the making that was given up. No rank writes there any longer.
template <class System = posix_system>
void abandon_version(const std::filesystem::path& states, const version_id& id, System system = {}) {
    const std::filesystem::path directory = directory_in_making(states, id);
    if (detail::is_there(directory)) detail::remove_directory(directory, system);
}

/// A version that is there.
struct stored_version {
    std::filesystem::path directory;
    std::string name;  // "00000500-3f2a9c41d07b"
    std::int64_t step = 0;
    double committed = 0;  // when, in seconds since 1970
};

/// The versions in `states`, that of the highest step first, of equal steps that which was committed last. Those in the
/// making, removed or set aside are not among them. None where the directory is not there.
inline std::vector<stored_version> list_versions(const std::filesystem::path& states) {
    std::vector<stored_version> all;
    if (!detail::is_there(states)) return all;
    for (const std::string& name : detail::names_in(states)) {
        const std::int64_t step = detail::step_of_name(name);
        if (step < 0) continue;
        struct stat info {};
        const bool known = ::stat((states / name / "manifest").c_str(), &info) == 0;
        all.push_back(
            {states / name, name, step,
             known ? static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec) : 0});
    }
    std::stable_sort(all.begin(), all.end(), [](const stored_version& a, const stored_version& b) {
        return std::pair(a.step, a.committed) > std::pair(b.step, b.committed);
    });
    return all;
}

/// Throws unless the packs of a version are those of its manifest. `all_bytes`: reads the tensors, too, and checks each
/// byte. Returns the manifest.
inline manifest verify_version(const std::filesystem::path& directory, bool all_bytes) {
    const manifest m = read_manifest(directory), found = survey_packs(directory, m.version, m.ranks);
    const std::string where = directory.string();
    require(found.packs == m.packs, where, ": the packs are not those of the manifest");
    for (std::size_t i = 0; i < std::max(m.tensors.size(), found.tensors.size()); ++i)
        if (i >= m.tensors.size() || i >= found.tensors.size() || m.tensors[i] != found.tensors[i])
            fail(where, ": tensor ", (i < m.tensors.size() ? m : found).tensors[i].name,
                 " is not what the manifest says");
    require(found == m, where, ": the digest is not that of the manifest");
    if (all_bytes)
        for (const auto& p : m.packs) verify_pack(directory / p.file);
    return m;
}

/// Takes a version that failed out of the list, as states/.damaged-NAME. Returns where it is.
template <class System = posix_system>
std::filesystem::path set_aside(const std::filesystem::path& states, const std::string& name, System system = {}) {
    std::filesystem::path to = states / (".damaged-" + name);
    for (int i = 2; detail::is_there(to); ++i) to = states / concat(".damaged-", name, '-', i);
    detail::rename_version(states / name, to, system);
    return to;
}

/// Removes a version: first, and on disk, its name, then its files.
template <class System = posix_system>
void remove_version(const std::filesystem::path& states, const std::string& name, System system = {}) {
    const std::filesystem::path to = states / (".removed-" + name);
    detail::rename_version(states / name, to, system);
    detail::remove_directory(to, system);
}

/// Removes what earlier starts of the run have left in the making or under removal. For a time when nobody else writes
/// there: at a start, under the lock of the run's directory. Returns the names.
template <class System = posix_system>
std::vector<std::string> clean_leavings(const std::filesystem::path& states, System system = {}) {
    std::vector<std::string> removed;
    if (!detail::is_there(states)) return removed;
    for (const std::string& name : detail::names_in(states)) {
        const bool in_making = name.size() > 14 && name[0] == '.' && name[13] == '-' &&
                               detail::step_of_name(name.substr(14) + '-' + name.substr(1, 12)) >= 0;
        if (!in_making && !name.starts_with(".removed-")) continue;
        detail::remove_directory(states / name, system);
        removed.push_back(name);
    }
    return removed;
}

}  // namespace cairn
