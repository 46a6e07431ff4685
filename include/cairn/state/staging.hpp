#pragma once
// Room in which copies of a state wait for the disk. It is touched once and kept: pages that are new cost five times
// the copy. The memory pool counts it under a category of its own, within the rank's limit.

#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/state/direct_file.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace cairn {

/// See the top of the file. It takes its memory from the pool of the thread that asks first.
class staging_room {
public:
    static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

    /// At most `most` bytes.
    explicit staging_room(std::uint64_t most = no_limit) : most_(most) {}
    ~staging_room() { release(); }
    staging_room(const staging_room&) = delete;
    staging_room& operator=(const staging_room&) = delete;

    /// Room for `bytes`, at a multiple of direct_block and up to the next one; what was there is lost where it grows.
    /// Throws where that is over the limit, or the memory is not there, saying how much is missing.
    std::byte* of(std::uint64_t bytes) {
        require(bytes <= most_, "state.staging_mb allows ", static_cast<double>(most_) / 1e6,
                " MB for copies of the state, but this rank's part is of ", static_cast<double>(bytes) / 1e6,
                " MB: ", static_cast<double>(bytes - most_) / 1e6, " MB are missing");
        const auto wanted = static_cast<index_t>((bytes + 2 * direct_block - 1) / direct_block * direct_block);
        if (wanted > bytes_) {
            release();
            pool_ = &memory_pool::host();
            block_ = pool_->allocate(wanted, memory_category::staging);
            bytes_ = wanted;
            touch();
        }
        const auto at = reinterpret_cast<std::uintptr_t>(block_);
        return static_cast<std::byte*>(block_) + (direct_block - at % direct_block) % direct_block;
    }

private:
    void release() {
        if (block_) pool_->release(block_, bytes_, memory_category::staging);
        block_ = nullptr;
        bytes_ = 0;
    }
    void touch() {
        if (on_phantom_rank()) return;
        for (index_t at = 0; at < bytes_; at += static_cast<index_t>(direct_block))
            static_cast<volatile char*>(block_)[at] = 0;
    }

    std::uint64_t most_;
    memory_pool* pool_ = nullptr;
    void* block_ = nullptr;
    index_t bytes_ = 0;
};

}  // namespace cairn
