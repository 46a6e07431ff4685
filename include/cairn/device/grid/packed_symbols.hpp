#pragma once
// Activations packed by error bounds on a grid device (device/packed_symbols.hpp has the format): a block of threads
// has 8192 elements; warps read 32 neighbouring ones, and a thread has a group of 32 symbols, whose planes it makes.
//   non_zero_eights   bit i: x[i] is not 0; how many are not, and which of other masks say the same
//   quantise_blocks   symbols of each block's two streams, and how many bytes they will take
//   place_blocks      where each block begins: sums over the blocks before; the host waits for the total
//   write_planes      planes and escapes of each block
//   read_planes       the inverse
// Bytes a value, w of them packed: 4 + 1, then 1 + w; back w + 4.

#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/symbol_streams.hpp>

#include <array>
#include <cstdint>

namespace cairn {

namespace grid {

/// Parameters of the quantisation. `table`: for each channel its offset, steps and inverses, (5, channels); null: all
/// of one channel, `one`.
struct element_quantiser {
    std::uint32_t key, first_number;
    index_t channels = 1;
    quantiser_steps one{};
    const float* table = nullptr;

    CAIRN_HD quantiser_steps of(index_t channel) const {
        if (!table) return one;
        const float* const t = table + channel;
        return {t[0], {t[channels], t[2 * channels]}, {t[3 * channels], t[4 * channels]}};
    }
    CAIRN_HD float dither(index_t element) const {
        return dither_of(static_cast<std::uint32_t>(element) + first_number, key);
    }
};

/// Writes the table of channel c.
struct quantiser_table {
    std::array<float, 2> bounds;
    index_t channels;
    const float *mean, *deviation;
    float* table;
    CAIRN_HD void operator()(index_t c) const {
        const quantiser_steps s = quantiser_steps::of(bounds, mean[c], deviation[c]);
        const float all[5] = {s.offset, s.step[0], s.step[1], s.inverse[0], s.inverse[1]};
        for (int k = 0; k < 5; ++k) table[k * channels + c] = all[k];
    }
};

/// Where a block begins, and the escapes of its streams.
struct block_start {
    std::uint32_t at, escapes[2];
};
struct sizes_of_all {
    std::uint64_t bytes, broken;
};

/// The channels of the elements that a thread goes by in for_elements().
struct channel_walk {
    int channels, further, at;
    template <class Block>
    CAIRN_HD channel_walk(Block& b, index_t first, index_t all)
        : channels(static_cast<int>(all)),
          further(symbol_threads % channels),
          at(static_cast<int>(remainder(first + b.thread(), all))) {}
    CAIRN_HD int next() {
        const int now = at;
        at += further;
        if (at >= channels) at -= channels;
        return now;
    }
};

/// Each block's streams in the workspace between the two passes, in whole groups.
using stored_symbols = packet<std::uint32_t, 4>;
inline constexpr index_t stored_block = sizeof(shared_streams::symbols) / sizeof(stored_symbols);

struct quantise_blocks {
    index_t n;
    element_masks masks;
    element_quantiser quantiser;
    const float* x;
    stored_symbols* symbols;
    stream_sizes* sizes;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const block_layout block(b, n, masks);
        shared_streams& in = block.in;
        const int t = static_cast<int>(b.thread());
        for (int k = 0; k < 2; ++k)  // zeros behind the last
            if (const int p = block.symbols[k] + t; p < block.groups(k) * symbol_group) block.symbol(k, p) = 0;
        std::uint32_t escapes = 0, broken = 0;  // of stream 1, of stream 0 · 2^16
        channel_walk channel(b, block.first, quantiser.channels);
        block.for_elements(
            b, [&](int i) { return x[block.first + i]; },
            [&](int i, int k, int place, float v) {
                const quantiser_steps s = quantiser.of(channel.next());
                if (k < 0) return;
                const std::int32_t symbol =
                    symbol_of(v, s.offset, k ? s.step[1] : s.step[0], k ? s.inverse[1] : s.inverse[0],
                              quantiser.dither(block.first + i));
                block.symbol(k, place) = static_cast<std::uint8_t>(symbol);
                if (symbol != escape_symbol) return;
                escapes += k ? 1u : 1u << 16;
                broken += v - v != 0;
            });
        escapes = block_sum(b, escapes, in.scratch_words());  // waits for the symbols
        stream_sizes all{
            .symbols = {static_cast<std::uint32_t>(block.symbols[0]), static_cast<std::uint32_t>(block.symbols[1])},
            .bytes = {},
            .escapes = {escapes >> 16, escapes & 0xffffu},
            .broken = escapes ? block_sum(b, broken, in.scratch_words()) : 0};
        for (int k = 0; k < 2; ++k)
            if (block.symbols[k] > 0)
                all.bytes[k] = static_cast<std::uint32_t>(byte_planes::width_bytes(block.symbols[k])) +
                               4 * block_sum(b, block.width(k, t), in.scratch_words());
        if (t == 0) sizes[b.block()] = all;
        stored_symbols* const to = symbols + b.block() * stored_block;
        for (int p = t; p < 2 * (block.groups(0) + block.groups(1)); p += symbol_threads) to[p] = in.symbols[p];
    }
};

/// Where blocks begin. One block of threads.
struct place_blocks {
    index_t blocks;
    const stream_sizes* sizes;
    block_start* starts;
    sizes_of_all* all;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        auto* const scratch = b.template shared<std::uint64_t>();
        const index_t each = (blocks + b.threads() - 1) / b.threads();
        const index_t begin = b.thread() * each, end = begin + each < blocks ? begin + each : blocks;
        sizes_of_all mine{}, total{};
        for (index_t i = begin; i < end; ++i) {
            mine.bytes += bytes_of(sizes[i]);
            mine.broken += sizes[i].broken;
        }
        std::uint64_t at = sum_before(b, mine.bytes, scratch, total.bytes);
        total.broken = block_sum(b, mine.broken, scratch);
        for (index_t i = begin; i < end; ++i) {
            starts[i] = {static_cast<std::uint32_t>(at), {sizes[i].escapes[0], sizes[i].escapes[1]}};
            at += bytes_of(sizes[i]);
        }
        if (b.thread() == 0) *all = total;
    }
    CAIRN_HD static std::uint32_t bytes_of(const stream_sizes& s) {
        return s.bytes[0] + s.bytes[1] + 4 * (s.escapes[0] + s.escapes[1]);
    }
};

