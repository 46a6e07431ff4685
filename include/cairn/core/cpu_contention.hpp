#pragma once
// Detects contention by other programs during a timing: they used processors, and the calling thread waited for one.

#include <cairn/core/clock.hpp>

#include <array>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace cairn {

/// Watches from its construction. Linux alone; elsewhere no contention is ever reported.
class cpu_contention {
public:
    /// Others used more than a quarter of a processor, and this thread waited more than a twentieth of the time.
    bool felt() const {
        const double elapsed = watch_.seconds(), others = (busy_of_all() - all_) - (busy_of_us() - us_);
        return elapsed > 0 && others > 0.25 * elapsed && waited() - waited_ > 0.05 * elapsed;
    }

private:
    // Seconds that all processors were busy with something, in ticks of 10 ms.
    static double busy_of_all() {
        std::ifstream in("/proc/stat");
        std::string name;
        std::array<double, 8> ticks{};  // user nice system idle iowait irq softirq steal
        in >> name;
        for (double& t : ticks) in >> t;
        return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }

    static double busy_of_us() {
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        const auto seconds = [](const timeval& t) {
            return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
        };
        return seconds(used.ru_utime) + seconds(used.ru_stime);
    }

    // Seconds that this thread could have run, but had no processor.
    static double waited() {
        std::ifstream in("/proc/thread-self/schedstat");
        double ran = 0, waited = 0;
        in >> ran >> waited;
        return 1e-9 * waited;
    }

    stopwatch watch_;
    double all_ = busy_of_all(), us_ = busy_of_us(), waited_ = waited();
};

}  // namespace cairn
