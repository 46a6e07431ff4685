#pragma once
// Properties of this process from the operating system, and signals that ask it to stop.

#include <cairn/core/parallel.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace cairn {

/// Highest resident memory so far, in bytes (VmHWM); 0 where the system does not tell.
inline index_t peak_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
    return 0;
}

/// Address space that this process has, in bytes (VmSize); 0 where the system does not tell.
inline index_t address_space_bytes() {
    index_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * sysconf(_SC_PAGESIZE);
}

/// Under `ulimit -v`: OpenBLAS requests its buffers for ever when there is no space, and the pool reserves more than it
/// needs. Tensors then come from malloc, within the space that libraries and threads leave. Call before the first
/// tensor.
inline void keep_to_address_space(int threads) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    constexpr index_t mib = index_t{1} << 20, least = 64 * mib;
    // A thread: 64 MiB of malloc, 32 MiB of OpenBLAS, its stack. The loader and others have threads besides.
    const index_t aside = 104 * mib * (threads + 4), used = address_space_bytes();
    const index_t left = static_cast<index_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 50)) - used - aside;
    require(left >= least, "the limit of address space (ulimit -v) is ", limit.rlim_cur / 1024, " KiB, and ",
            (used + aside + least) / 1024, " KiB are needed with ", threads,
            " threads; raise it (ulimit -v unlimited) or take fewer threads (--threads)");
    setenv("CAIRN_POOL", "system", 0);
    setenv("CAIRN_MEMORY_LIMIT", std::to_string(left).c_str(), 0);
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

/// Ctrl-C (SIGINT), SIGTERM and SIGUSR1 ask a run to stop after its step, with everything written. A second Ctrl-C ends
/// the process at once; other signals do not, for launchers send several.
/// Open MPI's mpirun answers Ctrl-C with SIGTERM to its ranks, and with SIGKILL a second later: what takes longer to
/// save is lost, and the message says so. It hands SIGUSR1 on and waits.
/// They are caught from construction on; one object a program.
class interrupt_guard {
public:
    /// `tells`: the first signal prints what happens now; on one rank.
    explicit interrupt_guard(bool tells = false) {
        const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
        message() = !tells      ? ""
                    : by_mpirun ? "\nstopping after this step, to save. After Ctrl-C mpirun ends all ranks within a "
                                  "second, saved or not; kill -USR1 of mpirun's process gives them time\n"
                                : "\nstopping after this step, to save; a second Ctrl-C ends at once\n";
        struct sigaction action {};
        action.sa_handler = [](int signal) {
            const int before = errno;
            if (flag() == 0) [[maybe_unused]]
                const auto told = ::write(STDERR_FILENO, message(), std::strlen(message()));
            flag() = 1;
            if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
            errno = before;
        };
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
    }

    static bool requested() { return flag() != 0; }

private:
    static volatile std::sig_atomic_t& flag() {
        static volatile std::sig_atomic_t f = 0;
        return f;
    }
    static const char*& message() {
        static const char* text = "";
        return text;
    }
};

}  // namespace cairn