struct write_planes {
    index_t n;
    element_masks masks;
    const float* x;
    const stored_symbols* symbols;
    const stream_sizes* sizes;
    const block_start* starts;
    std::uint8_t* body;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const stream_sizes of = sizes[b.block()];
        const bool escapes = of.escapes[0] + of.escapes[1] > 0;
        const block_layout block =
            escapes ? block_layout(b, n, masks) : block_layout(*b.template shared<shared_streams>(), n, b.block(), of);
        shared_streams& in = block.in;
        const int g = static_cast<int>(b.thread());
        const stored_symbols* const from = symbols + b.block() * stored_block;
        for (int p = g; p < 2 * (block.groups(0) + block.groups(1)); p += symbol_threads) in.symbols[p] = from[p];
        b.sync();
        std::uint8_t* to[2];
        to[1] = body + starts[b.block()].at;
        to[0] = to[1] + of.bytes[1] + 4 * of.escapes[1];
        for (int k = 0; k < 2; ++k) {
            if (block.symbols[k] == 0) continue;
            const std::uint32_t width = block.width(k, g);
            std::uint32_t all = 0, widths = width << (4 * (g % 8));
            const std::uint32_t before = sum_before(b, width, in.scratch_words(), all);
            for (int mask = 1; mask < 8; mask *= 2) widths |= b.shuffle_xor(widths, mask);
            if (g >= block.groups(k)) continue;
            if (g % 8 == 0) reinterpret_cast<std::uint32_t*>(to[k])[g / 8] = widths;
            auto* const planes =
                reinterpret_cast<std::uint32_t*>(to[k] + byte_planes::width_bytes(block.symbols[k])) + before;
            std::uint32_t fours[8];
            CAIRN_UNROLL
            for (int q = 0; q < 8; ++q) fours[q] = block.four(k, g, q);
            for (int j = 0; j < static_cast<int>(width); ++j) {
                std::uint32_t plane = 0;
                CAIRN_UNROLL
                for (int q = 0; q < 8; ++q) plane |= byte_planes::four_bits(fours[q], j) << (4 * q);
                planes[j] = plane;
            }
        }
        if (!escapes) return;
        b.sync();
        block.count_escapes_before(b);
        block.for_elements(
            b, [](int) { return 0; },
            [&](int i, int k, int place, int) {
                if (k < 0 || block.symbol(k, place) != escape_symbol) return;
                reinterpret_cast<float*>(to[k] + of.bytes[k])[block.escape_number(k, place)] = x[block.first + i];
            });
    }
};

