#pragma once
// Settings of a version, from its description (train/version_description.hpp), as values of JSON.

#include <cairn/train/configuration.hpp>
#include <cairn/train/version_description.hpp>

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace cairn::states {

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
