#pragma once
// The message of a few values at chosen positions, which topk, sampled_topk and dgc send:
//
//   | k, 4 bytes | positions, index_code.hpp | k values, 4 (float) or 2 (bf16) bytes each |
//
// Decoding reads k values and, to assign, writes n zeros first.

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/index_code.hpp>

#include <vector>

namespace cairn {

/// How the values of a sparse message travel.
enum class sparse_value { float32, bfloat16 };

inline index_t bytes_of(sparse_value v) { return v == sparse_value::float32 ? 4 : 2; }

/// Bytes of a message of these positions, exactly, and the most for any k of n.
inline index_t sparse_message_bytes(std::span<const std::uint32_t> positions, sparse_value type) {
    return 4 + index_code_bytes(positions) + static_cast<index_t>(positions.size()) * bytes_of(type);
}
inline index_t sparse_message_max_bytes(index_t n, index_t k, sparse_value type) {
    return 4 + index_code_max_bytes(n, k) + k * bytes_of(type);
}

/// Writes the values at the rising positions, values[i] at positions[i].
inline void encode_sparse(std::span<const std::uint32_t> positions, std::span<const float> values, sparse_value type,
                          message& out) {
    const index_t k = static_cast<index_t>(positions.size());
    std::byte* at = out.prepare(sparse_message_bytes(positions, type)).data();
    const auto count = static_cast<std::uint32_t>(k);
    std::memcpy(at, &count, 4);
    at = write_index_code(positions, at + 4);
    if (type == sparse_value::float32) {
        if (k) std::memcpy(at, values.data(), values.size_bytes());
        return;
    }
    for (index_t i = 0; i < k; ++i) {
        const std::uint16_t h = bf16_format::nearest(values[static_cast<std::size_t>(i)]);
        std::memcpy(at + 2 * i, &h, 2);
    }
}

/// Calls put(into[p], value) for each position p of the message.
template <class Put>
void decode_sparse(std::string_view who, std::span<const std::byte> bytes, sparse_value type, std::span<float> into,
                   Put put) {
    const index_t n = static_cast<index_t>(into.size());
    message_reader reader(who, bytes);
    const index_t k = reader.number<std::uint32_t>("the number of values");
    if (k > n) reader.damaged(k, " values for a bucket of ", n);
    std::vector<std::uint32_t> positions(static_cast<std::size_t>(k));
    read_index_code(reader, n, positions);
    const std::byte* const values = reader.take(k * bytes_of(type), "values");
    reader.finish();
    for (index_t i = 0; i < k; ++i) {
        float& target = into[positions[static_cast<std::size_t>(i)]];
        if (type == sparse_value::float32) {
            float v;
            std::memcpy(&v, values + 4 * i, 4);
            put(target, v);
        } else {
            std::uint16_t h;
            std::memcpy(&h, values + 2 * i, 2);
            put(target, bf16_format::widen(h));
        }
    }
}

}  // namespace cairn
