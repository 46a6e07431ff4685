#pragma once
// The all-reduce algorithms and their names.

#include <cairn/core/error.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace cairn {

enum class all_reduce_algorithm { automatic, ring, recursive_doubling, halving_doubling, tree, hierarchical, vendor };

/// The names in options, tables and files.
inline constexpr std::array all_reduce_names{
    std::pair{all_reduce_algorithm::automatic, "auto"},
    std::pair{all_reduce_algorithm::ring, "ring"},
    std::pair{all_reduce_algorithm::recursive_doubling, "recursive_doubling"},
    std::pair{all_reduce_algorithm::halving_doubling, "halving_doubling"},
    std::pair{all_reduce_algorithm::tree, "tree"},
    std::pair{all_reduce_algorithm::hierarchical, "hierarchical"},
    std::pair{all_reduce_algorithm::vendor, "native"},
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

}  // namespace cairn
