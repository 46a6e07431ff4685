#pragma once
// Ctrl-C (SIGINT), SIGTERM and SIGUSR1 ask a run to stop after its step, with everything written. A second Ctrl-C ends
// the process at once; other signals do not, for launchers send several.
// Open MPI's mpirun answers Ctrl-C with SIGTERM to its ranks, and with SIGKILL a second later: what takes longer to
// save is lost, and the message says so. It hands SIGUSR1 on and waits.

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <unistd.h>

namespace cairn {

/// Catches these signals from construction on; one object a program.
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
