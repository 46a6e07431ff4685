#pragma once
// All versions of some runs in SQLite, filled anew at each call: nothing to keep in step with the files, and nothing to
// lock on a parallel file system.
//   states    id, version, run, directory, step, epoch, time, workload, parent_run, parent_version, how, digest, bytes,
//             ranks, best_by, problem; parent: the id of the version that it goes on from, NULL where there is none
//   metrics   state (an id), version, run, figure, value
//   settings  state, version, run, path, value
//   tags      state, version, run, tag
//   versions  states, with tags, and each figure and each setting as a column: "optimizer.lr", test_accuracy
// A version goes on from the one before it of the same start of its run; the first of a start, and one whose earlier
// ones are gone, from the one that lineage.json names.

#include "states/description.hpp"
#include "states/sqlite.hpp"

#include <cairn/state/version.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace cairn::states {

/// The runs at `path`: itself, or those of the folders in it, however deep. A run is a directory with versions.
inline std::vector<std::filesystem::path> runs_at(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    if (fs::is_directory(path / "states")) return {path};
    std::vector<fs::path> runs;
    std::error_code unreadable;
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(path, options, unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
        std::error_code unknown;
        if (!at->is_directory(unknown) || !fs::is_directory(at->path() / "states", unknown)) continue;
        runs.push_back(at->path());
        at.disable_recursion_pending();
    }
    if (unreadable) fail(path.string(), ": cannot be read: ", unreadable.message());
    std::sort(runs.begin(), runs.end());
    return runs;
}

/// See the top of the file.
class catalogue {
public:
    explicit catalogue(const std::vector<std::filesystem::path>& runs) {
        for (const auto& run : runs) add_run(run);
        add_parents();
        db_.run(R"(
            CREATE INDEX metrics_of ON metrics(state, figure);
            CREATE INDEX tags_of ON tags(state);
            CREATE INDEX children_of ON states(parent);
            CREATE VIEW settings AS SELECT states.id AS state, version, run, path, value
                FROM states JOIN setting_values USING (settings_of);)");
        add_wide_view();
        db_.run("COMMIT;");
        db_.forbid_writing();
    }

    /// Rows of one SELECT. Throws on SQL that is wrong, or would write.
    table query(const std::string& sql) const { return db_.prepare(sql).all(); }

private:
    struct known {  // of a state, for its parent
        std::int64_t step;
        std::string run, attempt, parent_run, parent_version;
    };

    void add_run(const std::filesystem::path& run) {
        std::vector<stored_version> versions;
        try {
            versions = list_versions(run / "states");
        } catch (const error& problem) {
            std::fprintf(stderr, "warning: %s\n", problem.what());
        }
        std::error_code unknown;
        const std::string whole = std::filesystem::weakly_canonical(run, unknown).string();
        for (auto v = versions.rbegin(); v != versions.rend(); ++v) add_version(run.string(), whole, *v);
    }

    void add_version(const std::string& run, const std::string& whole, const stored_version& v) {
        const version_description d = read_description(v.directory);
        nlohmann::json digest, bytes, ranks, problem;
        try {
            const manifest m = read_manifest(v.directory);
            std::uint64_t sum = 0;
            for (const auto& p : m.packs) sum += p.bytes;
            digest = cairn::detail::hexadecimal(m.digest), bytes = sum, ranks = m.ranks;
        } catch (const error& e) {
            problem = e.what();
        }
        const auto id = static_cast<std::int64_t>(all_.size()) + 1;
        const auto or_null = [](const auto& value) {
            if constexpr (requires { value.has_value(); })
                return value ? nlohmann::json(*value) : nlohmann::json();
            else
                return value.empty() ? nlohmann::json() : nlohmann::json(value);
        };
        state_.run(id, v.name, run, v.directory.string(), v.step, or_null(d.epoch), d.time.value_or(v.committed),
                   or_null(d.workload), or_null(d.parent_run), or_null(d.parent_version), or_null(d.how), digest, bytes,
                   ranks, or_null(d.best_by), problem, settings_number(d.settings));
        for (const auto& [figure, value] : d.metrics) {
            metric_.run(id, v.name, run, figure, value);
            figures_.insert(figure);
        }
        for (const std::string& tag : d.tags) tag_.run(id, v.name, run, tag);
        all_.push_back({v.step, whole, v.name.substr(v.name.find('-') + 1), d.parent_run, d.parent_version});
    }

