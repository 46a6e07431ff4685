#pragma once
// The system calls through which files are written that must survive whatever happens. Tests put a struct in its place
// that fails, or dies, at the k-th call.

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn {

/// Each function is the call of its name; those on files close them in child processes.
struct posix_system {
    int open(const char* path, int flags) { return ::open(path, flags | O_CLOEXEC, 0666); }
    ssize_t write(int file, const void* data, std::size_t bytes) { return ::write(file, data, bytes); }
    ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t at) { return ::pwrite(file, data, bytes, at); }
    int ftruncate(int file, off_t bytes) { return ::ftruncate(file, bytes); }
    int fsync(int file) { return ::fsync(file); }
    int close(int file) { return ::close(file); }
    int rename(const char* from, const char* to) { return std::rename(from, to); }
    int link(const char* from, const char* to) { return ::link(from, to); }
    int unlink(const char* path) { return ::unlink(path); }
    int mkdir(const char* path) { return ::mkdir(path, 0777); }
    int rmdir(const char* path) { return ::rmdir(path); }
};

/// Result of call(), called again where a signal interrupts it.
template <class Call>
auto uninterrupted(Call call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

/// Puts what was created, renamed and removed in a directory on disk. Returns whether that worked; errno says why not.
template <class System>
bool sync_directory(System& system, const std::string& path) {
    const int directory = uninterrupted([&] { return system.open(path.c_str(), O_RDONLY | O_DIRECTORY); });
    const bool synced = directory >= 0 && uninterrupted([&] { return system.fsync(directory); }) == 0;
    const int reason = errno;
    if (directory >= 0) system.close(directory);
    errno = reason;
    return synced;
}

}  // namespace cairn
