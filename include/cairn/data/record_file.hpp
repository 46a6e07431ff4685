#pragma once
// Records of equal size, one behind another in a file. On a phantom rank (core/phantom.hpp) there is no file: reads and
// writes take the time of its machine's storage, and move nothing.

#include <cairn/core/error.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/core/range.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace cairn {

/// See the top of the file. May be read from many threads, and written where none reads.
class record_file {
public:
    struct config {
        std::filesystem::path path;
        storage where = storage::shared;
        index_t offset = 0;  // bytes before the first record
        index_t record = 1;  // bytes of one
        index_t count = 0;
        bool direct = false;  // reads pass the page cache by (O_DIRECT)
    };

    record_file() = default;
    /// Opens the file for reading; throws where it cannot, or where it is too short.
    explicit record_file(config c) : config_(std::move(c)) {
        if (on_phantom_rank()) return;
        open(O_RDONLY | (config_.direct ? O_DIRECT : 0));
        const auto bytes = static_cast<index_t>(std::filesystem::file_size(config_.path));
        require(bytes >= end(), config_.path.string(), ": ", bytes, " bytes; ", config_.count, " records of ",
                config_.record, " bytes behind ", config_.offset, " need ", end());
    }
    /// For writing and reading. Throws where the disk has no room for the records of `mine`.
    static record_file create(config c, range mine) {
        record_file made;
        made.config_ = std::move(c);
        if (on_phantom_rank()) {
            phantom_here->reserve_storage(made.config_.where, static_cast<double>(mine.count * made.config_.record));
            return made;
        }
        std::filesystem::create_directories(made.config_.path.parent_path());
        made.open(O_RDWR | O_CREAT);
        const int failure = mine.count == 0 ? 0
                                            : posix_fallocate(*made.file_, made.at(mine.begin),
                                                              static_cast<off_t>(mine.count * made.config_.record));
        require(failure == 0, made.config_.path.string(), ": no room for ", mine.count, " records of ",
                made.config_.record, " bytes: ", std::strerror(failure));
        return made;
    }

    const config& settings() const { return config_; }
    index_t count() const { return config_.count; }
    index_t record() const { return config_.record; }

    /// In one request. `to` has all their bytes; on a phantom rank it may be empty.
    void read(range records, std::span<std::byte> to) const {
        if (on_phantom_rank())
            return phantom_here->read_storage(config_.where, static_cast<double>(records.count * config_.record));
        if (config_.direct) return read_direct(records, to);
        whole(records, to.size(), "read", [&](std::size_t done, std::size_t left, off_t from) {
            return pread(*file_, to.data() + done, left, from);
        });
    }
    void write(range records, std::span<const std::byte> from) {
        if (on_phantom_rank())
            return phantom_here->write_storage(config_.where, static_cast<double>(records.count * config_.record));
        whole(records, from.size(), "written", [&](std::size_t done, std::size_t left, off_t to) {
            return pwrite(*file_, from.data() + done, left, to);
        });
    }

private:
    static constexpr index_t block = 4096;  // that O_DIRECT wants whole

    off_t at(index_t record) const { return static_cast<off_t>(config_.offset + record * config_.record); }
    index_t end() const { return at(config_.count); }

    void open(int flags) {
        const int file = ::open(config_.path.c_str(), flags | O_CLOEXEC, 0666);
        require(file >= 0, config_.path.string(), ": cannot be opened: ", std::strerror(errno));
        file_ = std::shared_ptr<const int>(new int(file), [](const int* f) {
            ::close(*f);
            delete f;
        });
    }

    // Calls transfer(done, left, position) until all bytes of the records are through.
    template <class Transfer>
    void whole(range records, std::size_t bytes, const char* what, Transfer&& transfer) const {
        require(static_cast<index_t>(bytes) == records.count * config_.record, config_.path.string(), ": room of ",
                bytes, " bytes for ", records.count, " records of ", config_.record);
        for (std::size_t done = 0; done < bytes;) {
            const auto moved = transfer(done, bytes - done, at(records.begin) + static_cast<off_t>(done));
            if (moved < 0 && errno == EINTR) continue;
            require(moved > 0, config_.path.string(), ": record ", records.begin, " cannot be ", what, ": ",
                    moved < 0 ? std::strerror(errno) : "the file ends before it");
            done += static_cast<std::size_t>(moved);
        }
    }

    // O_DIRECT moves whole blocks to aligned memory.
    void read_direct(range records, std::span<std::byte> to) const {
        const off_t begin = at(records.begin), end = at(records.end());
        const off_t first = begin / block * block;
        const auto bytes = static_cast<std::size_t>((end - first + block - 1) / block * block);
        const std::unique_ptr<std::byte, void (*)(void*)> room(
            static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(block), bytes)), &std::free);
        require(room != nullptr, config_.path.string(), ": no memory for ", bytes, " bytes");
        for (std::size_t done = 0; done < static_cast<std::size_t>(end - first);) {
            const auto moved = pread(*file_, room.get() + done, bytes - done, first + static_cast<off_t>(done));
            if (moved < 0 && errno == EINTR) continue;
            require(moved > 0, config_.path.string(), ": record ", records.begin,
                    " cannot be read: ", moved < 0 ? std::strerror(errno) : "the file ends before it");
            done += static_cast<std::size_t>(moved);
        }
        std::memcpy(to.data(), room.get() + (begin - first), to.size());
    }

    config config_;
    std::shared_ptr<const int> file_;
};

}  // namespace cairn
