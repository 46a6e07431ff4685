#pragma once
// What train --plan prints of its ranks (plan.hpp). Apart from it, so that the program that reads the command line
// compiles no kernel.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

inline std::string fixed_text(double value, int digits) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(digits) << value;
    return text.str();
}

}  // namespace detail

/// What the ranks send in a step, by needs_of_steps() of each: a line each, axis by axis. Empty for one rank.
inline std::string describe_sent(const std::vector<nlohmann::json>& of_rank) {
    if (of_rank.size() < 2) return {};
    std::string text = "MB that each rank sends in a step, by formulas";
    if (of_rank.front().at("compresses").get<bool>())
        text += "; compressed gradients are not among them, their bytes are known when they are made";
    text += ":\n";
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
        std::map<std::string, std::pair<double, std::string>> axes;  // bytes of each, and its causes
        for (const auto& [cause, sent] : of_rank[r].at("sent").items()) {
            auto& [bytes, causes] = axes[sent.at("axis").get<std::string>()];
            bytes += sent.at("bytes").get<double>();
            causes += concat(causes.empty() ? "" : ", ", cause, ' ',
                             detail::fixed_text(1e-6 * sent.at("bytes").get<double>(), 3));
        }
        text += concat("  rank ", r, ':');
        for (const auto& [axis, sent] : axes)
            text += concat(' ', axis, ' ', detail::fixed_text(1e-6 * sent.first, 3), " (", sent.second, ')');
        text += axes.empty() ? " nothing\n" : "\n";
    }
    return text;
}

/// What the ranks would hold and send, by needs_of_steps() of each, a line each, and whether each fits into `limit`
/// bytes; 0: not asked.
inline std::string describe_needs(const std::vector<nlohmann::json>& of_rank, index_t limit) {
    using detail::fixed_text;
    const auto mib = [](double bytes) { return fixed_text(bytes / (1 << 20), 1); };
    std::string text = "peak MiB of each rank, by its training steps:\n";
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
        const nlohmann::json& needs = of_rank[r];
        text += concat("  rank ", r, ": ", mib(needs.at("peak_bytes").get<double>()), " in all;");
        for (const auto& [use, bytes] : needs.at("memory").items())
            text += concat(' ', use, ' ', mib(bytes.get<double>()));
        text += concat("; ", fixed_text(1e-9 * needs.at("flops").get<double>(), 2), " GFLOP and ",
                       fixed_text(1e-9 * needs.at("bytes").get<double>(), 2), " GB of memory traffic a step\n");
    }
    text += describe_sent(of_rank);
    if (limit <= 0) return text;
    const auto worst = std::max_element(of_rank.begin(), of_rank.end(), [](const auto& a, const auto& b) {
        return a.at("peak_bytes").template get<index_t>() < b.at("peak_bytes").template get<index_t>();
    });
    const index_t most = worst->at("peak_bytes").get<index_t>();
    const auto rank = worst - of_rank.begin();
    if (most <= limit)
        return text + concat("fits: rank ", rank, " needs the most, ", mib(static_cast<double>(most)), " of ",
                             mib(static_cast<double>(limit)), " MiB\n");
    std::string largest;
    for (const auto& [use, bytes] : worst->at("memory").items())
        if (largest.empty() || bytes.get<index_t>() > worst->at("memory").at(largest).get<index_t>()) largest = use;
    return text + concat("does not fit: rank ", rank, " needs ", mib(static_cast<double>(most - limit)),
                         " MiB more than its ", mib(static_cast<double>(limit)), "; most of it are ", largest, ", ",
                         mib(worst->at("memory").at(largest).get<double>()), " MiB\n");
}

}  // namespace cairn
