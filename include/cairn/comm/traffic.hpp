#pragma once
// What a rank sends, by cause: the label of the collective that a message belongs to ("gradients", "kfac's factors"),
// or of the scope that because() opened. perf/data_movement.hpp has the same numbers from formulas.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/sent_messages.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

using traffic = std::map<std::string, sent_messages, std::less<>>;

/// Adds to a cause.
inline void count(traffic& all, std::string_view cause, const sent_messages& more) {
    auto at = all.find(cause);
    if (at == all.end()) at = all.emplace(cause, sent_messages{}).first;
    at->second += more;
}

/// Why a message is sent inside these calls, outermost first: the first label, else the outermost collective's name.
inline std::string_view cause_of(const std::vector<collective_call>& calls) {
    for (const collective_call& call : calls)
        if (!call.label.empty()) return call.label;
    return calls.empty() ? "messages" : calls.front().name;
}

/// The mesh axis that the messages of a cause cross; "all" of those that all ranks share.
inline std::string_view axis_of(std::string_view cause) {
    const auto is = [&](auto... names) { return ((cause == names) || ...); };
    if (is("gradients", "compressed gradients", "parameters", "batch-norm statistics", "running statistics") ||
        cause.starts_with("kfac"))
        return "data";
    if (is("activations", "gradients of activations", "tied weights")) return "pipeline";
    if (is("tensor layers", "sums over slices")) return "tensor";
    if (is("halos", "parts of samples")) return "spatial";
    return "all";
}

}  // namespace cairn
