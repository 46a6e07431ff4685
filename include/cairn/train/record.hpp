#pragma once
// The record of a run: record.json, the numbers of the report page, and the table at the end.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/environment.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/train/host.hpp>
#include <cairn/train/process.hpp>
#include <cairn/train/profile.hpp>
#include <cairn/train/progress.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// snprintf into a string.
template <class... Values>
std::string print(const char* format, Values... values) {
    char text[160];
    std::snprintf(text, sizeof text, format, values...);
    return text;
}

/// "r2_sigma_8" → "R² of sigma_8".
inline std::string metric_label(const std::string& figure) {
    if (figure.starts_with("ema_")) return metric_label(figure.substr(4)) + " of the mean weights";
    if (figure == "r2") return "R²";
    if (figure.starts_with("relative_l2"))
        return "relative L2" + (figure.size() > 11 ? " of " + figure.substr(12) : std::string());
    if (figure == "times_better_than_mean") return "times better than the mean";
    if (figure.starts_with("r2_")) return "R² of " + figure.substr(3);
    if (figure.starts_with("mae_")) return "mean |error| of " + figure.substr(4);
    if (figure.starts_with("rmse_")) return "RMSE of " + figure.substr(5);
    if (figure.starts_with("iou_")) return "IoU of " + figure.substr(4);
    if (figure.starts_with("surface_distance_")) return "surface distance (95 %) of " + figure.substr(17);
    if (figure.starts_with("auc_")) return "AUC of " + figure.substr(4);
    std::string label = figure;
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
}

/// Whether a larger value of a figure is a better one.
inline bool larger_is_better(const std::string& figure) {
    if (figure.starts_with("ema_")) return larger_is_better(figure.substr(4));
    return !figure.starts_with("mae_") && !figure.starts_with("rmse_") && !figure.starts_with("relative_l2") &&
           !figure.starts_with("surface_distance") && figure != "squared_error" && figure != "bits_per_token";
}

/// Whether a figure stands in the files alone, beside others that tell more at a glance.
inline bool is_detail(const std::string& figure) {
    if (figure.starts_with("ema_")) return is_detail(figure.substr(4));
    return figure.starts_with("mae_") || figure.starts_with("auc_") || figure.starts_with("iou_") ||
           figure == "balanced_accuracy";
}

inline std::string metric_value(const std::string& figure, double value) {
    return figure.ends_with("accuracy") ? print("%.2f %%", 100 * value) : print("%.4g", value);
}

/// Highest bytes so far of each category of memory that was used.
inline nlohmann::json memory_by_category(const memory_pool& pool) {
    nlohmann::json all = nlohmann::json::object();
    for (std::size_t i = 0; i < memory_category_names.size(); ++i)
        if (const index_t peak = pool.use_of(static_cast<memory_category>(i)).peak)
            all[memory_category_names[i]] = peak;
    return all;
}

/// Whether a run's record is to have the machine's ceilings: unless CAIRN_CEILINGS=0.
inline bool asked_for_ceilings() { return environment_number("CAIRN_CEILINGS", 1, 0, 1, "0 or 1") == 1; }

/// Measures the machine's peaks with products of T, which takes seconds.
template <class T>
void add_ceilings(nlohmann::json& machine) {
    machine["matrix_peak_gflops"] = perf::measured_matrix_peak<T>().gflops;
    machine["copy_gb_per_s"] = perf::measured_bandwidth();
}

/// This program's command line, as a shell takes it.
inline std::string command_line() {
    std::ifstream in("/proc/self/cmdline");
    std::string command;
    for (std::string word; std::getline(in, word, '\0');) {
        const bool plain = !word.empty() && word.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "0123456789_-+=./,:@%") == std::string::npos;
        for (auto at = word.find('\''); !plain && at != std::string::npos; at = word.find('\'', at + 4))
            word.replace(at, 1, "'\\''");
        command += (command.empty() ? "" : " ") + (plain ? word : '\'' + word + '\'');
    }
    return command;
}

/// What it was built from: PROGRAM.revision, which the build leaves beside the program; null without it.
inline nlohmann::json program_revision() {
    std::error_code none;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
    const std::string revision = detail::first_line(program.string() + ".revision");
    return revision.empty() ? nlohmann::json() : nlohmann::json(revision);
}

