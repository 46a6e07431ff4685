#pragma once
// lineage.json of a version: where it came from, and what it is. It describes; a run goes on without it.

#include <cairn/perf/machine.hpp>
#include <cairn/state/retention.hpp>
#include <cairn/state/version.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/run_parts.hpp>

#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// What a run knows of a version besides its state.
struct version_origin {
    std::string run;                                    // its directory
    nlohmann::json parent = {};                         // of the version that this start began with; null: none
    nlohmann::json metrics = nlohmann::json::object();  // of the last test: "test_loss", "test_FIGURE", …
    std::string best_by;                                // of them, the one that "best N" goes by
};

/// The text of lineage.json.
template <Device D, class T>
std::string lineage_of(const run_parts<D, T>& run, const version_id& id, const version_origin& from) {
    nlohmann::json mesh = nlohmann::json::object();
    for (const mesh_axis& axis : run.mesh.grid.axes()) mesh[axis.name] = axis.size;
    nlohmann::json text{{"version", id.name()},
                        {"run", from.run},
                        {"workload", run.task.name},
                        {"step", id.step},
                        {"epoch", run.batches.epochs_of(id.step)},
                        {"time", std::time(nullptr)},
                        {"settings", run.task.settings.resolved()},
                        {"metrics", from.metrics},
                        {"best_by", from.best_by},
                        {"mesh", mesh},
                        {"machine", perf::fingerprint()},
                        {"tags", nlohmann::json::array()}};
    if (!from.parent.is_null()) text["parent"] = from.parent;
    return text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

/// lineage.json of the version in `directory`; an empty object where it is missing or damaged.
inline nlohmann::json read_lineage(const std::filesystem::path& directory) {
    std::ifstream in(directory / "lineage.json");
    nlohmann::json text = nlohmann::json::parse(in, nullptr, false);
    return text.is_object() ? text : nlohmann::json::object();
}

/// The settings with which a version was trained. Throws where its lineage.json does not have them.
inline configuration settings_of_version(const std::filesystem::path& directory) {
    const nlohmann::json text = read_lineage(directory);
    require(text.contains("settings") && text["settings"].is_string(), (directory / "lineage.json").string(),
            ": missing or damaged, so the settings of this version are not known; give a workload file beside --from");
    return configuration::from_text(text["settings"].get<std::string>());
}

/// "parent" of a lineage: the version in `directory`, and how it was begun with: resume, branch, init.
inline nlohmann::json parent_of(const std::filesystem::path& directory, const char* how) {
    const manifest m = read_manifest(directory);
    return {{"run", directory.parent_path().parent_path().string()},
            {"version", m.version.name()},
            {"digest", detail::hexadecimal(m.digest)},
            {"how", how}};
}

/// The directory of the version that `text` names: RUN, its newest; RUN@STEP; RUN@TAG; or the directory itself. Throws
/// where there is none, naming those that there are.
inline std::filesystem::path find_version(const std::string& text) {
    if (std::filesystem::exists(std::filesystem::path(text) / "manifest")) return std::filesystem::absolute(text);
    const std::size_t at = std::filesystem::exists(text) ? std::string::npos : text.rfind('@');
    const std::filesystem::path run = std::filesystem::absolute(text.substr(0, at));
    const std::string which = at == std::string::npos ? "" : text.substr(at + 1);
    const std::vector<stored_version> all = list_versions(run / "states");
    require(!all.empty(), text, ": no saved state in ", (run / "states").string());
    std::string steps;
    for (const stored_version& v : all) {
        const nlohmann::json lineage = which.empty() ? nlohmann::json::object() : read_lineage(v.directory);
        const auto tags = lineage.find("tags");
        const bool is_tagged = tags != lineage.end() && std::find(tags->begin(), tags->end(), which) != tags->end();
        if (which.empty() || which == std::to_string(v.step) || is_tagged) return v.directory;
        steps += concat(steps.empty() ? "" : ", ", v.step);
    }
    fail(text, ": no version of step or tag ", which, " in ", (run / "states").string(), "; there are steps ", steps);
}

/// What retention goes by, of a version that is there.
inline retained_version retained(const stored_version& v) {
    const nlohmann::json text = read_lineage(v.directory);
    retained_version r{.name = v.name, .step = v.step, .committed = v.committed};
    const auto number = [](const nlohmann::json& of, const std::string& key) -> std::optional<double> {
        if (!of.is_object() || !of.contains(key) || !of[key].is_number()) return {};
        return of[key].get<double>();
    };
    r.epoch = number(text, "epoch").value_or(0);
    if (text.contains("best_by") && text["best_by"].is_string())
        r.metric = number(text.value("metrics", nlohmann::json::object()), text["best_by"].get<std::string>());
    r.tagged = text.contains("tags") && text["tags"].is_array() && !text["tags"].empty();
    return r;
}

/// Removes the versions in `states` that no rule keeps. `figure`: that the best have the best of, "test_accuracy".
inline void apply_retention(const std::filesystem::path& states, const std::vector<retention_rule>& rules,
                            const std::string& figure) {
    std::vector<retained_version> all;
    for (const stored_version& v : list_versions(states)) all.push_back(retained(v));
    const std::string plain = figure.starts_with("test_") ? figure.substr(5) : figure;
    const best_metric best = plain != "loss" && larger_is_better(plain) ? best_metric::largest : best_metric::smallest;
    for (const std::string& name : versions_to_remove(all, rules, best)) remove_version(states, name);
}

}  // namespace cairn
