#pragma once
// The message of a few values at chosen positions, which topk, sampled_topk and dgc send:
//
//   | positions | k values, 4 (float) or 2 (bf16) bytes each |
//
// How positions are coded is a stage of its own:
//   packed_gaps       | k, 4 bytes | gaps in few bits, index_code.hpp |   host: lengths differ and are sent first
//   plain_positions   | k times 4 bytes |                                 devices: k gives the length, nothing waits
// Decoding reads k values and, to assign, writes n zeros first.

#include <cairn/compress/compressor.hpp>
#include <cairn/compress/index_code.hpp>
#include <cairn/device/cpu/select.hpp>

#include <vector>

namespace cairn {

struct packed_gaps {
    static constexpr bool fixed_bytes = false;

    static index_t max_bytes(index_t n, index_t k) { return 4 + index_code_max_bytes(n, k); }
    static index_t bytes(const selection<cpu>& s) {
        return 4 + (on_phantom_rank() ? index_code_expected_bytes(s.of(), s.count()) : index_code_bytes(s.positions));
    }
    /// Returns the end.
    static std::byte* write(const selection<cpu>& s, std::byte* out) {
        const auto count = static_cast<std::uint32_t>(s.size());
        std::memcpy(out, &count, 4);
        return write_index_code(s.positions, out + 4);
    }
    /// Positions below n.
    template <Device D>
    static std::vector<std::uint32_t> read(message_reader& reader, index_t n, sparse_value) {
        const index_t k = reader.number<std::uint32_t>("the number of values");
        if (k > n) reader.damaged(k, " values for a bucket of ", n);
        std::vector<std::uint32_t> positions(static_cast<std::size_t>(k));
        read_index_code(reader, n, positions);
        return positions;
    }
};

struct plain_positions {
    static constexpr bool fixed_bytes = true;

    static index_t max_bytes(index_t, index_t k) { return 4 * k; }
    template <Device D>
    static index_t bytes(const selection<D>& s) {
        return 4 * s.count();
    }
    template <Device D>
    static std::byte* write(const selection<D>& s, std::byte* out) {
        D::copy_within(out, s.positions.data(), 4 * s.count());
        return out + 4 * s.count();
    }
    /// On the host rising and below n; on other devices where they lie.
    template <Device D>
    static auto read(message_reader& reader, index_t n, sparse_value type) {
        const index_t k = reader.left() / (4 + bytes_of(type));
        const std::byte* const from = reader.take(4 * k, "positions");
        if constexpr (std::same_as<D, cpu>) {  // messages of other ranks are checked where that needs no wait
            std::vector<std::uint32_t> positions(static_cast<std::size_t>(k));
            if (k) std::memcpy(positions.data(), from, 4 * positions.size());
            for (std::size_t i = 0; i < positions.size(); ++i)
                if (positions[i] >= n || (i > 0 && positions[i] <= positions[i - 1]))
                    reader.damaged("position ", positions[i], " of ", n, " values, before it");
            return positions;
        } else {
            return std::span<const std::uint32_t>(reinterpret_cast<const std::uint32_t*>(from),
                                                  static_cast<std::size_t>(k));
        }
    }
};

/// Coding of positions on D: the host shorter, devices in a length that all ranks know.
template <Device D>
using positions_on = std::conditional_t<std::same_as<D, cpu>, packed_gaps, plain_positions>;

/// The most bytes of a message of k of n values.
template <class Positions>
index_t sparse_message_max_bytes(index_t n, index_t k, sparse_value type) {
    return Positions::max_bytes(n, k) + k * bytes_of(type);
}

template <class Positions, Device D>
void encode_sparse(const selection<D>& chosen, sparse_value type, message<D>& out) {
    const index_t k = chosen.count();
    const index_t bytes = Positions::bytes(chosen) + k * bytes_of(type);
    const kernel_call call("sparse encode", "f32", 4.0 * static_cast<double>(k),
                           8.0 * static_cast<double>(k) + static_cast<double>(bytes), {k, bytes_of(type)});
    std::byte* const to = out.prepare(bytes).data();
    if (!on_phantom_rank()) pack_values(D{}, chosen, type, Positions::write(chosen, to));
}

/// Calls put(into[p], value) for each position p of the message. `least`: bytes that it has at least. Counted as if
/// each position took a byte.
template <class Positions, Device D, class Put>
void decode_sparse(D d, std::string_view who, std::span<const std::byte> bytes, index_t least, sparse_value type,
                   std::span<float> into, Put put) {
    const double size = static_cast<double>(bytes.size()), k = size / (1.0 + static_cast<double>(bytes_of(type)));
    const kernel_call call("sparse decode", "f32", 4 * k, size + 8 * k, {static_cast<index_t>(k), bytes_of(type)});
    if (on_phantom_rank()) return;  // the message's bytes are not there
    message_reader reader(who, bytes);
    if (reader.left() < least) reader.damaged(least, " bytes expected");
    const auto positions = Positions::template read<D>(reader, static_cast<index_t>(into.size()), type);
    const std::byte* const values = reader.take(static_cast<index_t>(positions.size()) * bytes_of(type), "values");
    reader.finish();
    put_at_positions(d, positions, values, type, into, put);
}

}  // namespace cairn