/// Collective. Of each rank "node:processors allowed threads peak": where it runs, on how many processors, with how
/// many threads, and its most resident bytes.
template <Communicator C>
std::vector<std::string> places_of_ranks(C& c) {
    const allowed_cores mine = read_allowed_cores();
    return all_gather_text(
        c, concat(node_name(), ':', mine.text, ' ', mine.count, ' ', threads(), ' ', peak_resident_bytes()));
}

/// Where a record comes from: benchmarks/record.py has the fields. `settings`: "optimizer.lr" → "0.001"; `places`:
/// places_of_ranks().
inline nlohmann::json origin_of_record(const std::map<std::string, std::string>& settings,
                                       const std::vector<std::string>& places) {
    std::map<std::string, std::pair<int, int>> shared;  // place → its processors, and threads of all ranks there
    nlohmann::json binding = nlohmann::json::array(), peaks = nlohmann::json::array();
    for (const std::string& text : places) {
        std::istringstream words(text);
        std::string place;
        int processors = 0, threads = 0;
        index_t peak = 0;
        words >> place >> processors >> threads >> peak;
        shared[place].first = processors, shared[place].second += threads;
        binding.push_back(place), peaks.push_back(peak);
    }
    const bool oversubscribed =
        std::ranges::any_of(shared, [](const auto& entry) { return entry.second.second > entry.second.first; });
    std::string choices;
    for (const auto& [key, entry] : autotune_cache::global().entries())
        choices += concat(key, '\t', entry.choice, '\n');
    const perf::machine_info& built = perf::this_machine();
    nlohmann::json all{
        {"schema", 1},
        {"revision", program_revision()},
        {"command", command_line()},
        {"settings", settings},
        {"machine", host_machine()},
        {"conditions", host_conditions()},
        {"libraries", {{"kernels", built.libraries}, {"compiler", built.compiler}, {"built for", built.built_for}}},
        {"kernels", hashed(choices)},
        {"threads", threads()},
        {"binding", binding},
        {"peak_bytes_by_rank", peaks},
        {"oversubscribed", oversubscribed},
        {"expires", nullptr}};
    all["settings_hash"] = hashed(all["settings"].dump());
    return all;
}

/// record.json without where it comes from, and what only the run knows (memory, batch, parameters).
inline nlohmann::json record_of(const std::string& name, const nlohmann::json& result, const metric_list& metrics,
                                const std::vector<double>& rates, const nlohmann::json& launches) {
    nlohmann::json headline = nlohmann::json::array();
    for (const auto& [figure, value] : metrics)
        if (!is_detail(figure)) headline.push_back({metric_label(figure), metric_value(figure, value)});
    headline.push_back({"samples/s", print("%.0f", result["samples_per_s"].get<double>())});
    headline.push_back({"training time", clock_text(result["seconds"].get<double>())});
    headline.push_back({"peak memory", print("%.0f MiB", result["peak_bytes"].get<double>() / (1 << 20))});

    nlohmann::json values = nlohmann::json::array();
    const auto add = [&](const std::string& key, const char* unit, bool higher, const char* kind) {
        if (!result.contains(key) || !result[key].is_number() || !std::isfinite(result[key].get<double>())) return;
        nlohmann::json raw = nlohmann::json::array();  // of each launch where it is known, else of the last
        for (const nlohmann::json& launch : launches)
            if (launch.contains(key)) raw.push_back(launch[key]);
        if (raw.empty()) raw.push_back(result[key]);
        values.push_back({{"name", key},
                          {"value", result[key]},
                          {"unit", unit},
                          {"better", higher ? "higher" : "lower"},
                          {"kind", kind},
                          {"values", raw}});
    };
    add("samples_per_s", "samples/s", true, "rate");
    add("seconds", "s", false, "time");
    add("peak_bytes", "bytes", false, "bytes");
    add("test_loss", "", false, "quality");
    for (const auto& [figure, value] : metrics) add("test_" + figure, "", larger_is_better(figure), "quality");

    nlohmann::json samples = nlohmann::json::array();  // at most 400, evenly taken
    for (std::size_t i = 0; i < rates.size(); i += rates.size() / 400 + 1) samples.push_back(rates[i]);
    return {{"benchmark", name},
            {"headline", headline},
            {"metrics", values},
            {"result", result},
            {"ranks", result["ranks"]},
            {"seeds", {result["seed"]}},
            {"when", launches.empty() ? utc_time() : launches.front().value("when", utc_time())},
            {"launches", launches},
            {"samples_per_s", samples}};
}

