#pragma once
// data ← reduction over all ranks, by the algorithm that is asked for.
//   automatic   recursive doubling for small arrays, the ring for large ones

#include <cairn/comm/collectives/recursive_doubling.hpp>
#include <cairn/comm/collectives/ring.hpp>

#include <array>
#include <span>
#include <string>
#include <utility>

namespace cairn {

enum class all_reduce_algorithm { automatic, ring, recursive_doubling };

/// The names of the algorithms, in options and tables.
inline constexpr std::array all_reduce_names{
    std::pair{all_reduce_algorithm::automatic, "auto"},
    std::pair{all_reduce_algorithm::ring, "ring"},
    std::pair{all_reduce_algorithm::recursive_doubling, "recursive_doubling"},
};

inline constexpr const char* name_of(all_reduce_algorithm a) {
    for (const auto& [which, name] : all_reduce_names)
        if (which == a) return name;
    return "?";
}

/// The algorithm of that name. Throws with the names that there are.
inline all_reduce_algorithm all_reduce_named(std::string_view text) {
    std::string all;
    for (const auto& [which, name] : all_reduce_names) {
        if (text == name) return which;
        all += concat(all.empty() ? "" : ", ", name);
    }
    fail("all-reduce: there is no algorithm '", text, "'; there are ", all);
}

struct all_reduce_options {
    reduction op = reduction::sum;
    all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
};

/// In place; any count. The same bits on every rank and in every run.
template <Communicator C, class T>
void all_reduce(C& c, std::span<T> data, const all_reduce_options& o = {}) {
    using enum all_reduce_algorithm;
    if (c.size() == 1 || data.empty()) return;
    const bool small = static_cast<index>(data.size_bytes()) <= index{16} << 10;
    switch (o.algorithm == automatic ? (small ? recursive_doubling : ring) : o.algorithm) {
        case recursive_doubling:
            return recursive_doubling_all_reduce(c, data, o.op);
        default:
            return ring_all_reduce(c, data, o.op);
    }
}

}  // namespace cairn
