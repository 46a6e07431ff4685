#pragma once
// The label of rows that a loss leaves out, where none is left out.

#include <cstdint>
#include <limits>

namespace cairn {

inline constexpr std::int32_t nothing_ignored = std::numeric_limits<std::int32_t>::min();

}  // namespace cairn
