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
    std::string parent;                                 // version that this start went on from; "": it is new
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
    if (!from.parent.empty()) text["parent"] = {{"run", from.run}, {"version", from.parent}, {"how", "resume"}};
    return text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

/// lineage.json of the version in `directory`; an empty object where it is missing or damaged.
inline nlohmann::json read_lineage(const std::filesystem::path& directory) {
    std::ifstream in(directory / "lineage.json");
    nlohmann::json text = nlohmann::json::parse(in, nullptr, false);
    return text.is_object() ? text : nlohmann::json::object();
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
