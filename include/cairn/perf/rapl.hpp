#pragma once
// Joules that this machine counts: RAPL ("running average power limit"), as Linux shows it under /sys/class/powercap.
//   intel-rapl:0/name "package-0"   energy_uj, microjoules since the last wrap   max_energy_range_uj, where it wraps
//   intel-rapl:0:0/name "core"      a part of package-0, counted there
// Since 2020 only root may read energy_uj; virtual machines have none. Then there is nothing to read, and it says why.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn::perf {

/// See the top of the file. Ask it more often than its counters wrap: every minute at 1 kW.
class rapl {
public:
    explicit rapl(const std::filesystem::path& folder = "/sys/class/powercap") {
        std::error_code none;
        std::vector<std::filesystem::path> domains;
        for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
            const std::string name = entry.path().filename().string();
            // "intel-rapl:0" and not "intel-rapl:0:1", its part; "intel-rapl-mmio:0" shows the same counter again
            if (name.starts_with("intel-rapl:") && std::count(name.begin(), name.end(), ':') == 1)
                domains.push_back(entry.path());
        }
        std::sort(domains.begin(), domains.end());
        // "psys" is the whole machine, and holds the packages; they are what every machine has.
        std::erase_if(domains, [](const auto& domain) { return text_in(domain / "name") == "psys"; });
        for (const auto& domain : domains) {
            const auto now = number_in(domain / "energy_uj");
            if (!now) {
                counters_.clear();
                why_not_ = domain.string() + "/energy_uj cannot be read (root may)";
                return;
            }
            counters_.push_back({domain / "energy_uj", *now, number_in(domain / "max_energy_range_uj").value_or(0)});
        }
        if (counters_.empty()) why_not_ = "no RAPL under " + folder.string();
    }

    bool measures() const { return !counters_.empty(); }
    /// Empty where it measures.
    const std::string& why_not() const { return why_not_; }

    /// Joules of all packages since it was made; nothing where the machine does not tell, or no longer does.
    std::optional<double> joules() {
        if (!measures()) return std::nullopt;
        for (counter& c : counters_) {
            const auto now = number_in(c.file);
            if (!now) {
                why_not_ = c.file.string() + " can no longer be read";
                counters_.clear();
                return std::nullopt;
            }
            microjoules_ += *now >= c.last ? *now - c.last : *now + (c.range - c.last);  // it wrapped
            c.last = *now;
        }
        return 1e-6 * static_cast<double>(microjoules_);
    }

private:
    struct counter {
        std::filesystem::path file;
        std::uint64_t last, range;  // microjoules
    };

    static std::string text_in(const std::filesystem::path& file) {
        std::string word;
        std::ifstream(file) >> word;
        return word;
    }
    static std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
        std::uint64_t number = 0;
        if (std::ifstream in(file); in >> number) return number;
        return std::nullopt;
    }

    std::vector<counter> counters_;
    std::uint64_t microjoules_ = 0;
    std::string why_not_;
};

}  // namespace cairn::perf