struct read_planes {
    index_t n;
    element_masks masks;
    element_quantiser quantiser;
    const block_start* starts;
    const std::uint8_t* body;
    float* x;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const block_layout block(b, n, masks);
        const block_start start = starts[b.block()];
        const int g = static_cast<int>(b.thread());
        const float* escapes[2] = {};
        const std::uint8_t* from = body + start.at;
        for (const int k : {1, 0}) {
            if (block.symbols[k] == 0) continue;
            const auto* const words = reinterpret_cast<const std::uint32_t*>(from);
            const std::uint32_t width = g < block.groups(k) ? words[g / 8] >> (4 * (g % 8)) & 15u : 0;
            std::uint32_t all = 0;
            const std::uint32_t before = sum_before(b, width, block.in.scratch_words(), all);
            const std::uint32_t* const planes = words + byte_planes::width_bytes(block.symbols[k]) / 4;
            std::uint32_t fours[8] = {};
            for (std::uint32_t j = 0; j < width; ++j) {
                const std::uint32_t plane = planes[before + j];
                CAIRN_UNROLL
                for (int q = 0; q < 8; ++q)
                    fours[q] |= byte_planes::four_bytes(plane >> (4 * q) & 15u, static_cast<int>(j));
            }
            if (g < block.groups(k)) {
                CAIRN_UNROLL
                for (int q = 0; q < 8; ++q) block.four(k, g, q) = fours[q];
            }
            escapes[k] = reinterpret_cast<const float*>(planes + all);
            from = reinterpret_cast<const std::uint8_t*>(escapes[k] + start.escapes[k]);
        }
        b.sync();
        if (start.escapes[0] + start.escapes[1] > 0) block.count_escapes_before(b);
        channel_walk channel(b, block.first, quantiser.channels);
        block.for_elements(
            b, [](int) { return 0; },
            [&](int i, int k, int place, int) {
                const quantiser_steps s = quantiser.of(channel.next());
                float value = 0;
                if (k >= 0) {
                    const std::int32_t symbol = block.symbol(k, place);
                    value = symbol == escape_symbol ? (k ? escapes[1] : escapes[0])[block.escape_number(k, place)]
                                                    : value_of(symbol, s.offset, k ? s.step[1] : s.step[0],
                                                               quantiser.dither(block.first + i));
                }
                x[block.first + i] = value;
            });
    }
};

/// Bits of eight elements; counts those that are not 0, and for other masks bytes that differ.
template <int Others>
struct non_zero_eights {
    index_t n;
    bool aligned;
    const float* x;
    std::uint8_t* bits;
    std::array<const std::uint8_t*, Others> others;

    CAIRN_HD void operator()(index_t p, double (&sums)[Others + 1]) const {
        const index_t at = p * packet_lanes;
        const int count = n - at < packet_lanes ? static_cast<int>(n - at) : packet_lanes;
        float v[packet_lanes];
        load_packet(x + at, aligned && count == packet_lanes, count, v);
        std::uint32_t set = 0;
        for (int j = 0; j < packet_lanes; ++j) set |= (v[j] != 0 ? 1u : 0u) << j;
        bits[p] = static_cast<std::uint8_t>(set);
        sums[0] += set_bits(set);
        for (std::size_t k = 0; k < Others; ++k)
            if (others[k] && (others[k][p] & ((1u << count) - 1u)) != set) sums[k + 1] += 1;
    }
};

}  // namespace grid

}  // namespace cairn
