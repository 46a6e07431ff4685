#pragma once
// What a version's lineage.json says of it. It may be damaged or missing, and then says less: never an error.

#include <cairn/train/configuration.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace cairn::states {

/// See the top of the file; what is not said is empty.
struct description {
    std::optional<double> epoch, time;  // epochs trained; seconds since 1970
    std::string workload, best_by;
    std::string parent_run, parent_version, how;
    std::map<std::string, double> metrics;
    std::string settings;  // TOML
    std::vector<std::string> tags;
};

/// Reads the text of a lineage.json. Values of another type than a run writes are left out.
inline description parse_description(std::string_view text) {
    const nlohmann::json from = nlohmann::json::parse(text, nullptr, false);
    const auto number = [](const nlohmann::json& of, const char* key) -> std::optional<double> {
        if (!of.is_object() || !of.contains(key) || !of[key].is_number()) return {};
        return of[key].get<double>();
    };
    const auto word = [](const nlohmann::json& of, const char* key) -> std::string {
        if (!of.is_object() || !of.contains(key) || !of[key].is_string()) return {};
        return of[key].get<std::string>();
    };
    description d;
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

inline description read_description(const std::filesystem::path& version) {
    std::ifstream in(version / "lineage.json", std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return parse_description(text.str());
}

/// A setting as a value of JSON; arrays as their TOML.
inline nlohmann::json json_of(const setting& s) {
    if (const auto* b = std::get_if<bool>(&s.value)) return *b ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&s.value)) return *whole;
    if (const auto* number = std::get_if<double>(&s.value)) return *number;
    if (const auto* text = std::get_if<std::string>(&s.value)) return *text;
    return cairn::detail::to_toml(s);
}

/// Settings by path, from the TOML of a description; none where it is damaged.
inline std::map<std::string, nlohmann::json> settings_of(const std::string& toml) {
    std::map<std::string, nlohmann::json> all;
    try {
        const configuration c = configuration::from_text(toml);
        for (const auto& [path, value] : c.all()) all[path] = json_of(value);
    } catch (const error&) {
        all.clear();
    }
    return all;
}

}  // namespace cairn::states