/// The report's further plot: confusion counts, or predicted against true values, or null.
inline nlohmann::json examples_json(const evaluation& s, const std::vector<std::string>& names) {
    if (const auto of = s.sums.find("confusion"); of != s.sums.end() && names.size() <= 30) {
        nlohmann::json rows = nlohmann::json::array();
        const auto row = static_cast<std::ptrdiff_t>(names.size());
        for (auto at = of->second.begin(); at != of->second.end(); at += row)
            rows.push_back(std::vector<std::int64_t>(at, at + row));
        return {{"kind", "confusion"}, {"names", names}, {"counts", rows}};
    }
    if (s.truth.empty()) return nullptr;
    constexpr std::size_t most = 600;
    nlohmann::json points = nlohmann::json::array();
    for (std::size_t i = 0; i < std::min(s.truth[0].size(), most); ++i) {
        nlohmann::json p = nlohmann::json::array();
        for (std::size_t k = 0; k < s.truth.size(); ++k) {
            p.push_back(s.truth[k][i]);
            p.push_back(s.predicted[k][i]);
        }
        points.push_back(std::move(p));
    }
    return {{"kind", "scatter"}, {"names", names}, {"points", points}};
}

/// The layers of a trace, a step each; with their share of the roofline if `machine` has its ceilings.
inline nlohmann::json profile_json(const std::vector<trace_event>& events, const nlohmann::json& machine) {
    nlohmann::json rows = nlohmann::json::array();
    for (const profile_row& row : profile_of(events)) {
        const double n = std::max(1, row.steps);
        nlohmann::json entry{{"layer", row.path},
                             {"forward_ms", 1e3 * row.forward_seconds / n},
                             {"backward_ms", 1e3 * row.backward_seconds / n}};
        if (machine.contains("matrix_peak_gflops")) {
            const double flops = 1e9 * machine["matrix_peak_gflops"].get<double>(),
                         bytes = 1e9 * machine["copy_gb_per_s"].get<double>();
            const auto floor_of = [&](const phase_cost& c) { return std::max(c.flops / flops, c.bytes / bytes); };
            entry["roofline"] =
                row.seconds() > 0 ? (floor_of(row.forward) + floor_of(row.backward)) / row.seconds() : 0;
        }
        rows.push_back(std::move(entry));
    }
    return rows;
}

/// The table at the end of a run.
inline void print_result(const std::string& name, const nlohmann::json& result, const metric_list& metrics,
                         bool interrupted, const std::string& report) {
    std::printf("\n%s%s\n", name.c_str(), interrupted ? " (interrupted; continue with --resume)" : "");
    const auto row = [](const std::string& label, const std::string& value) {
        std::printf("  %-32s %s\n", label.c_str(), value.c_str());
    };
    for (const auto& [figure, value] : metrics) row("test " + metric_label(figure), metric_value(figure, value));
    if (result.contains("test_loss")) row("test loss", print("%.4f", result["test_loss"].get<double>()));
    if (result.contains("train_loss")) row("training loss", print("%.4f", result["train_loss"].get<double>()));
    row("throughput", print("%.1f samples/s (median)", result["samples_per_s"].get<double>()));
    row("time", clock_text(result["seconds"].get<double>()));
    row("peak memory", print("%.1f MiB", result["peak_bytes"].get<double>() / (1 << 20)));
    row("energy of the processors",
        result.contains("joules")
            ? print("%.4g kJ, ", 1e-3 * result["joules"].get<double>()) + result["joules_are"].get<std::string>()
            : result["joules_are"].get<std::string>());
    row("waited for data", print("%.2f %%", 100 * result["stall_fraction"].get<double>()));
    row("report", report);
    std::fflush(stdout);
}

}  // namespace cairn
