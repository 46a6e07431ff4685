#pragma once
// One process at a time works in a directory: the file run.lock there is locked for as long as it does, and names it.
//   flock is released by the system when the process ends, however it ends; a file that a killed one leaves is no
//   hindrance.
//   On NFS, Linux makes it a lock of the server, so that other machines see it.
// A file system without locks keeps nothing out; a warning says so.

#include <cairn/core/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn {

/// See the top of the file.
class directory_lock {
public:
    /// Throws where another process, or another object of this one, holds it, naming process and machine.
    explicit directory_lock(const std::filesystem::path& directory) : path_(directory / "run.lock") {
        do {
            release();
            file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
            require(file_ >= 0, path_.string(), " cannot be made: ", std::strerror(errno));
            if (::flock(file_, LOCK_EX | LOCK_NB) != 0) refuse_or_warn(errno);
        } while (removed());  // by the process that held it until now
        const std::string holder = concat("process ", getpid(), " on ", host());
        const bool written = ::ftruncate(file_, 0) == 0 && ::pwrite(file_, holder.data(), holder.size(), 0) > 0;
        require(written, path_.string(), " cannot be written: ", std::strerror(errno));
    }
    ~directory_lock() {
        if (file_ >= 0) ::unlink(path_.c_str());
        release();
    }
    directory_lock(const directory_lock&) = delete;
    directory_lock& operator=(const directory_lock&) = delete;

private:
    static std::string host() {
        char name[256] = {};
        return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
    }

    void refuse_or_warn(int reason) {
        if (reason == EWOULDBLOCK) {
            char holder[300] = {};
            const bool known = ::pread(file_, holder, sizeof holder - 1, 0) > 0;
            release();
            fail("run directory ", path_.parent_path().string(), " is in use by ", known ? holder : "another process",
                 "; wait until it ends, or choose another with --out");
        }
        std::fprintf(stderr, "warning: %s cannot be locked (%s): start no second run in this directory\n",
                     path_.c_str(), std::strerror(reason));
    }

    bool removed() const {
        struct stat s {};
        return ::fstat(file_, &s) == 0 && s.st_nlink == 0;
    }

    void release() {
        if (file_ >= 0) ::close(file_);
        file_ = -1;
    }

    std::filesystem::path path_;
    int file_ = -1;
};

}  // namespace cairn
