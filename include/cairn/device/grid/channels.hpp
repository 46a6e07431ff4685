#pragma once
// Passes over a channels-last matrix (rows, channels) in packets of eight neighbouring elements, and sums down its
// columns: what normalisation is made of. Where the channels are a multiple of eight, a thread keeps to its eight
// channels and has their coefficients in registers; else it fetches them for each packet. Data are T, coefficients and
// arithmetic S: float, or double for double.

#include <cairn/device/grid/column_sums.hpp>
#include <cairn/device/grid/for_each.hpp>

#include <cstdint>

namespace cairn::grid {

inline constexpr int packet_lanes = 8;

/// slope v, and 0 for the slope 0 of relu, whatever v: as the host's masks, which know no 0 · ∞ and no -0.
template <class S>
CAIRN_HD inline S leaked(S slope, S v) {
    return slope == 0 ? S{} : slope * v;
}

/// Whether all addresses, null included, may be read in packets of eight.
template <class... T>
bool packets_fit(const T*... arrays) {
    return ((reinterpret_cast<std::uintptr_t>(arrays) % (packet_lanes * sizeof(T)) == 0) && ...);
}

/// f(lane_count<8>) where rows of n elements fall into packets, else f(lane_count<1>). `aligned`: packets_fit() of what
/// f goes over.
template <int Lanes>
using lane_count = std::integral_constant<int, Lanes>;
template <class F>
void in_lanes(index_t n, bool aligned, F&& f) {
    if (aligned && n % packet_lanes == 0)
        f(lane_count<packet_lanes>{});
    else
        f(lane_count<1>{});
}

/// Packets of each of `arrays` arrays that a thread loads before it uses the first: 64 bytes on their way. Registers of
/// coefficients leave room for so few threads that memory would be idle while each waits for one packet.
template <class T>
constexpr int packets_ahead(int arrays) {
    return std::max(1, static_cast<int>(64 / (packet_lanes * sizeof(T))) / arrays);
}

/// v = the first `count` elements at `from`, zeros behind them. `whole`: eight at once.
template <class T>
CAIRN_HD inline void load_packet(const T* from, bool whole, int count, T (&v)[packet_lanes]) {
    if (whole) {
        const auto p = *reinterpret_cast<const packet<T, packet_lanes>*>(from);
        for (int j = 0; j < packet_lanes; ++j) v[j] = p.v[j];
    } else {
        for (int j = 0; j < packet_lanes; ++j) v[j] = j < count ? from[j] : T{};
    }
}

/// v = the eight numbers at `from`, in pieces of 16 bytes where it is a multiple of that. Threads side by side read
/// neighbouring eights: one by one, each number of a warp would lie in a sector of its own.
template <class S>
CAIRN_HD inline void load_eight(const S* from, S (&v)[packet_lanes]) {
    constexpr int each = 16 / sizeof(S);
    if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
        for (int k = 0; k < packet_lanes / each; ++k) {
            const auto p = reinterpret_cast<const packet<S, each>*>(from)[k];
            for (int j = 0; j < each; ++j) v[k * each + j] = p.v[j];
        }
    } else {
        for (int j = 0; j < packet_lanes; ++j) v[j] = from[j];
    }
}

template <class T>
CAIRN_HD inline void store_packet(T* to, bool whole, int count, const T (&v)[packet_lanes]) {
    if (whole) {
        packet<T, packet_lanes> p;
        for (int j = 0; j < packet_lanes; ++j) p.v[j] = v[j];
        *reinterpret_cast<packet<T, packet_lanes>*>(to) = p;
    } else {
        for (int j = 0; j < packet_lanes; ++j)  // all of them, so that v stays in registers
            if (j < count) to[j] = v[j];
    }
}

/// For all packets, op.store(at, whole, count, loaded, coefficients) of what op.load(at, whole, count) gave, for
/// Op::ahead packets before the first is stored: `at` the first element, `count` its elements. Op::coefficients has
/// set(lane, channel, op), and set_all(channel, op) for eight lanes from that channel on.
template <class Op>
struct channel_pass {
    index_t n, channels;
    bool aligned;
    Op op;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t packets = (n + packet_lanes - 1) / packet_lanes, groups = channels / packet_lanes;
        const bool fixed = channels % packet_lanes == 0;
        const index_t total = b.blocks() * b.threads(), stride = fixed ? total / groups * groups : total;
        const index_t first = b.block() * b.threads() + b.thread();
        if (first >= stride) return;
        typename Op::coefficients c;
        if (fixed) c.set_all(remainder(first, groups) * packet_lanes, op);
        index_t p = first;
        for (; fixed && aligned && p + (Op::ahead - 1) * stride < packets; p += Op::ahead * stride) {
            typename Op::loaded in[Op::ahead];
            CAIRN_UNROLL
            for (int k = 0; k < Op::ahead; ++k) in[k] = op.load((p + k * stride) * packet_lanes, true, packet_lanes);
            CAIRN_UNROLL
            for (int k = 0; k < Op::ahead; ++k) op.store((p + k * stride) * packet_lanes, true, packet_lanes, in[k], c);
        }
        for (; p < packets; p += stride) {
            const index_t at = p * packet_lanes;
            const int count = n - at < packet_lanes ? static_cast<int>(n - at) : packet_lanes;
            const bool whole = aligned && count == packet_lanes;
            if (!fixed)
                for (int j = 0; j < packet_lanes; ++j) c.set(j, remainder(at + j, channels), op);
            op.store(at, whole, count, op.load(at, whole, count), c);
        }
    }
};

