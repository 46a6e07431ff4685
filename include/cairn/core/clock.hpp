#pragma once
// Wall-clock time in seconds, monotonic, from a fixed start of the process; on a phantom rank its machine's.

#include <cairn/core/phantom.hpp>

#include <chrono>
#include <utility>

namespace cairn {

/// Seconds since the first call in this process, or since the machine of this phantom rank began.
inline double now() {
    if (on_phantom_rank()) return phantom_here->now();
    using clock = std::chrono::steady_clock;
    static const clock::time_point start = clock::now();
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Measures from its construction or its last restart.
class stopwatch {
public:
    double seconds() const { return now() - start_; }
    /// When it was started, on the clock of now().
    double begin() const { return start_; }
    double restart() {
        const double t = now();
        return t - std::exchange(start_, t);
    }

private:
    double start_ = now();
};

}  // namespace cairn
