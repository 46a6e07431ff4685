#pragma once
// Tries every configuration, whatever its bound: what the other searches are measured against.

#include <cairn/perf/tune.hpp>

#include <vector>

namespace cairn {

inline void exhaustive_search(tuning_log& log) {
    std::vector<tuning_choice> all;
    log.space().for_each([&](const tuning_choice& c) { all.push_back(c); });
    log.try_all(all, {});
}

}  // namespace cairn
