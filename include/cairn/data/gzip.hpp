#pragma once
// Decompression of gzip and raw deflate streams (RFC 1951, 1952) by zlib. The only file that includes zlib.

#include <cairn/data/bytes.hpp>

#include <algorithm>
#include <limits>

#if !defined(CAIRN_HAS_ZLIB) && __has_include(<zlib.h>)
#define CAIRN_HAS_ZLIB 1
#endif
#if CAIRN_HAS_ZLIB
#include <zlib.h>
#endif

namespace cairn {

/// Whether the bytes start like a gzip file.
inline bool is_gzip(byte_span bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

#if CAIRN_HAS_ZLIB

namespace detail {

// window_bits selects the container: 15 + 16 gzip, -15 raw deflate.
inline std::vector<std::uint8_t> inflate_all(byte_span packed, int window_bits, std::size_t limit,
                                             const std::string& name) {
    struct stream : z_stream {
        stream() : z_stream{} {}
        ~stream() { inflateEnd(this); }
    } z;
    require(inflateInit2(&z, window_bits) == Z_OK, name, ": zlib cannot start: out of memory?");
    std::vector<std::uint8_t> out;
    constexpr std::size_t step = std::size_t{1} << 20;  // both limits below 2^32, which zlib counts in
    std::size_t fed = 0, made = 0;
    for (;;) {
        if (z.avail_in == 0 && fed < packed.size()) {
            const std::size_t n = std::min(step, packed.size() - fed);
            z.next_in = const_cast<Bytef*>(packed.data() + fed);
            z.avail_in = static_cast<uInt>(n);
            fed += n;
        }
        if (made == out.size())
            out.resize(std::min(
                std::max(out.size() + std::min(out.size(), step * 64), std::min(step, packed.size() * 4)), limit + 1));
        const std::size_t room = std::min(out.size() - made, step);
        z.next_out = out.data() + made;
        z.avail_out = static_cast<uInt>(room);
        const int result = inflate(&z, Z_NO_FLUSH);
        made += room - z.avail_out;
        const std::size_t at = fed - z.avail_in;
        require(made <= limit, name, ": unpacks to more than ", limit,
                " bytes: corrupt, or not the file that it should be");
        if (result == Z_STREAM_END) {
            // A gzip file may have several members, one after the other.
            if (window_bits > 15 && is_gzip(packed.subspan(at))) {
                require(inflateReset(&z) == Z_OK, name, ": zlib cannot restart");
                continue;
            }
            break;
        }
        require(result != Z_BUF_ERROR || z.avail_in > 0 || fed < packed.size() || z.avail_out == 0, name,
                ": truncated: compressed data end at byte ", packed.size(), " after ", made, " unpacked bytes");
        require(result == Z_OK || result == Z_BUF_ERROR, name, ": corrupt compressed data near byte ", at, ": ",
                z.msg ? z.msg : "zlib error", " (", result, ")");
    }
    out.resize(made);
    return out;
}

}  // namespace detail

/// Unpacks a gzip file held in memory. Throws on corrupt or truncated data, a wrong checksum, or more than `limit`
/// bytes.
inline std::vector<std::uint8_t> gunzip(byte_span packed, const std::string& name,
                                        std::size_t limit = half_of_memory()) {
    require(is_gzip(packed), name, ": byte 0: not a gzip file (magic 1f 8b expected)");
    return detail::inflate_all(packed, 15 + 16, limit, name);
}

/// Unpacks a raw deflate stream of known unpacked size. Throws likewise, and when the size differs.
inline std::vector<std::uint8_t> inflate_raw(byte_span packed, std::size_t size, const std::string& name) {
    auto out = detail::inflate_all(packed, -15, size, name);
    require(out.size() == size, name, ": unpacks to ", out.size(), " bytes, ", size, " were announced");
    return out;
}

/// CRC-32 of the bytes (of zip archives).
inline std::uint32_t crc32_of(byte_span bytes) {
    uLong crc = ::crc32(0, nullptr, 0);
    while (!bytes.empty()) {
        const std::size_t n = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
        crc = ::crc32(crc, bytes.data(), static_cast<uInt>(n));
        bytes = bytes.subspan(n);
    }
    return static_cast<std::uint32_t>(crc);
}

#else

inline std::vector<std::uint8_t> gunzip(byte_span, const std::string& name, std::size_t = 0) {
    fail(name, ": Cairn was built without zlib; unpack the file (gzip -d), or install zlib1g-dev and build again");
}
inline std::vector<std::uint8_t> inflate_raw(byte_span, std::size_t, const std::string& name) {
    fail(name,
         ": Cairn was built without zlib; save it uncompressed (numpy.savez), or install zlib1g-dev and build again");
}
inline std::uint32_t crc32_of(byte_span bytes) {
    std::uint32_t crc = 0xffffffff;  // bit by bit, polynomial 0xedb88320
    for (std::uint8_t byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

#endif

/// All bytes of a file; unpacked if it is a gzip file, whatever its name.
inline std::vector<std::uint8_t> read_maybe_gzip(const std::filesystem::path& path) {
    auto bytes = read_bytes(path);
    return is_gzip(bytes) ? gunzip(bytes, path.string()) : bytes;
}

}  // namespace cairn
