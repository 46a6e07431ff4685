#pragma once
// [state] of a run: when versions of its state are taken, which are kept, in how much memory they wait for the disk.

#include <cairn/state/kept_part.hpp>
#include <cairn/state/retention.hpp>
#include <cairn/state/staging.hpp>
#include <cairn/train/settings.hpp>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// A number and its unit, "55 min". Throws naming `path` on anything else.
inline std::pair<double, std::string> number_and_unit(const std::string& path, const std::string& text) {
    double number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::string unit(end, text.data() + text.size());
    unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
    require(problem == std::errc() && std::isfinite(number) && number > 0 && !unit.empty(), path, " = \"", text,
            "\": a positive number and a unit are needed, such as 10 min");
    return {number, unit};
}

/// Seconds of "90 s", "55 min", "2.5 h" or "1 d"; 0 where `unit` is none of them.
inline double seconds_of(double number, const std::string& unit) {
    for (const auto& [name, seconds] :
         {std::pair<std::string_view, double>{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}})
        if (unit == name) return number * seconds;
    return 0;
}
inline double parse_seconds(const std::string& path, const std::string& text) {
    const auto [number, unit] = number_and_unit(path, text);
    const double seconds = seconds_of(number, unit);
    require(seconds > 0, path, " = \"", text, "\": its unit is s, min, h or d");
    return seconds;
}

/// When a version is due.
struct version_interval {
    enum class counted_in { epochs, steps, seconds, cost } in = counted_in::epochs;
    double every = 1;

    /// "2 epochs", "500 steps", "10 min", or "auto": as often as loses least time (state/interval.hpp).
    static version_interval parse(const std::string& path, const std::string& text) {
        if (text == "auto") return {counted_in::cost, 0};
        const auto [number, unit] = number_and_unit(path, text);
        if (const double seconds = seconds_of(number, unit); seconds > 0) return {counted_in::seconds, seconds};
        const bool epochs = unit == "epochs" || unit == "epoch", steps = unit == "steps" || unit == "step";
        require(epochs || steps, path, " = \"", text, "\": its unit is epochs, steps, s, min, h or d");
        require(number == std::floor(number) && number < 9e15, path, " = \"", text, "\": a whole number of ", unit);
        return {epochs ? counted_in::epochs : counted_in::steps, number};
    }
    bool is_due_at_epoch(std::int64_t epoch) const { return in == counted_in::epochs && epoch % whole() == 0; }
    bool is_due_at_step(std::int64_t step) const { return in == counted_in::steps && step % whole() == 0; }
    bool is_due_after(double seconds) const { return in == counted_in::seconds && seconds >= every; }
    bool is_automatic() const { return in == counted_in::cost; }

private:
    std::int64_t whole() const { return static_cast<std::int64_t>(every); }
};

struct state_settings {
    version_interval every;
    std::string local;             // a directory of each host, with {host} and {rank}; empty: none
    version_interval local_every;  // of versions there
    std::optional<redundancy> among_hosts;
    int group = 0;        // hosts that make up for one another
    double mtbf = 86400;  // seconds from one failure to the next that needs the run's directory, on average; for "auto"
    double local_mtbf = 86400;  // the same of failures that the hosts' versions survive
    double time_limit = 0;      // seconds from the start of the process until it should have ended; 0: none
    std::vector<retention_rule> keep;
    std::uint64_t staging = staging_room::no_limit;  // bytes
};

/// Reads [state], and train.save_every (epochs), which came before it.
inline state_settings read_state_settings(configuration& s) {
    const std::int64_t epochs = s.get<std::int64_t>("train.save_every", 1, at_least(1));
    state_settings made;
    made.every = version_interval::parse("state.every",
                                         s.get("state.every", concat(epochs, epochs == 1 ? " epoch" : " epochs")));
    made.local = s.get("state.local", "");
    const std::string kind = s.choice("state.redundancy", {"none", "partner", "xor", "rs"}, "none");
    if (kind != "none") {
        require(!made.local.empty(), "state.redundancy = ", kind,
                " keeps copies on the disks of hosts: set state.local");
        made.group = s.get("state.group", 4, from_to(2, 256));
        const int parities = kind == "rs" ? s.get("state.parity", 2, from_to(1, 255)) : 1;
        made.among_hosts = kind == "partner" ? redundancy{redundancy::partner, 0}
                                             : redundancy{redundancy::parity, static_cast<std::uint32_t>(parities)};
        require_possible(*made.among_hosts, made.group);
    }
    const std::string mtbf = s.get("state.mtbf", "24h");
    made.mtbf = parse_seconds("state.mtbf", mtbf);
    if (!made.local.empty()) {
        made.local_every = version_interval::parse("state.local_every", s.get("state.local_every", "auto"));
        made.local_mtbf = parse_seconds("state.local_mtbf", s.get("state.local_mtbf", mtbf));
    }
    const std::string limit = s.get("train.time_limit", "none");
    if (limit != "none") made.time_limit = parse_seconds("train.time_limit", limit);
    made.keep = with_context("state.keep",
                             [&] { return parse_retention(s.get("state.keep", std::vector<std::string>{"last 2"})); });
    const double mb = s.get("state.staging_mb", 0.0, at_least(0));  // 0: what the state takes
    if (mb > 0) made.staging = static_cast<std::uint64_t>(mb * 1e6);
    return made;
}

}  // namespace cairn
