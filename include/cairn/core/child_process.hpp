#pragma once
// Calls a function in a child process: for libraries that run once a process (SimGrid), and for what may die.

#include <cairn/core/error.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace cairn {

/// A child process died of a signal.
class child_killed : public error {
public:
    explicit child_killed(int signal)
        : error(concat("a child process died by signal ", signal, " (", strsignal(signal), ')',
                       signal == SIGKILL ? "; that is what the system does where memory runs out" : "")),
          signal_(signal) {}
    int signal() const { return signal_; }

private:
    int signal_;
};

/// A child process with a copy of this one's memory, in which f() runs. The caller has no threads that f needs: kernels
/// compute there with set_threads(1).
class child_process {
public:
    /// f() returns a text. Throws where there can be no child.
    template <class F>
    explicit child_process(F&& f) {
        int ends[2];
        require(pipe(ends) == 0, "a child process: no pipe: ", std::strerror(errno));
        std::fflush(nullptr);
        child_ = fork();
        if (child_ < 0) {
            const int why = errno;
            close(ends[0]), close(ends[1]);
            fail("a child process: cannot fork: ", std::strerror(why));
        }
        if (child_ == 0) {
            close(ends[0]);
            tell(ends[1], text_or_error(f));
        }
        close(ends[1]);
        from_ = ends[0];
    }
    child_process(child_process&& other) noexcept
        : child_(std::exchange(other.child_, -1)), from_(std::exchange(other.from_, -1)) {}
    child_process& operator=(child_process&&) = delete;
    /// Ends the child.
    ~child_process() {
        if (child_ < 0) return;
        kill(child_, SIGKILL);
        close(from_);
        wait();
    }

    /// Waits for the text. Throws what f threw, as an error of the same text; child_killed where a signal ended the
    /// child. Once.
    std::string text() {
        std::string told;
        char part[4096];
        for (ssize_t got = 1; got > 0 || (got < 0 && errno == EINTR);) {
            got = read(from_, part, sizeof part);
            if (got > 0) told.append(part, static_cast<std::size_t>(got));
        }
        close(from_);
        const int status = wait();
        if (WIFSIGNALED(status)) throw child_killed(WTERMSIG(status));
        require(!told.empty(), "a child process died with status ", WEXITSTATUS(status));
        if (told[0] == '-') throw error(told.substr(1));
        return told.substr(1);
    }

private:
    template <class F>
    static std::string text_or_error(F&& f) {
        try {
            return '+' + std::string(f());
        } catch (const std::exception& e) {
            return concat('-', e.what());
        } catch (...) {
            return "-an unknown exception";
        }
    }
    [[noreturn]] static void tell(int to, const std::string& told) {
        std::fflush(nullptr);
        for (std::size_t at = 0; at < told.size();) {
            const ssize_t written = write(to, told.data() + at, told.size() - at);
            if (written <= 0 && errno != EINTR) _exit(1);
            if (written > 0) at += static_cast<std::size_t>(written);
        }
        _exit(0);
    }
    int wait() {
        int status = 0;
        while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {}
        // Clang's OpenMP registers a process there, and takes it away in exit(), which a child that has a copy of this
        // process's objects must not call.
        std::remove(concat("/dev/shm/__KMP_REGISTERED_LIB_", child_, '_', getuid()).c_str());
        child_ = -1;
        return status;
    }

    pid_t child_ = -1;
    int from_ = -1;
};

/// The text that f() returns in a child process.
template <class F>
std::string in_child_process(F&& f) {
    return child_process(std::forward<F>(f)).text();
}

}  // namespace cairn
