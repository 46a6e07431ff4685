#pragma once
// Directories of versions without packs: what the catalogue reads of them.

#include <cairn/state/version.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace cairn::test {

// Writes manifest and lineage of the version of `step` and `attempt`. Returns its name.
inline std::string make_version(const std::filesystem::path& run, std::int64_t step, std::uint64_t attempt,
                                const nlohmann::json& lineage) {
    manifest m{{step, {attempt << 16, 7}}, 1, {{"rank-0000.pack", 1000, 3}}, {}, 0};
    for (int i = 0; i < 30; ++i)
        m.tensors.push_back({concat("model/layer", i, "/weight"), element_type::float32, {64, 3, 7, 7}, attempt});
    m.digest = static_cast<std::uint64_t>(step);
    const std::filesystem::path directory = run / "states" / m.version.name();
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "manifest") << to_text(m);
    std::ofstream(directory / "lineage.json") << lineage.dump(1) << '\n';
    return m.version.name();
}

// As runs write them, with some 60 settings.
inline nlohmann::json made_lineage(const std::filesystem::path& run, std::int64_t step, double accuracy, double lr) {
    std::string settings = "name = 'made'\n[optimizer]\nlr = " + std::to_string(lr) + "\n[train]\nseed = 1\n";
    for (int i = 0; i < 57; ++i) settings += concat("setting", i, " = 'a value of it'\n");
    return {{"run", run.string()},
            {"step", step},
            {"epoch", static_cast<double>(step) / 100},
            {"time", 1795882353 + step},
            {"settings", settings},
            {"metrics", {{"test_accuracy", accuracy}, {"test_loss", 1 - accuracy}}},
            {"best_by", "test_accuracy"},
            {"workload", "made"},
            {"tags", nlohmann::json::array()}};
}

// Runs that each branch from the one before, with versions every 10 steps: 10,000 by 100 runs of 100.
inline void make_family(const std::filesystem::path& folder, int runs, int versions) {
    std::string before;
    for (int r = 0; r < runs; ++r) {
        const std::filesystem::path run = folder / concat("run", r);
        std::string middle;
        for (int v = 1; v <= versions; ++v) {
            const std::int64_t step = 10 * (r * versions / 2 + v);
            nlohmann::json text =
                made_lineage(run, step, 1 - 1.0 / static_cast<double>(step + 10 * r), 0.001 * (r + 1));
            if (r > 0)
                text["parent"] = {
                    {"run", (folder / concat("run", r - 1)).string()}, {"version", before}, {"how", "branch"}};
            const std::string name = make_version(run, step, static_cast<std::uint64_t>(r) + 1, text);
            if (v == versions / 2) middle = name;
        }
        before = middle;
    }
}

inline const char* const ancestors_of_the_best = R"(
    WITH RECURSIVE line(id) AS (
        SELECT id FROM (SELECT state AS id FROM metrics WHERE figure = 'test_accuracy' ORDER BY value DESC LIMIT 1)
        UNION SELECT parent FROM states JOIN line USING (id) WHERE parent IS NOT NULL)
    SELECT run, step FROM line JOIN states USING (id) ORDER BY step)";

}  // namespace cairn::test
