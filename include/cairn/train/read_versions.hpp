#pragma once
// Reading a version into a run, on all ranks together: all of it, or parameters and statistics that fit.

#include <cairn/comm/collectives/first_failure.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/state/saved_state.hpp>
#include <cairn/state/version.hpp>
#include <cairn/train/run_state.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file. Every function is collective.
template <Device D, class T>
class version_reader {
public:
    version_reader(run_parts<D, T>& run, run_progress& progress) : run_(run), progress_(progress) {}

    /// "" where it was loaded, else what went wrong, on all ranks alike. A file system may fail once. Throws where the
    /// run is of another model or set-up.
    std::string load_twice(const std::filesystem::path& version) {
        const std::string failure = load(version);
        return failure.empty() ? failure : load(version);
    }
    std::string load(const std::filesystem::path& from) {
        const bool is_file = from.filename() == "state.cairn";
        std::optional<saved_state> saved;
        std::string failure =
            first_failure(run_.world, [&] { saved = is_file ? saved_state::of_file(from) : open_version(from); });
        if (!failure.empty()) return failure;
        run_state<D, T> state(run_, progress_, state_use::load, is_file);
        const state_view wanted = without_thawed(*saved, state.view());
        // Another model or set-up is no damage: no version before it would fit either.
        const std::string differs = first_failure(run_.world, [&] {
            const std::string text = saved->differences(wanted);
            require(text.empty(), from.string(), ": saved by another model or set-up: ", text);
        });
        require(differs.empty(), differs);
        require_all_wanted(*saved, wanted);
        failure = first_failure(run_.world, [&] { saved->load(wanted); });
        if (failure.empty()) state.loaded();
        return failure;
    }

    /// The run begins with those parameters and statistics of a version that it has by the same path and
    /// shape. Returns what was taken and what was not, as text. Throws where nothing fits.
    std::string initialise(const std::filesystem::path& version) {
        const auto [taken, left] = take_fitting(version);
        require(!taken.empty(), version.string(), ": no parameter of this network is there with its path and shape");
        return concat("from ", version.string(), ": ", taken, left.empty() ? "" : "; not there: ", left);
    }
    /// The network gets all its parameters and statistics. Throws, naming them, where some are not there.
    void load_network(const std::filesystem::path& version) {
        const auto [taken, left] = take_fitting(version);
        require(left.empty(), version.string(), ": of another network; not there with its shape: ", left);
    }

private:
    // Names that were taken, and those of the others.
    std::pair<std::string, std::string> take_fitting(const std::filesystem::path& version) {
        std::optional<saved_state> saved;
        std::string failure = first_failure(run_.world, [&] { saved = open_version(version); });
        require(failure.empty(), failure);
        std::string taken, left;
        run_state<D, T> state(run_, progress_, state_use::load);
        const state_view fitting = fitting_part(*saved, state.view(), taken, left);
        failure = first_failure(run_.world, [&] { saved->load(fitting); });
        require(failure.empty(), failure);
        state.values_loaded();
        return {lines_of_all_ranks(taken), lines_of_all_ranks(left)};
    }
    saved_state open_version(const std::filesystem::path& version) const {
        const manifest m = run_.is_root() ? verify_version(version, false) : read_manifest(version);
        return saved_state::of_packs(version, own_packs(m));
    }

    // Parameters and statistics that are saved with the same type and shape; their names, and those of the others.
    static state_view fitting_part(const saved_state& saved, const state_view& all, std::string& taken,
                                   std::string& left) {
        state_view some;
        for (const auto& e : all.entries()) {
            if (!e.name.starts_with("model/") && !e.name.starts_with("buffers/")) continue;
            const bool fits = saved.has(e.name) && saved.fits(e);
            (fits ? taken : left) += e.name + '\n';
            if (fits) some.add(e);
        }
        return some;
    }
    // Collective: the lines of all ranks, each once, in one.
    std::string lines_of_all_ranks(const std::string& mine) {
        std::set<std::string> all;
        for (const std::string& of_rank : all_gather_text(run_.world, mine)) {
            std::istringstream lines(of_rank);
            for (std::string line; std::getline(lines, line);) all.insert(line);
        }
        std::string text;
        for (const std::string& line : all) text += (text.empty() ? "" : " ") + line;
        return text;
    }

    // Where optimizer.freeze has changed: of what was frozen then the optimizer has no state there, and begins anew.
    static state_view without_thawed(const saved_state& saved, const state_view& all) {
        const std::set<std::string> names = saved.entries();
        const auto field_is_there = [&](const std::string& name) {  // of other parameters
            const std::string field = name.substr(0, name.size() - path_of(name).size());
            const auto at = names.lower_bound(field);
            return at != names.end() && at->starts_with(field);
        };
        state_view some;
        for (const auto& e : all.entries())
            if (!e.name.starts_with("optimizer/") || names.contains(e.name) || !field_is_there(e.name)) some.add(e);
        return some;
    }
    // And of what is frozen now its state there is left out.
    bool is_of_frozen(const std::string& name) const {
        return name.starts_with("optimizer/") &&
               std::ranges::any_of(run_.model.weights->frozen(),
                                   [&](const auto& named) { return path_of(name) == named.name; });
    }
    static std::string path_of(const std::string& name) {  // of "optimizer/velocity/PATH"
        return name.substr(name.find('/', std::string_view("optimizer/").size()) + 1);
    }

    // Collective: throws where the state has tensors that no rank has room for.
    void require_all_wanted(const saved_state& saved, const state_view& view) {
        std::set<std::string> names = saved.entries(), wanted;
        for (const auto& e : view.entries()) wanted.insert(e.name);
        std::vector<double> has;
        for (const std::string& name : names) has.push_back(wanted.contains(name) || is_of_frozen(name) ? 1 : 0);
        if (run_.world.size() > 1) all_reduce(run_.world, std::span<double>(has), {.op = reduction::max});
        state_differences left(", ");
        std::size_t i = 0;
        for (const std::string& name : names)
            if (has[i++] == 0 && !name.starts_with("compression/")) left.add(name);
        require(left.none(), saved.name(), ": saved by another model or set-up: only there: ", left.text());
    }

    run_parts<D, T>& run_;
    run_progress& progress_;
};

}  // namespace cairn
