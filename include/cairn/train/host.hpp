#pragma once
// This machine, as records name it: the fingerprint, from what a reboot does not change, and the conditions of a run.
// benchmarks/host.py reads the same, and says what and why; tests/checks/program.py compares the two.

#include <cairn/core/allowed_cores.hpp>
#include <cairn/core/random.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/state/manifest.hpp>
#include <cairn/train/run_directory.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace cairn {

/// 64 bits of a text as 16 hexadecimal digits, by FNV-1a (Fowler, Noll and Vo).
inline std::string hashed(std::string_view text) { return detail::hexadecimal(path_hash(text)); }

/// Now, in UTC: 2026-11-29T01:02:03Z.
inline std::string utc_time() {
    char text[32];
    const std::time_t t = std::time(nullptr);
    std::tm utc{};
    return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc))};
}

namespace detail {

inline std::string first_line(const std::filesystem::path& file) {
    std::string line;
    std::getline(std::ifstream(file) >> std::ws, line);
    return line.substr(0, line.find_last_not_of(" \t") + 1);
}

/// Of the first core, such as "L1d 32K, L2 1024K".
inline std::string caches() {
    std::string found;
    for (int index = 0; index < 10; ++index) {
        const auto folder = std::filesystem::path("/sys/devices/system/cpu/cpu0/cache") / concat("index", index);
        const std::string level = first_line(folder / "level"), kind = first_line(folder / "type"),
                          size = first_line(folder / "size");
        if (level.empty() || size.empty()) continue;
        const char* letter = kind == "Data" ? "d" : kind == "Instruction" ? "i" : "";
        found += concat(found.empty() ? "L" : ", L", level, letter, ' ', size);
    }
    return found;
}

/// Memory to four binary digits, upwards: the system keeps some of it.
inline double rounded_up(double gib) {
    if (gib <= 0) return 0;
    const double step = std::exp2(std::floor(std::log2(gib)) - 3);
    return std::ceil(gib / step) * step;
}

inline std::string relevant_instructions(const std::string& flags) {
    std::set<std::string> found;
    std::istringstream words(flags);
    for (std::string flag; words >> flag;)
        for (const char* start : {"sse4_2", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16"})
            if (flag.starts_with(start)) found.insert(flag);
    std::string text;
    for (const std::string& flag : found) text += (text.empty() ? "" : " ") + flag;
    return text;
}

inline nlohmann::json read_host_machine() {
    auto [first, processors] = perf::detail::read_cpuinfo();
    std::string cpu = first.contains("model name") ? first["model name"] : "unknown processor";
    for (const auto& [name, key] : {std::pair{"family", "cpu family"}, {"model", "model"}, {"stepping", "stepping"}})
        if (first.contains(key)) cpu += concat(' ', name, ' ', first[key]);
    double kib = 0;
    std::ifstream memory("/proc/meminfo");
    for (std::string line; kib == 0 && std::getline(memory, line);)
        if (line.starts_with("MemTotal:")) kib = std::stod(line.substr(9));
    nlohmann::json fields{{"cpu", cpu},
                          {"processors", processors},
                          {"caches", caches()},
                          {"memory_gib", rounded_up(kib / (1 << 20))},
                          {"instructions", relevant_instructions(first["flags"] + ' ' + first["Features"])}};
    fields["fingerprint"] =
        hashed(concat(cpu, "; ", processors, " processors; ", caches(), "; ", fields["memory_gib"].get<double>(),
                      " GiB; ", fields["instructions"].get<std::string>()));
    return fields;
}

}  // namespace detail

/// The fields of host.machine() in benchmarks/host.py.
inline const nlohmann::json& host_machine() {
    static const nlohmann::json fields = detail::read_host_machine();
    return fields;
}

/// The name of this node: Slurm's, else the machine's.
inline std::string node_name() {
    const char* const given = std::getenv("SLURMD_NODENAME");
    return given && *given ? given : host_name();
}

/// Cores' worth of time that control groups allow this process; null without a limit.
inline nlohmann::json quota_of_cores() {
    namespace fs = std::filesystem;
    nlohmann::json least;
    std::ifstream in("/proc/self/cgroup");
    for (std::string line; std::getline(in, line);) {  // number:controllers:group
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool unified = controllers.empty();
        if (!unified && concat(',', controllers, ',').find(",cpu,") == std::string::npos) continue;
        for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {  // and the groups around it
            const fs::path folder = fs::path("/sys/fs/cgroup") / controllers / group.relative_path();
            std::istringstream words(unified ? detail::first_line(folder / "cpu.max")
                                             : detail::first_line(folder / "cpu.cfs_quota_us") + ' ' +
                                                   detail::first_line(folder / "cpu.cfs_period_us"));
            double quota = 0, period = 0;
            if (words >> quota >> period && quota > 0 && period > 0)
                least = least.is_null() ? quota / period : std::min(least.get<double>(), quota / period);
            if (!group.has_relative_path()) break;
        }
    }
    return least;
}

/// Of these in benchmarks/host.py, those that are known at one moment.
inline nlohmann::json host_conditions() {
    double load = 0;
    nlohmann::json slurm;
    if (const char* job = std::getenv("SLURM_JOB_ID")) {
        slurm = {{"job", job}, {"restarts", 0}};
        for (const auto& [name, key] : {std::pair{"array_task", "SLURM_ARRAY_TASK_ID"},
                                        {"nodes", "SLURM_JOB_NODELIST"},
                                        {"node", "SLURMD_NODENAME"}})
            if (const char* value = std::getenv(key); value && *value) slurm[name] = value;
        if (const char* restarts = std::getenv("SLURM_RESTART_COUNT")) slurm["restarts"] = std::atoi(restarts);
    }
    return {{"load", getloadavg(&load, 1) == 1 ? nlohmann::json(load) : nlohmann::json()},
            {"quota", quota_of_cores()},
            {"affinity", read_allowed_cores().text},
            {"node", node_name()},
            {"slurm", slurm}};
}

}  // namespace cairn
