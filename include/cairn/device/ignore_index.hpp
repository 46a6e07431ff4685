#pragma once
// The default of a loss's ignore_index (rows with that label are left out): a label that no row has.

#include <cstdint>
#include <limits>

namespace cairn {

inline constexpr std::int32_t nothing_ignored = std::numeric_limits<std::int32_t>::min();

}  // namespace cairn
