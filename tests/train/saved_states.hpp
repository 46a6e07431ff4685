#pragma once
// States that runs have left.

#include <cairn/state/saved_state.hpp>
#include <cairn/state/state_file.hpp>
#include <cairn/state/version.hpp>

#include <deque>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace cairn::test {

inline bool has_state(const std::filesystem::path& run) { return !list_versions(run / "states").empty(); }
inline std::filesystem::path newest_version(const std::filesystem::path& run) {
    return list_versions(run / "states").at(0).directory;
}
/// Names of all tensors, numbers and texts in it.
inline std::set<std::string> newest_entries(const std::filesystem::path& run) {
    std::set<std::string> names;
    for (const auto& t : read_manifest(newest_version(run)).tensors) names.insert(t.name);
    return names;
}

/// Puts in place of the versions of a run on one rank what runs left before there were versions: state.cairn with whole
/// tensors, without the entries called `without`.
inline void make_file_of_newest(const std::filesystem::path& run, const std::set<std::string>& without = {}) {
    std::deque<tensor<float>> tensors;
    std::deque<tensor<double>> rows;
    std::deque<std::int64_t> counts;
    std::deque<double> numbers;
    std::deque<std::string> texts;
    state_view all, rest;
    const std::filesystem::path version = newest_version(run);
    const manifest m = read_manifest(version);
    for (const auto& t : m.tensors) {
        const bool kept = !without.contains(t.name) && !t.name.starts_with("progress/");
        const auto add = [&](auto& place) {
            all.add(t.name, place);
            if (kept) rest.add(t.name, place);
        };
        if (t.name.starts_with("buffers/")) {  // one row
            const tensor<float>& row = tensors.emplace_back(t.extents);
            all.add(t.name, row);
            if (kept) rest.add(t.name, row.slice(0, shape(std::span(t.extents.begin() + 1, t.extents.end()))));
        } else if (t.type == element_type::float32) {
            add(tensors.emplace_back(t.extents));
        } else if (t.type == element_type::int64) {
            add(counts.emplace_back());
        } else if (t.type == element_type::text) {
            add(texts.emplace_back());
        } else if (t.extents.rank() > 0) {
            add(rows.emplace_back(t.extents));
        } else {
            add(numbers.emplace_back());
        }
    }
    saved_state::of_packs(version, own_packs(m)).load(all);
    save_state(run / "state.cairn", rest);
    std::filesystem::remove_all(run / "states");
}

}  // namespace cairn::test
