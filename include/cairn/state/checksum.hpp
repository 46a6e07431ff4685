#pragma once
// CRC-32C (Castagnoli; RFC 3720, appendix B.4): finds every error burst of up to 32 bits. Eight bytes a turn with eight
// tables of 1 KiB (Kounavis & Berry 2005). Tested against the vectors of the RFC.

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

namespace detail {
inline constexpr auto crc32c_tables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k)  // the byte, followed by k zero bytes
        for (std::size_t byte = 0; byte < 256; ++byte)
            tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
    return tables;
}();
}  // namespace detail

/// CRC-32C of `bytes` bytes. To go on from an earlier piece, hand over its result.
inline std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) {
    const auto& table = detail::crc32c_tables;
    const auto* at = static_cast<const unsigned char*>(data);
    std::uint32_t crc = ~before;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        crc ^=
            std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
        crc = table[7][crc & 255] ^ table[6][(crc >> 8) & 255] ^ table[5][(crc >> 16) & 255] ^ table[4][crc >> 24] ^
              table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; bytes; --bytes) crc = (crc >> 8) ^ table[0][(crc ^ *at++) & 255];
    return ~crc;
}

}  // namespace cairn
