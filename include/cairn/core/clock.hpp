#pragma once
// Wall-clock time in seconds, monotonic, from a fixed start of the process.

#include <chrono>
#include <utility>

namespace cairn {

/// Seconds since the first call in this process.
inline double now() {
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