    // Versions of a run have the same settings, mostly: each text is read once.
    std::int64_t settings_number(const std::string& toml) {
        const auto [at, is_new] = settings_.try_emplace(toml, static_cast<std::int64_t>(settings_.size()));
        if (is_new)
            for (const auto& [path, value] : settings_of(toml)) {
                setting_.run(at->second, path, value);
                paths_.insert(path);
            }
        return at->second;
    }

    void add_parents() {
        std::map<std::pair<std::string, std::string>, std::int64_t> by_run, before;  // (run, version or attempt) → id
        std::unordered_map<std::string, std::int64_t> anywhere;
        const auto name_of = [](const known& k) { return version_name(k.step, k.attempt); };
        for (std::size_t i = 0; i < all_.size(); ++i) {
            const auto id = static_cast<std::int64_t>(i) + 1;
            by_run.try_emplace({all_[i].run, name_of(all_[i])}, id);
            anywhere.try_emplace(name_of(all_[i]), id);
        }
        statement set = db_.prepare("UPDATE states SET parent = ? WHERE id = ?");
        for (std::size_t i = 0; i < all_.size(); ++i) {  // those of a run: in the order of steps
            const known& k = all_[i];
            const auto id = static_cast<std::int64_t>(i) + 1;
            std::int64_t parent = 0;
            const auto earlier = before.find({k.run, k.attempt});
            if (earlier != before.end() && all_[static_cast<std::size_t>(earlier->second - 1)].step < k.step) {
                parent = earlier->second;
            } else if (!k.parent_version.empty()) {
                for (const std::string& run : {k.parent_run, k.run})  // a run may have been moved
                    if (const auto found = by_run.find({run, k.parent_version}); !parent && found != by_run.end())
                        parent = found->second;
                if (const auto found = anywhere.find(k.parent_version); !parent && found != anywhere.end())
                    parent = found->second;
            }
            if (parent) set.run(parent, id);
            before[{k.run, k.attempt}] = id;
        }
    }
    static std::string version_name(std::int64_t step, const std::string& attempt) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%08lld-", static_cast<long long>(step));
        return digits + attempt;
    }

    void add_wide_view() {
        std::set<std::string> taken;  // SQLite's names have no case
        const auto is_free = [&](std::string name) {
            std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
            const bool fits = name.size() < 200 && taken.size() < 1500 && name.find('\0') == name.npos;
            return fits && taken.insert(name).second;
        };
        for (const std::string& column : query("SELECT * FROM states LIMIT 0").columns) is_free(column);
        is_free("tags");
        std::string columns = "(SELECT group_concat(tag, ' ') FROM tags WHERE tags.state = states.id) AS tags";
        for (const std::string& figure : figures_)
            if (is_free(figure))
                columns +=
                    ", (SELECT value FROM metrics WHERE metrics.state = states.id AND figure = " + quoted_text(figure) +
                    ") AS " + quoted_name(figure);
        for (const std::string& path : paths_)
            if (is_free(path))
                columns +=
                    ", (SELECT value FROM setting_values AS s WHERE s.settings_of = states.settings_of AND path = " +
                    quoted_text(path) + ") AS " + quoted_name(path);
        db_.run("CREATE VIEW versions AS SELECT states.*, " + columns + " FROM states;");
    }

    static database with_tables() {
        database db;
        db.run(R"(
            BEGIN;
            CREATE TABLE states(id INTEGER PRIMARY KEY, version TEXT, run TEXT, directory TEXT, step INTEGER,
                epoch REAL, time REAL, workload TEXT, parent_run TEXT, parent_version TEXT, how TEXT, digest TEXT,
                bytes INTEGER, ranks INTEGER, best_by TEXT, problem TEXT, settings_of INTEGER, parent INTEGER);
            CREATE TABLE metrics(state INTEGER, version TEXT, run TEXT, figure TEXT, value REAL);
            CREATE TABLE tags(state INTEGER, version TEXT, run TEXT, tag TEXT);
            CREATE TABLE setting_values(settings_of INTEGER, path TEXT, value,
                PRIMARY KEY(settings_of, path)) WITHOUT ROWID;)");
        return db;
    }

    database db_ = with_tables();
    statement state_ =
        db_.prepare("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)");
    statement metric_ = db_.prepare("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)");
    statement tag_ = db_.prepare("INSERT INTO tags VALUES (?, ?, ?, ?)");
    statement setting_ = db_.prepare("INSERT INTO setting_values VALUES (?, ?, ?)");
    std::vector<known> all_;  // id − 1 → state
    std::map<std::string, std::int64_t> settings_;
    std::set<std::string> figures_, paths_;
};

}  // namespace cairn::states
