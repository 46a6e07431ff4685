#pragma once
// A file that appears whole or not at all: what is at `path` is always the complete old or the complete new content,
// whenever the process or the machine stops.
//   write path.tmp;  fsync;  close;  rename path.tmp → path;  fsync the directory, so that the rename itself is on disk
// Each step can fail; the old file is then untouched and path.tmp is removed.

#include <cairn/core/error.hpp>
#include <cairn/core/posix_system.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace cairn {

/// Writes a new version of a file. Nothing at `path` changes before commit().
template <class System = posix_system>
class atomic_file {
public:
    /// Throws when path.tmp cannot be created. Where several processes write the file, each needs its own `suffix`.
    explicit atomic_file(const std::filesystem::path& path, System system = {}, const std::string& suffix = ".tmp")
        : path_(path), temporary_(path.string() + suffix), system_(std::move(system)) {
        open(O_WRONLY | O_CREAT | O_TRUNC);
        if (file_ < 0) fail_with("cannot be created");  // and the destructor does not run
    }

    ~atomic_file() {
        if (file_ >= 0) system_.close(file_);
        if (!renamed_) system_.unlink(temporary_.c_str());
    }
    atomic_file(const atomic_file&) = delete;
    atomic_file& operator=(const atomic_file&) = delete;

    /// Appends bytes. Throws when the disk is full or fails.
    void write(const void* data, std::size_t bytes) {
        const auto* at = static_cast<const char*>(data);
        while (bytes > 0) {
            const ssize_t done = uninterrupted(
                [&] { return system_.write(file_, at, std::min<std::size_t>(bytes, std::size_t{1} << 26)); });
            if (done <= 0) fail_with("write failed");
            at += done;
            bytes -= static_cast<std::size_t>(done);
            written_ += static_cast<std::size_t>(done);
        }
    }

    std::size_t written() const { return written_; }

    /// Puts the new content in place of the old one. When it returns, the new content is on disk.
    void commit() {
        sync();
        put_in_place();
    }

protected:
    /// For a derived class that opens and writes in another way (state/direct_file.hpp).
    struct opened_later {};
    atomic_file(opened_later, const std::filesystem::path& path, System system)
        : path_(path), temporary_(path.string() + ".tmp"), system_(std::move(system)) {}

    void open(int flags) {
        file_ = uninterrupted([&] { return system_.open(temporary_.c_str(), flags); });
    }
    void sync() {
        if (uninterrupted([&] { return system_.fsync(file_); }) != 0) fail_with("fsync failed");
    }
    void put_in_place() {
        if (system_.close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail_with("close failed");
        if (uninterrupted([&] { return system_.rename(temporary_.c_str(), path_.c_str()); }) != 0)
            fail_with("cannot be renamed to " + path_.filename().string());
        renamed_ = true;
        const std::string folder = path_.has_parent_path() ? path_.parent_path().string() : ".";
        if (!sync_directory(system_, folder))
            fail(path_.string(), ": is in place, but may not survive a power failure: fsync of ", folder, ": ",
                 std::strerror(errno));
    }
    [[noreturn]] void fail_with(const std::string& what) const {
        const int reason = errno;
        fail(temporary_, ": ", what, ", byte ", written_, ": ", std::strerror(reason), "; ", path_.filename().string(),
             " is as it was before");
    }

    std::filesystem::path path_;
    std::string temporary_;
    System system_;
    int file_ = -1;
    bool renamed_ = false;
    std::size_t written_ = 0;
};

/// Puts `text` at `path`. When it returns, that is on disk; when it throws, what was at `path` is as it was.
inline void write_atomically(const std::filesystem::path& path, const std::string& text,
                             const std::string& suffix = ".tmp") {
    atomic_file<> file(path, {}, suffix);
    file.write(text.data(), text.size());
    file.commit();
}

}  // namespace cairn
