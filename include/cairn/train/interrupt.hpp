#pragma once
// Ctrl-C and SIGTERM ask a run to stop at the next step, with everything written. A second signal ends the process at
// once.

#include <csignal>

namespace cairn {

/// Catches SIGINT and SIGTERM from construction on; one object a program.
class interrupt_guard {
public:
    interrupt_guard() {
        struct sigaction action {};
        action.sa_handler = [](int) {
            flag() = 1;
            std::signal(SIGINT, SIG_DFL);
            std::signal(SIGTERM, SIG_DFL);
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
};

}  // namespace cairn
