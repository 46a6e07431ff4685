#pragma once
// Ctrl-C (SIGINT) and SIGTERM ask a run to stop after its step, with everything written. A second Ctrl-C ends the
// process at once; a second SIGTERM does not, for launchers send several.
// Open MPI's mpirun answers Ctrl-C with SIGTERM to its ranks, and SIGKILL a second later (odls_base_sigkill_timeout): what
// takes longer than that is lost, and the message says so.

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace cairn {

/// Catches SIGINT and SIGTERM from construction on; one object a program.
class interrupt_guard {
public:
    /// `tells`: prints what happens now; one rank does.
    explicit interrupt_guard(bool tells = false) {
        const char* const by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE");
        const char* const patient = std::getenv("OMPI_MCA_odls_base_sigkill_timeout");
        message() = !tells                  ? ""
                    : by_mpirun && !patient ? "\nstopping after this step, to save; mpirun ends all ranks in a second, "
                                              "saved or not (mpirun --mca odls_base_sigkill_timeout 60 waits longer)\n"
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
        sigaction(SIGINT, &action, nullptr);
        sigaction(SIGTERM, &action, nullptr);
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