/// `aligned`: whether the arrays that op goes over fit packets.
template <GridDevice D, class Op>
void for_channels(D, index_t rows, index_t channels, bool aligned, Op op) {
    const index_t n = rows * channels;
    if (n == 0) return;
    constexpr int threads = 128;  // small blocks: of kernels of many registers more threads fit
    // blocks that hold a thread for each group of channels
    const index_t least = (channels / packet_lanes + threads - 1) / threads;
    // A few rounds of blocks at full occupancy: fewer threads fetch coefficients, and each for more packets.
    const index_t blocks =
        std::min(blocks_for<D>((n + packet_lanes - 1) / packet_lanes, threads, 2), index_t{D::multiprocessors()} * 24);
    D::launch({.blocks = std::max(least, blocks), .threads = threads}, channel_pass<Op>{n, channels, aligned, op});
}

/// Two sums down each column: partial (2, parts, channels). op.add(loaded, …) adds what op.load(at) gave of one row's
/// Lanes channels, Op::ahead rows being loaded before the first is added.
template <int Lanes, class Op, class S>
struct channel_parts {
    index_t rows, channels, parts;
    int across;  // groups of Lanes channels side by side in a block
    Op op;
    S* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t groups = channels / Lanes, strips = (groups + across - 1) / across;
        const index_t strip = b.block() % strips, part = b.block() / strips;
        const index_t group = strip * across + b.thread() % across;
        const int lane = static_cast<int>(b.thread()) / across, lanes = static_cast<int>(b.threads()) / across;
        const index_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        S first[Lanes]{}, second[Lanes]{};
        if (group < groups) {
            typename Op::template coefficients<Lanes> c;
            if constexpr (Lanes == packet_lanes)
                c.set_all(group * Lanes, op);
            else
                for (int j = 0; j < Lanes; ++j) c.set(j, group * Lanes + j, op);
            const index_t step = lanes * channels, behind = end * channels;
            index_t at = (begin + lane) * channels + group * Lanes;
            for (; at + (Op::ahead - 1) * step < behind; at += Op::ahead * step) {
                typename Op::template loaded<Lanes> in[Op::ahead];
                CAIRN_UNROLL
                for (int k = 0; k < Op::ahead; ++k) in[k] = op.template load<Lanes>(at + k * step);
                CAIRN_UNROLL
                for (int k = 0; k < Op::ahead; ++k) op.template add<Lanes>(in[k], c, first, second);
            }
            for (; at < behind; at += step) op.template add<Lanes>(op.template load<Lanes>(at), c, first, second);
        }
        S* const all = b.template shared<S>();  // (2 Lanes, threads)
        for (int j = 0; j < Lanes; ++j) {
            all[(2 * j) * b.threads() + b.thread()] = first[j];
            all[(2 * j + 1) * b.threads() + b.thread()] = second[j];
        }
        b.sync();
        // All threads add: one sum each of 2 Lanes for every group of the block.
        for (int i = static_cast<int>(b.thread()); i < 2 * Lanes * across; i += static_cast<int>(b.threads())) {
            const int which = i / across, column = i - which * across;
            if (strip * across + column >= groups) continue;
            const S* const mine = all + which * b.threads() + column;
            S sum = mine[0];
            for (int k = 1; k < lanes; ++k) sum += mine[k * across];
            partial[(which % 2 * parts + part) * channels + (strip * across + column) * Lanes + which / 2] = sum;
        }
    }
};

/// Calls finish(channel, Σ first, Σ second), sums in double.
template <class S, class Finish>
struct channel_totals {
    static constexpr int most_threads = totals_threads;
    index_t channels, parts;
    const S* partial;
    Finish finish;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t c = b.block() * totals_across + b.thread() % totals_across;
        double* const scratch = b.template shared<double>();
        const double first = total_of_parts(b, channels, parts, c, partial, scratch),
                     second = total_of_parts(b, channels, parts, c, partial + parts * channels, scratch + b.threads());
        if (first_of_column(b) && c < channels) finish(c, first, second);
    }
};

template <class S, GridDevice D, class Op, class Finish>
void channel_sums(D, index_t rows, index_t channels, bool aligned, Op op, Finish finish) {
    in_lanes(channels, aligned, [&]<int Lanes>(lane_count<Lanes>) {
        const column_cut cut = column_cut::of(rows, channels / Lanes);
        tensor<S, D> partial({2, cut.parts, channels}, memory_category::workspace);
        D::launch({.blocks = cut.blocks(channels / Lanes),
                   .threads = cut.threads,
                   .shared = 2 * Lanes * cut.threads * index_t{sizeof(S)}},
                  channel_parts<Lanes, Op, S>{rows, channels, cut.parts, cut.across, op, partial.data()});
        D::launch({.blocks = totals_blocks(channels),
                   .threads = totals_threads,
                   .shared = 2 * totals_threads * index_t{sizeof(double)}},
                  channel_totals<S, Finish>{channels, cut.parts, partial.data(), finish});
    });
}

/// to[r, c] = from[r, c] for `width` columns of rows that begin from_stride and to_stride elements apart.
template <class T>
struct copy_columns_kernel {
    index_t rows, width, from_stride, to_stride;
    const T* from;
    T* to;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = rows * width, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t row = quotient(i, width), column = i - row * width;
            to[row * to_stride + column] = from[row * from_stride + column];
        }
    }
};

}  // namespace cairn::grid

namespace cairn {

/// Copies `width` neighbouring columns of `rows` rows, which begin from_stride and to_stride elements apart: how
/// channels are joined and cut (nn/channels.hpp). Not counted as work.
template <class T, GridDevice D>
void copy_columns(D, index_t rows, index_t width, const T* from, index_t from_stride, T* to, index_t to_stride) {
    if (rows * width > 0)
        D::launch({.blocks = grid::blocks_for<D>(rows * width, 256, 4), .threads = 256},
                  grid::copy_columns_kernel<T>{rows, width, from_stride, to_stride, from, to});
}

}  // namespace cairn
