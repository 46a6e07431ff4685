#pragma once
// Writes lineage.json of a version: where it came from, and what it is. It describes (version_description.hpp); a run
// goes on without it.

#include <cairn/perf/machine.hpp>
#include <cairn/state/version.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/version_description.hpp>

#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <string>

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

/// The settings with which a version was trained. Throws where its lineage.json does not have them.
inline configuration settings_of_version(const std::filesystem::path& directory) {
    const std::string settings = read_description(directory).settings;
    require(!settings.empty(), (directory / "lineage.json").string(),
            ": missing or damaged, so the settings of this version are not known; give a workload file beside --from");
    return configuration::from_text(settings);
}

/// "parent" of a lineage: the version in `directory`, and how it was begun with: resume, branch, init.
inline nlohmann::json parent_of(const std::filesystem::path& directory, const char* how) {
    const manifest m = read_manifest(directory);
    return {{"run", directory.parent_path().parent_path().string()},
            {"version", m.version.name()},
            {"digest", detail::hexadecimal(m.digest)},
            {"how", how}};
}

}  // namespace cairn
