#pragma once
// What a VERSION on the command line names: RUN, its newest; RUN@STEP; RUN@TAG; or the version's directory. A RUN that
// is not there is looked for in runs/.

#include "states/description.hpp"

#include <cairn/state/version.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace cairn::states {

/// A version that is there, and its run.
struct located {
    std::filesystem::path run;
    stored_version version;

    std::filesystem::path states() const { return run / "states"; }
    std::string text() const { return run.string() + " " + version.name; }
};

/// The directory of a run. Throws where it has no versions.
inline std::filesystem::path locate_run(const std::string& text) {
    namespace fs = std::filesystem;
    for (const fs::path& run : {fs::path(text), fs::path("runs") / text})
        if (!text.empty() && fs::is_directory(run / "states")) return run.lexically_normal();
    fail(text, ": no run with saved states, nor is runs/", text);
}

/// See the top of the file. Throws where there is none, naming those that there are.
inline located locate(const std::string& text) {
    namespace fs = std::filesystem;
    fs::path directory = fs::path(text).lexically_normal();
    if (!directory.has_filename()) directory = directory.parent_path();
    if (directory.parent_path().filename() == "states" && fs::is_directory(directory)) {
        const fs::path run = directory.parent_path().parent_path();
        for (stored_version& v : list_versions(directory.parent_path()))
            if (v.name == directory.filename()) return {run.empty() ? "." : run, std::move(v)};
    }
    const std::size_t at = fs::exists(text) ? std::string::npos : text.rfind('@');
    const fs::path run = locate_run(text.substr(0, at));
    std::vector<stored_version> all = list_versions(run / "states");
    require(!all.empty(), run.string(), ": has no version of its state");
    if (at == std::string::npos) return {run, std::move(all.front())};
    const std::string which = text.substr(at + 1);
    for (stored_version& v : all)
        if (which == std::to_string(v.step) || which == v.name) return {run, std::move(v)};
    std::string there;
    for (stored_version& v : all) {
        const std::vector<std::string> tags = read_description(v.directory).tags;
        if (std::find(tags.begin(), tags.end(), which) != tags.end()) return {run, std::move(v)};
        there += concat(there.empty() ? "" : ", ", v.step);
        for (const std::string& tag : tags) there += " (" + tag + ")";
    }
    fail(run.string(), ": no version of step or tag ", which, "; there are the steps ", there);
}

}  // namespace cairn::states
