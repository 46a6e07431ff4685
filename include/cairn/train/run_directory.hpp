#pragma once
// The directory that a run leaves: config.toml, metrics.jsonl, record.json, trace.json, report.html, states/.
// Whole files are replaced in one step (core/atomic_file.hpp), lines are added. One process at a time writes there.

#include <cairn/core/atomic_file.hpp>
#include <cairn/core/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn {

/// The name of this machine; "?" where the system does not tell.
inline std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

/// One process at a time works in a directory: the file run.lock there is locked for as long as it does, and names it.
/// flock is released by the system when the process ends, however it ends; a file that a killed one leaves is no
/// hindrance. On NFS, Linux makes it a lock of the server, so that other machines see it. A file system without locks
/// keeps nothing out; a warning says so.
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
        const std::string holder = concat("process ", getpid(), " on ", host_name());
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

/// Makes and fills a run's directory.
class run_directory {
public:
    /// Opens `path`, making it. Throws when it cannot be written, or another run writes there.
    explicit run_directory(std::filesystem::path path) : path_(std::move(path)) {
        std::error_code failure;
        std::filesystem::create_directories(path_, failure);
        require(!failure, "run directory ", path_.string(), " cannot be made: ", failure.message(),
                "; choose another with --out");
        require(access(path_.c_str(), W_OK) == 0, "run directory ", path_.string(),
                " is not writable; choose another with --out");
        lock_.emplace(path_);
    }

    /// Makes a new one, "runs/NAME-YYYYMMDD-HHMMSS", with a number behind it when taken.
    static std::filesystem::path fresh(const std::string& name) {
        char stamp[32];
        const std::time_t t = std::time(nullptr);
        std::tm local{};
        std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&t, &local));
        const std::filesystem::path base = std::filesystem::path("runs") / (name + '-' + stamp);
        std::filesystem::path path = base;
        std::error_code failure;
        std::filesystem::create_directories(base.parent_path(), failure);
        for (int i = 2; !std::filesystem::create_directory(path, failure) && !failure; ++i)
            path = base.string() + '-' + std::to_string(i);
        return path;  // the constructor tells what failed
    }

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path file(const std::string& name) const { return path_ / name; }

    /// Writes a whole file, which is on disk afterwards. Throws, leaving the earlier version, when the disk is full.
    void write(const std::string& name, const std::string& text) const { write_atomically(file(name), text); }

    /// Adds one line to a file. Throws when it cannot be written.
    void append(const std::string& name, const std::string& line) const {
        std::ofstream out(file(name), std::ios::app);
        out << line << '\n';
        out.close();
        require(static_cast<bool>(out), "cannot append to ", file(name).string(), ": ", std::strerror(errno));
    }

    /// Returns when the lines that were added to a file are on disk. Throws when the disk fails.
    void sync(const std::string& name) const {
        const int opened = ::open(file(name).c_str(), O_RDONLY | O_CLOEXEC);
        if (opened < 0 && errno == ENOENT) return;  // no line yet
        const bool synced = opened >= 0 && ::fsync(opened) == 0;
        const int reason = errno;
        if (opened >= 0) ::close(opened);
        require(synced, "cannot sync ", file(name).string(), ": ", std::strerror(reason));
    }

private:
    std::filesystem::path path_;
    std::optional<directory_lock> lock_;
};

}  // namespace cairn
