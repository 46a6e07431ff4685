#pragma once
// An all-gather of floats that may be off by a share of the largest one: each piece is coded by error_bounded.hpp.

#include <cairn/comm/collectives/compressed.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/core/message_reader.hpp>
#include <cairn/core/range.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace cairn {

/// Numbers in a row that travel together, all of them exact or not.
struct gathered_piece {
    index_t count = 0;
    bool exact = false;
};

/// Collective. All-gather on the host of `parts`, one a rank, each made of its `pieces`: each piece is within `bound`
/// times its own largest value, or exact. Every rank ends with the same bits, of its own part too.
template <Communicator C>
void gather_bounded(C& c, std::span<float> data, const std::vector<range>& parts,
                    const std::vector<std::vector<gathered_piece>>& pieces, double bound, std::int64_t step) {
    // A part's message: for each piece its length in bytes, 8, and what error_bounded made of it, or its floats.
    constexpr index_t head = sizeof(std::int64_t);
    error_bounded compressor({.bound = bound});
    const encode_step at{.rank = c.rank(), .step = step};
    const auto& own = pieces[static_cast<std::size_t>(c.rank())];
    std::vector<message<>> coded(own.size());
    std::vector<std::span<const std::byte>> bodies;
    index_t begin = parts[static_cast<std::size_t>(c.rank())].begin, total = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
        const std::span<float> values = subspan(data, {begin, own[i].count});
        begin += own[i].count;
        if (!own[i].exact) compressor.encode(values, coded[i], at);
        bodies.push_back(own[i].exact ? std::as_bytes(values) : std::as_const(coded[i]).bytes());
        total += head + std::ssize(bodies.back());
    }
    tensor<std::byte> mine({total}, memory_category::communication);
    std::byte* to = mine.data();
    for (const auto body : bodies) {
        const std::int64_t length = std::ssize(body);
        cpu::copy_within(to, &length, head);
        cpu::copy_within(to + head, body.data(), length);
        to += head + length;
    }
    mailbox<> all;
    gather_messages(c, std::as_const(mine).span(), all, false);
    for (int r = 0; r < c.size(); ++r) {
        message_reader reader("kfac's traffic", all.of(r));
        begin = parts[static_cast<std::size_t>(r)].begin;
        for (const gathered_piece& p : pieces[static_cast<std::size_t>(r)]) {
            const std::span<float> values = subspan(data, {begin, p.count});
            begin += p.count;
            std::int64_t length = p.exact ? std::ssize(std::as_bytes(values)) : error_bounded::expected_bytes(p.count);
            const std::byte* const written = reader.take(head, "a piece's length");
            if (!on_phantom_rank()) std::memcpy(&length, written, head);
            const std::byte* const bytes = reader.take(length, "a piece");
            if (p.exact && length != static_cast<std::int64_t>(values.size_bytes()))
                reader.damaged("a piece of ", p.count, " floats has ", length, " bytes");
            if (p.exact)
                cpu::copy_within(values.data(), bytes, length);
            else
                compressor.decode({bytes, static_cast<std::size_t>(length)}, values, at);
        }
        reader.finish();
    }
}

}  // namespace cairn
