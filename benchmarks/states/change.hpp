#pragma once
// Tags, removal and sizes of versions. What removes takes the lock of the run's directory, so that it is refused while
// a run works there; tags may be set meanwhile: they keep a version from the run's own rules.

#include "states/table.hpp"

#include <cairn/core/atomic_file.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/version_description.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn::states {

/// Throws on tags that VERSION could not name, or that hide a step.
inline void check_tag(const std::string& tag) {
    const bool plain = std::ranges::all_of(tag, [](unsigned char c) { return c > 32 && c != 127; });
    require(!tag.empty() && plain && tag.find_first_of("@/\"'") == tag.npos &&
                tag.find_first_not_of("0123456789") != tag.npos,
            "\"", printable(tag), "\" is no tag: it is to have no blanks, none of @ / \" ', and more than digits");
}

/// Adds and removes tags of a version in its lineage.json, which is written where it is missing or damaged. Of several
/// processes one at a time does so. Throws where the version is removed meanwhile.
inline void change_tags(const located_version& at, const std::vector<std::string>& add,
                        const std::vector<std::string>& remove) {
    for (const std::string& tag : add) check_tag(tag);
    const std::filesystem::path& directory = at.version.directory;
    struct opened {
        int file;
        ~opened() { ::close(file); }
    } lock{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    require(lock.file >= 0, directory.string(), ": cannot be opened: ", std::strerror(errno));
    ::flock(lock.file, LOCK_EX);  // where a file system has no locks, it stays at one process's care
    std::ifstream in(directory / "lineage.json", std::ios::binary);
    nlohmann::json text = nlohmann::json::parse(in, nullptr, false);
    if (!text.is_object()) text = {{"version", at.version.name}, {"step", at.version.step}};
    nlohmann::json& tags = text["tags"];
    if (!tags.is_array()) tags = nlohmann::json::array();
    for (const std::string& tag : remove) {
        const auto found = std::find(tags.begin(), tags.end(), tag);
        require(found != tags.end(), at.text(), ": has no tag ", printable(tag));
        tags.erase(found);
    }
    for (const std::string& tag : add)
        if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
    write_atomically(directory / "lineage.json",
                     text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
    require(std::filesystem::exists(directory / "manifest"), at.text(), ": was removed meanwhile");
}

/// Removes versions. Throws, before any is removed, where one is the newest of its run or has a tag and `force` is not
/// set, and where a run works in the directory.
inline void remove_versions(const std::vector<located_version>& versions, bool force) {
    std::map<std::filesystem::path, std::vector<const located_version*>> by_run;
    for (const located_version& v : versions) by_run[v.run].push_back(&v);
    for (const auto& [run, of_run] : by_run) {
        const directory_lock lock(run);
        const std::string newest = list_versions(run / "states").front().name;
        for (const located_version* v : of_run) {
            if (force) continue;
            require(v->version.name != newest, v->text(),
                    ": the newest version, with which --resume goes on; rm --force removes it");
            const std::vector<std::string> tags = read_description(v->version.directory).tags;
            require(tags.empty(), v->text(), ": is tagged ", listed(tags), "; untag it, or rm --force");
        }
        for (const located_version* v : of_run) remove_version(run / "states", v->version.name);
    }
}

/// Applies rules to a run, and removes leavings of killed starts. Returns what was removed.
inline std::vector<std::string> collect(const std::filesystem::path& run, const std::vector<std::string>& rules,
                                        const std::string& figure) {
    const directory_lock lock(run);
    std::vector<std::string> removed = versions_not_kept(run / "states", parse_retention(rules), figure);
    for (const std::string& name : removed) remove_version(run / "states", name);
    for (std::string& name : clean_leavings(run / "states")) removed.push_back(std::move(name));
    return removed;
}

/// Bytes by version, also of those in the making or set aside: all, and those that no other has. Files with several
/// names are counted once in the sum.
inline table disk_usage(const std::vector<std::filesystem::path>& runs) {
    table t{{"run", "version", "bytes", "own"}, {}};
    std::map<std::pair<dev_t, ino_t>, std::int64_t> all;
    for (const auto& run : runs)
        for (const std::string& name : cairn::detail::names_in(run / "states")) {
            std::map<std::pair<dev_t, ino_t>, std::pair<struct stat, nlink_t>> files;  // and names here
            if (!std::filesystem::is_directory(run / "states" / name)) continue;
            for (const std::string& file : cairn::detail::names_in(run / "states" / name)) {
                struct stat info {};
                if (::lstat((run / "states" / name / file).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
                auto& [known, names] = files[{info.st_dev, info.st_ino}];
                known = info, ++names;
                all[{info.st_dev, info.st_ino}] = info.st_size;
            }
            std::int64_t bytes = 0, own = 0;
            for (const auto& [id, file] : files) {
                bytes += file.first.st_size;
                if (file.first.st_nlink <= file.second) own += file.first.st_size;
            }
            t.rows.push_back({run.string(), name, bytes, own});
        }
    std::int64_t sum = 0;
    for (const auto& [id, bytes] : all) sum += bytes;
    t.rows.push_back({"all", "", sum, nullptr});
    return t;
}

}  // namespace cairn::states
