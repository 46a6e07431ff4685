#pragma once
// What a version's lineage.json says of it, for whoever lists, names or removes versions. It may be damaged or missing,
// and then says less: never an error. train/lineage.hpp writes it.

#include <cairn/state/retention.hpp>
#include <cairn/state/version.hpp>
#include <cairn/train/record.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file; what is not said is empty.
struct version_description {
    std::optional<double> epoch, time;  // epochs trained; seconds since 1970
    std::string workload, best_by;      // best_by: the figure that "best N" goes by
    std::string parent_run, parent_version, how;
    std::map<std::string, double> metrics;
    std::string settings;  // TOML
    std::vector<std::string> tags;

    bool has_tag(const std::string& tag) const { return std::ranges::find(tags, tag) != tags.end(); }
};

/// Reads the text of a lineage.json. Values of another type than a run writes are left out.
inline version_description parse_description(std::string_view text) {
    const nlohmann::json from = nlohmann::json::parse(text, nullptr, false);
    const auto number = [](const nlohmann::json& of, const char* key) -> std::optional<double> {
        if (!of.is_object() || !of.contains(key) || !of[key].is_number()) return {};
        return of[key].get<double>();
    };
    const auto word = [](const nlohmann::json& of, const char* key) -> std::string {
        if (!of.is_object() || !of.contains(key) || !of[key].is_string()) return {};
        return of[key].get<std::string>();
    };
    version_description d;
    if (!from.is_object()) return d;
    d.epoch = number(from, "epoch"), d.time = number(from, "time");
    d.workload = word(from, "workload"), d.best_by = word(from, "best_by"), d.settings = word(from, "settings");
    if (const auto parent = from.find("parent"); parent != from.end()) {
        d.parent_run = word(*parent, "run"), d.parent_version = word(*parent, "version");
        d.how = word(*parent, "how");
    }
    if (const auto metrics = from.find("metrics"); metrics != from.end() && metrics->is_object())
        for (const auto& [figure, value] : metrics->items())
            if (value.is_number() && std::isfinite(value.get<double>())) d.metrics[figure] = value.get<double>();
    if (const auto tags = from.find("tags"); tags != from.end() && tags->is_array())
        for (const nlohmann::json& tag : *tags)
            if (tag.is_string()) d.tags.push_back(tag.get<std::string>());
    return d;
}

/// Of the version in this directory.
inline version_description read_description(const std::filesystem::path& version) {
    std::ifstream in(version / "lineage.json", std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return parse_description(text.str());
}

/// A version that is there, and its run.
struct located_version {
    std::filesystem::path run;
    stored_version version;

    std::filesystem::path states() const { return run / "states"; }
    std::string text() const { return run.string() + " " + version.name; }
};

/// The directory of a run: `text`, or that below runs/. Throws where it has no versions.
inline std::filesystem::path locate_run(const std::string& text) {
    namespace fs = std::filesystem;
    for (const fs::path& run : {fs::path(text), fs::path("runs") / text})
        if (!text.empty() && fs::is_directory(run / "states")) return run.lexically_normal();
    fail(text, ": no saved state: no run with states/ is there, nor is runs/", text);
}

/// The version that a text names: RUN, its newest; RUN@STEP; RUN@TAG; RUN@NAME; or its directory. Throws where there is
/// none, naming those that there are.
inline located_version locate_version(const std::string& text) {
    namespace fs = std::filesystem;
    fs::path directory = fs::path(text).lexically_normal();
    if (!directory.has_filename()) directory = directory.parent_path();
    if (fs::exists(directory / "manifest") ||
        (directory.parent_path().filename() == "states" && fs::is_directory(directory))) {
        const fs::path run = directory.parent_path().parent_path();
        for (stored_version& v : list_versions(directory.parent_path()))
            if (v.name == directory.filename()) return {run.empty() ? "." : run, std::move(v)};
    }
    const std::size_t at = fs::exists(text) ? std::string::npos : text.rfind('@');
    const fs::path run = locate_run(text.substr(0, at));
    std::vector<stored_version> all = list_versions(run / "states");
    require(!all.empty(), run.string(), ": no saved state: it has no version");
    if (at == std::string::npos) return {run, std::move(all.front())};
    const std::string which = text.substr(at + 1);
    for (stored_version& v : all)
        if (which == std::to_string(v.step) || which == v.name) return {run, std::move(v)};
    std::string there;
    for (stored_version& v : all) {
        const version_description d = read_description(v.directory);
        if (d.has_tag(which)) return {run, std::move(v)};
        there += concat(there.empty() ? "" : ", ", v.step);
        for (const std::string& tag : d.tags) there += " (" + tag + ")";
    }
    fail(run.string(), ": no version of step or tag ", which, "; there are steps ", there);
}

/// Whether the best of a figure, such as test_accuracy, is the largest.
inline bool best_is_largest(const std::string& figure) {
    const std::string plain = figure.starts_with("test_") ? figure.substr(5) : figure;
    return plain != "loss" && larger_is_better(plain);
}

/// Names of the versions in `states` that the rules do not keep, oldest first. `figure`: that the best have the best
/// of, "test_accuracy"; "": the one that the run itself goes by.
inline std::vector<std::string> versions_not_kept(const std::filesystem::path& states,
                                                  const std::vector<retention_rule>& rules, std::string figure = "") {
    std::vector<retained_version> known;
    std::vector<version_description> descriptions;
    for (const stored_version& v : list_versions(states)) {
        descriptions.push_back(read_description(v.directory));
        const version_description& d = descriptions.back();
        if (figure.empty()) figure = d.best_by;
        known.push_back({.name = v.name,
                         .step = v.step,
                         .epoch = d.epoch.value_or(0),
                         .tagged = !d.tags.empty(),
                         .committed = v.committed});
    }
    for (std::size_t i = 0; i < known.size(); ++i)
        if (const auto value = descriptions[i].metrics.find(figure); value != descriptions[i].metrics.end())
            known[i].metric = value->second;
    return versions_to_remove(known, rules, best_is_largest(figure) ? best_metric::largest : best_metric::smallest);
}

}  // namespace cairn
