#pragma once
// Calls a function in a child process: for libraries that run once a process (SimGrid), and for what may die.

#include <cairn/core/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace cairn {

/// The text that f() returns, made in a child process with a copy of this one's memory. Throws what f throws, as an
/// error of the same text; error naming the signal where the child died. The caller has no threads that f needs.
template <class F>
std::string in_child_process(F&& f) {
    int ends[2];
    require(pipe(ends) == 0, "a child process: no pipe: ", std::strerror(errno));
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        const int why = errno;
        close(ends[0]), close(ends[1]);
        fail("a child process: cannot fork: ", std::strerror(why));
    }
    if (child == 0) {
        close(ends[0]);
        std::string told;
        try {
            told = '+' + std::string(f());
        } catch (const std::exception& e) {
            told = concat('-', e.what());
        } catch (...) {
            told = "-an unknown exception";
        }
        std::fflush(nullptr);
        for (std::size_t at = 0; at < told.size();) {
            const ssize_t written = write(ends[1], told.data() + at, told.size() - at);
            if (written <= 0 && errno != EINTR) _exit(1);
            if (written > 0) at += static_cast<std::size_t>(written);
        }
        _exit(0);
    }
    close(ends[1]);
    std::string told;
    char part[4096];
    for (ssize_t got = 1; got > 0 || (got < 0 && errno == EINTR);) {
        got = read(ends[0], part, sizeof part);
        if (got > 0) told.append(part, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    require(WIFEXITED(status) && !told.empty(), "a child process died ",
            WIFSIGNALED(status) ? concat("by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ')')
                                : concat("with status ", WEXITSTATUS(status)));
    if (told[0] == '-') throw error(told.substr(1));
    return told.substr(1);
}

}  // namespace cairn
