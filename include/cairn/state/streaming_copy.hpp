#pragma once
// Copies of tensors into a pool, by all kernel threads with streaming stores: these go past the cache, so that lines of
// the pool are not read before they are written, and the training's data stay cached. glibc's memcpy streams only above
// a size that tensors do not reach. Sizes and addresses are any. Tested against memcpy.

#include <cairn/core/parallel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace cairn {

/// Bytes to copy. Source and destination do not overlap.
struct memory_copy {
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
};

namespace detail {

/// One cache line of 64 bytes; `to` is a multiple of 64.
inline void stream_line(char* to, const char* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
    const auto* in = reinterpret_cast<const __m256i*>(from);
    const __m256i a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + 1, b);
#elif defined(__SSE2__)
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a), _mm_stream_si128(out + 1, b), _mm_stream_si128(out + 2, c), _mm_stream_si128(out + 3, d);
#else
    std::memcpy(to, from, 64);
#endif
}

/// Streaming stores are visible to other threads after stream_fence() alone.
inline void stream_copy(char* to, const char* from, std::size_t bytes) {
    const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
    if (bytes < head + 256) {  // a few lines are not worth it
        std::memcpy(to, from, bytes);
        return;
    }
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + 64 <= bytes; at += 64) stream_line(to + at, from + at);
    std::memcpy(to + at, from + at, bytes - at);
}

inline void stream_fence() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace detail

/// Makes all copies, which are cut at multiples of 256 KiB of their sum: many small tensors and few large ones keep all
/// threads busy alike. On a phantom rank nothing is copied.
inline void streaming_copy(std::span<const memory_copy> copies) {
    if (on_phantom_rank()) return;
    std::vector<index_t> ends;  // of each copy, in the sum
    index_t total = 0;
    for (const memory_copy& c : copies) ends.push_back(total += static_cast<index_t>(c.bytes));
    parallel_for(total, 256 << 10, [&](index_t begin, index_t end) {
        auto i = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
        for (index_t at = begin; at < end; ++i) {
            const memory_copy& c = copies[i];
            const auto skip = static_cast<std::size_t>(at - ends[i]) + c.bytes;
            const std::size_t n = std::min(c.bytes - skip, static_cast<std::size_t>(end - at));
            if (n > 0) detail::stream_copy(static_cast<char*>(c.to) + skip, static_cast<const char*>(c.from) + skip, n);
            at += static_cast<index_t>(n);
        }
        detail::stream_fence();
    });
}

}  // namespace cairn
