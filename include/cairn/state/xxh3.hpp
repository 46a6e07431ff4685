#pragma once
// XXH3, 64 bits (Collet, github.com/Cyan4973/xxHash): the checksum of packs and manifests, at the speed of memory.
// Tested against the vectors that xxHash publishes. The one place that includes xxhash.h.

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#ifndef __clang__  // GCC 12 warns of what its own vector intrinsics leave undefined (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <xxhash.h>
#pragma GCC diagnostic pop

namespace cairn {

/// XXH3 of `bytes` bytes, with seed 0.
inline std::uint64_t xxh3(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

/// XXH3 of what comes in pieces.
class xxh3_stream {
public:
    xxh3_stream() { XXH3_64bits_reset(&state_); }

    void add(const void* data, std::size_t bytes) { XXH3_64bits_update(&state_, data, bytes); }
    std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

private:
    XXH3_state_t state_;
};

}  // namespace cairn
