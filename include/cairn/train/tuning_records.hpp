#pragma once
// Which compressions of gradients a record allows: those whose quality was kept. A record is a file of
// benchmarks/compression_accuracy: of one workload, test accuracies of several seeds without and with each compressor.

#include <cairn/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

namespace detail {

/// "compress.kind=sign compress.two_phase=false", of a row of the record.
inline std::string settings_of_compression(const nlohmann::json& row) {
    const std::string name = row.at("compressor").get<std::string>();
    const auto comma = name.find(", ");
    std::string settings = "compress.kind=" + name.substr(0, comma);
    if (comma != std::string::npos && name.substr(comma) == ", gathered") settings += " compress.two_phase=false";
    if (row.at("error_feedback") == false) settings += " compress.error_feedback=false";
    return settings;
}

inline nlohmann::json parsed_record(const std::filesystem::path& file) {
    std::ifstream in(file);
    require(in.good(), "--records ", file.string(), ": cannot be read");
    const nlohmann::json record = nlohmann::json::parse(in, nullptr, false);
    require(!record.is_discarded(), "--records ", file.string(), ": is no JSON file");
    return record;
}

inline bool is_compression_record(const nlohmann::json& record) {
    return record.is_object() && record.contains("workload") && record.contains("rows") && record["rows"].is_array() &&
           !record["rows"].empty() && record["rows"][0].is_object() && record["rows"][0].contains("compressor");
}

}  // namespace detail

/// Settings, joined by spaces, of the compressions whose mean accuracy is at least that without one less half its 95 %
/// interval. `sets`: of the run's command line; a record that was made with other ones says nothing of it.
inline std::vector<std::string> kept_compressions(const nlohmann::json& record, const std::vector<std::string>& sets) {
    for (const auto& setting : record.value("settings", nlohmann::json::array()))
        if (std::ranges::find(sets, setting.get<std::string>()) == sets.end()) return {};
    std::optional<double> least;
    for (const auto& row : record.at("rows"))
        if (row.at("compressor") == "none" && row.at("mean").is_number())
            least = row.at("mean").get<double>() - row.at("half_interval_95").get<double>();
    std::vector<std::string> kept;
    if (!least) return kept;
    for (const auto& row : record.at("rows"))
        if (row.at("compressor") != "none" && row.at("mean").is_number() && row.at("mean").get<double>() >= *least)
            kept.push_back(detail::settings_of_compression(row));
    return kept;
}

/// Of all records of `workload` in `path`, a file or a folder of files. Throws on a file that is no such record, or one
/// of another workload.
inline std::vector<std::string> kept_compressions(const std::filesystem::path& path, const std::string& workload,
                                                  const std::vector<std::string>& sets) {
    require(std::filesystem::exists(path), "--records ", path.string(), " does not exist");
    std::vector<std::string> all;
    const auto add = [&](const nlohmann::json& record) {
        for (const std::string& settings : kept_compressions(record, sets))
            if (std::ranges::find(all, settings) == all.end()) all.push_back(settings);
    };
    if (!std::filesystem::is_directory(path)) {
        const nlohmann::json record = detail::parsed_record(path);
        require(detail::is_compression_record(record), "--records ", path.string(),
                ": not a file that benchmarks/compression_accuracy wrote");
        require(record["workload"] == workload, "--records ", path.string(), ": a record of ",
                record["workload"].get<std::string>(), ", which says nothing of the accuracy of ", workload);
        add(record);
        return all;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::ranges::sort(files);
    for (const auto& file : files)
        if (const auto record = detail::parsed_record(file);
            detail::is_compression_record(record) && record["workload"] == workload)
            add(record);
    return all;
}

}  // namespace cairn
