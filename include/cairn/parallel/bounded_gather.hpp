#pragma once
// An all-gather of floats that may be off by a share of the largest one: each piece is coded by error_bounded.hpp.

#include <cairn/comm/collectives/compressed.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/core/message_reader.hpp>
#include <cairn/core/range.hpp>

#include <array>
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
    error_bounded compressor({.bound = bound});
    std::vector<std::byte> mine;
    message<> out;
    const encode_step at{.rank = c.rank(), .step = step};
    index_t begin = parts[static_cast<std::size_t>(c.rank())].begin;
    for (const gathered_piece& p : pieces[static_cast<std::size_t>(c.rank())]) {
        const std::span<float> values = subspan(data, {begin, p.count});
        begin += p.count;
        std::span<const std::byte> bytes = std::as_bytes(values);
        if (!p.exact) {
            compressor.encode(values, out, at);
            bytes = std::as_const(out).bytes();
        }
        const std::array<std::int64_t, 1> length{static_cast<std::int64_t>(bytes.size())};
        const auto header = std::as_bytes(std::span(length));
        mine.insert(mine.end(), header.begin(), header.end());
        mine.insert(mine.end(), bytes.begin(), bytes.end());
    }
    mailbox<> all;
    gather_messages(c, std::span<const std::byte>(mine), all, false);
    for (int r = 0; r < c.size(); ++r) {
        message_reader reader("kfac's traffic", all.of(r));
        begin = parts[static_cast<std::size_t>(r)].begin;
        for (const gathered_piece& p : pieces[static_cast<std::size_t>(r)]) {
            const std::span<float> values = subspan(data, {begin, p.count});
            begin += p.count;
            const auto length = reader.template number<std::int64_t>("a piece's length");
            const std::byte* const bytes = reader.take(length, "a piece");
            if (p.exact && length != static_cast<std::int64_t>(values.size_bytes()))
                reader.damaged("a piece of ", p.count, " floats has ", length, " bytes");
            if (p.exact)
                std::memcpy(values.data(), bytes, values.size_bytes());
            else
                compressor.decode({bytes, static_cast<std::size_t>(length)}, values, at);
        }
        reader.finish();
    }
}

}  // namespace cairn
