#pragma once
// The processes that a run has had: launches.json, a list with when each began, where, and its seconds of training.
//   begin    of a process; one before it that was killed gets the seconds up to its last line of metrics
//   end      of a process: its seconds, its samples a second, and joules where they were counted
// The file is a figure's, not the run's: where it is damaged or missing, a warning says that its seconds are lost.

#include <cairn/train/host.hpp>
#include <cairn/train/run_directory.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

namespace cairn {

/// See the top of the file. Of rank 0.
class run_launches {
public:
    /// `logged`: seconds, of all processes, in the last line of metrics.jsonl; 0: none.
    void begin(const run_directory& directory, double logged) {
        std::ifstream in(directory.file(name));
        if (in) all_ = nlohmann::json::parse(in, nullptr, false);
        const auto fits = [](const nlohmann::json& e) {
            return e.is_object() && e.contains("seconds") && e["seconds"].is_number() &&
                   (!e.contains("joules") || e["joules"].is_number());
        };
        if (!all_.is_array() || !std::ranges::all_of(all_, fits)) {
            std::fprintf(stderr, "warning: %s is not as a run writes it: what it says of processes before is lost\n",
                         directory.file(name).c_str());
            all_ = nlohmann::json::array();
        }
        for (const nlohmann::json& e : all_) earlier_ += e["seconds"].get<double>();
        if (logged > earlier_) {  // the last one was killed, or a program without this file wrote
            if (all_.empty()) all_.push_back({{"seconds", 0.0}});
            all_.back()["seconds"] = all_.back()["seconds"].get<double>() + logged - earlier_;
            earlier_ = logged;
        }
        for (const nlohmann::json& e : all_)
            if (!e.contains("joules"))
                earlier_joules_.reset();
            else if (earlier_joules_)
                *earlier_joules_ += e["joules"].get<double>();
        all_.push_back({{"when", utc_time()}, {"node", node_name()}, {"seconds", 0.0}});
        directory.write(name, all_.dump(1) + '\n');
    }

    /// Seconds of the processes before this one.
    double earlier() const { return earlier_; }

    /// Joules of all processes: `here` and those before; nothing where one was killed, or did not count them.
    std::optional<double> joules_with(std::optional<double> here) const {
        return here && earlier_joules_ ? std::optional(*earlier_joules_ + *here) : std::nullopt;
    }

    void end(const run_directory& directory, double seconds, double samples_per_s,
             std::optional<double> joules = std::nullopt) {
        all_.back()["seconds"] = seconds;
        if (joules) all_.back()["joules"] = *joules;
        all_.back()["samples_per_s"] = samples_per_s;
        directory.write(name, all_.dump(1) + '\n');
    }

    /// One object a process: seconds; when and node, where they are known; of one that was not killed samples_per_s,
    /// and joules where they were counted.
    const nlohmann::json& all() const { return all_; }

    static constexpr const char* name = "launches.json";

private:
    nlohmann::json all_ = nlohmann::json::array();
    double earlier_ = 0;
    std::optional<double> earlier_joules_ = 0;
};

}  // namespace cairn
