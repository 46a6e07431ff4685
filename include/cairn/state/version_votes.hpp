#pragma once
// What ranks say of versions in one number of a step's all-reduce: counts in the digits of a double, exact up to 2⁵³.
// So a version costs no message of its own: 8 bytes more in one that travels in any case.

#include <cstdint>

namespace cairn {

/// Of one rank, 0 or 1 each but for `due`, which rank 0 alone says; of the sum over the ranks, how many.
struct version_votes {
    std::int64_t due = 0;       // rank 0's clock: 1 of the hosts' disks, 2 of the run's directory, 3 of both
    std::int64_t prepared = 0;  // this rank's part of the version in flight is on disk
    std::int64_t failed = 0;    // it could not be written
    std::int64_t broken = 0;    // it holds what must not be saved: the run is to end

    static constexpr std::int64_t base = std::int64_t{1} << 17;  // more than there are ranks

    double number() const { return static_cast<double>(due + 4 * (prepared + base * (failed + base * broken))); }
    static version_votes of(double sum) {
        const auto n = static_cast<std::int64_t>(sum);
        return {n & 3, (n >> 2) % base, (n >> 19) % base, n >> 36};
    }
};

}  // namespace cairn
