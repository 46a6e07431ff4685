#pragma once
// System calls that fail or kill the process, for tests of what is left behind.

#include <cairn/core/posix_system.hpp>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <stdexcept>

#include <sys/wait.h>

namespace cairn::test {

// At call number *left fails with `error`, or kills the process where that is 0; `forever`: so do all calls after it.
// Removing fails where `removing_fails`. A write does half of its work before. Nothing waits for the disk: a process
// that dies loses nothing that the system has.
struct breaking_system : posix_system {
    int* left;
    int error;
    bool forever = false, removing_fails = false;

    explicit breaking_system(int* calls, int how = 0, bool always = false) : left(calls), error(how), forever(always) {}

    bool breaks() {
        --*left;
        if (forever ? *left > 0 : *left != 0) return false;
        if (error == 0) raise(SIGKILL);
        errno = error;
        return true;
    }
    int open(const char* path, int flags) { return breaks() ? -1 : posix_system::open(path, flags); }
    ssize_t write(int file, const void* data, std::size_t bytes) {
        if (*left == 1 && error != EINTR) bytes -= static_cast<std::size_t>(posix_system::write(file, data, bytes / 2));
        return breaks() ? -1 : posix_system::write(file, data, bytes);
    }
    ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t at) {
        if (*left == 1 && bytes >= 8192) posix_system::pwrite(file, data, bytes / 2 / 4096 * 4096, at);
        return breaks() ? -1 : posix_system::pwrite(file, data, bytes, at);
    }
    int ftruncate(int file, off_t bytes) { return breaks() ? -1 : posix_system::ftruncate(file, bytes); }
    int fsync(int) { return breaks() ? -1 : 0; }
    int close(int file) {
        const bool broken = breaks();
        return posix_system::close(file) + (broken ? -1 : 0);
    }
    int rename(const char* from, const char* to) { return breaks() ? -1 : posix_system::rename(from, to); }
    int link(const char* from, const char* to) { return breaks() ? -1 : posix_system::link(from, to); }
    int mkdir(const char* path) { return breaks() ? -1 : posix_system::mkdir(path); }
    int unlink(const char* path) { return breaks() && removing_fails ? -1 : posix_system::unlink(path); }
    int rmdir(const char* path) { return breaks() && removing_fails ? -1 : posix_system::rmdir(path); }
};

// Nothing waits for the disk, and writes are cut short.
struct hurried_system : posix_system {
    std::size_t most = std::size_t{1} << 40;
    ssize_t write(int file, const void* data, std::size_t bytes) {
        return posix_system::write(file, data, std::min(bytes, most));
    }
    ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t at) {
        return posix_system::pwrite(file, data, std::min(bytes, most), at);
    }
    int fsync(int) { return 0; }
};

// Runs `action` in a child process, which ends by itself or by a signal. Returns the status of waitpid.
template <class Action>
int in_child(Action action) {
    std::cout.flush();
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no child process");
    if (child == 0) {
        try {
            action();
            _exit(0);
        } catch (...) {
            _exit(1);
        }
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {}
    return status;
}

}  // namespace cairn::test
