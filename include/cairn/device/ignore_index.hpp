#pragma once
// The default of a loss's ignore_index (rows with that label are left out): a label that no row has.

#include <cairn/core/host_device.hpp>

#include <cstdint>
#include <limits>

namespace cairn {

inline constexpr std::int32_t nothing_ignored = std::numeric_limits<std::int32_t>::min();

/// Whether a row with this label is left out. One of nothing_ignored, what x86 makes of NaN, is out of range.
CAIRN_HD constexpr bool is_ignored(std::int32_t label, std::int32_t ignore_index) {
    return label == ignore_index && label != nothing_ignored;
}

}  // namespace cairn
