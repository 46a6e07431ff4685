#pragma once
// What the operating system says of this process.

#include <cairn/core/parallel.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include <sched.h>
#include <unistd.h>

namespace cairn {

/// Highest resident memory so far, in bytes (VmHWM); 0 where the system does not tell.
inline index_t peak_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
    return 0;
}

/// Ranks of one machine share its cores evenly: rank `local` of `ranks` there takes its part, binds itself to it where
/// a launcher bound it to fewer (mpirun binds small jobs to one core each), and uses as many kernel threads.
inline void take_share_of_cores(int local, int ranks) {
    const int cores = static_cast<int>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN)));
    const int share = std::max(1, cores / std::max(1, ranks));
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) < share) {
        CPU_ZERO(&mine);
        for (int i = 0; i < share; ++i) CPU_SET(static_cast<std::size_t>((local * share + i) % cores), &mine);
        sched_setaffinity(0, sizeof mine, &mine);  // where it is not allowed, kernels run on the cores there are
    }
    if (!std::getenv("OMP_NUM_THREADS")) set_threads(share);
}

}  // namespace cairn
