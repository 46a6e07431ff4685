#pragma once
// Convolution in register tiles, without patches: any stride, padding, dilation, groups, 1D to 3D, channels last. The
// portable direct algorithm. It is a matrix product whose operand A, the patches, is read where it lies: along an image
// row, the points of a tile are equally far apart, and for each line (kd, kh) of the kernel the numbers (kw, c) lie
// side by side.
// So a tile of results sums kernel points · channels products in registers, and is written once.
//
//   forward         tile of points × c_out: A = x, B = wᵀ packed in panels
//   input gradient  tile of points × c_in:  A = dy, B = w packed; one correlation for each remainder modulo the stride
//   weight gradient tile of c_out × (kw, c): A = dyᵀ, B = x;  or transposed, where c_in is small
//
// Memory traffic: x and y once, packed weights once for each block of points (from the cache). Rows of padding are
// skipped, columns of padding are multiplied. Blocks are cut by the size of the data and partial weight gradients added
// in order: the same bits on any number of threads. Related: Dukhan, "The Indirect Convolution Algorithm", 2019.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/conv_index_map.hpp>
#include <cairn/device/cpu/gemm_builtin.hpp>
#include <cairn/device/cpu/microkernel.hpp>

#include <algorithm>
#include <vector>

namespace cairn::tiled {

using builtin::lanes, builtin::panel_columns, builtin::tile_segment, builtin::tile_source, builtin::tile_target;

/// Part of the sum over the kernel: a line of taps, or a piece of a long one.
struct piece {
    tap d, h;
    index_t column;  // source column of its first number, and which number of that point
    index_t channel;
    index_t k;    // numbers
    index_t row;  // first row of it in the packed weights
};

/// The weights of one correlation: K × columns, in panels.
template <class T>
struct packed_weights {
    index_t k, columns;
    tensor<T> panels;
};

/// The sum over the kernel in blocks of at most `most` products, each a list of pieces.
inline std::vector<std::vector<piece>> kernel_blocks(const lattices& l, index_t channels, index_t most) {
    std::vector<std::vector<piece>> blocks(1);
    index_t row = 0, in_block = 0;
    for (const tap& d : l[0].taps)
        for (const tap& h : l[1].taps)
            for (const run& r : runs_of(l[2]))
                for (index_t at = 0, length = r.count * channels, now; at < length; at += now) {
                    if (in_block == most) {
                        blocks.emplace_back();
                        in_block = 0;
                    }
                    now = std::min(length - at, most - in_block);
                    blocks.back().push_back({d, h, r.offset, at, now, row});
                    row += now;
                    in_block += now;
                }
    return blocks;
}

/// result = correlation of source and weights (+ bias), over the positions of the lattices.
template <class T>
void correlate(const lattices& l, const grid<const T>& source, const packed_weights<T>& w, const T* bias,
               const grid<T>& result) {
    constexpr index_t width = panel_columns<T>;
    const auto blocks = kernel_blocks(l, source.used, w.k <= 1536 ? w.k : 1024);
    // Points of a block: as many as let the source stay in the second-level cache, and enough blocks to go round.
    const index_t per_point = source.used * l[1].source_step * l[2].source_step * static_cast<index_t>(sizeof(T));
    const index_t total = source.images * l[0].count * l[1].count * l[2].count;
    const row_blocks parts(l, source.images,
                           std::max<index_t>(std::min((index_t{1} << 18) / per_point, total / 32), 1));
    const index_t line = result.size[2] * result.channels;
    thread_rooms<T> rooms(slab<T>(l, source, 0).most(parts));
    parallel_for(parts.count(), 1, [&](index_t begin, index_t end) {
        slab<T> input(l, source, 0);
        std::vector<tile_segment> segments;  // of all rows, row after row
        std::vector<std::size_t> row_end;
        for (index_t part = begin; part < end; ++part) {
            const row_block b = parts[part];
            input.load(b, rooms.here());
            for (const auto& pieces : blocks) {
                const bool first = &pieces == &blocks.front();
                segments.clear();
                row_end.clear();
                for (index_t plane = b.plane_begin; plane < b.plane_end; ++plane)
                    for (index_t row = b.row_begin; row < b.row_end; ++row) {
                        for (const piece& p : pieces)
                            if (const index_t at = input.at(plane, row, p.d, p.h, p.column); at >= 0)
                                segments.push_back({at + p.channel, p.row * width, p.k});
                        row_end.push_back(segments.size());
                    }
                for (index_t j = 0, wide; j < w.columns; j += wide) {
                    const int vectors = builtin::tile_vectors<T>(l[2].count, w.columns - j);
                    wide = std::min(vectors * lanes<T>, w.columns - j);
                    std::size_t i = 0;
                    for (index_t plane = b.plane_begin; plane < b.plane_end; ++plane)
                        for (index_t row = b.row_begin; row < b.row_end; ++row, ++i) {
                            const std::size_t from = i ? row_end[i - 1] : 0;
                            if (!first && from == row_end[i]) continue;
                            const index_t z =
                                plane / l[0].count * result.size[0] + l[0].first + plane % l[0].count * l[0].step;
                            T* to = result.data + (z * result.size[1] + l[1].first + row * l[1].step) * line +
                                    l[2].first * result.channels + result.channel + j;
                            builtin::tile_strip<T>(vectors, l[2].count,
                                                   {input.base(), l[2].source_step * source.used, 1,
                                                    w.panels.data() + j / width * w.k * width, width, w.k * width,
                                                    segments.data() + from, static_cast<index_t>(row_end[i] - from)},
                                                   {to, l[2].step * result.channels, wide, T{1}, first ? T{} : T{1},
                                                    first && bias ? bias + j : nullptr});
                        }
                }
            }
        }
    });
}

template <class T>
packed_weights<T> room_for_weights(index_t k, index_t columns) {
    constexpr index_t width = panel_columns<T>;
    return {k, columns,
            tensor<T>({std::max<index_t>((columns + width - 1) / width * width * k, 1)}, memory_category::workspace)};
}

/// y = x * w + bias; bias may be null.
template <class T>
void forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    const lattices l{forward_lattice(g, 0), forward_lattice(g, 1), forward_lattice(g, 2)};
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, k = g.kernel_points() * ci;
    auto packed = room_for_weights<T>(k, co);
    for (index_t q = 0; q < g.groups; ++q) {
        parallel_for(k, 64, [&](index_t begin, index_t end) {
            builtin::pack_rows(true, begin, end, k, co, w + q * co * k, k, packed.panels.data());
        });
        correlate<T>(l, {x, g.n, g.in, g.c_in, q * ci, ci}, packed, bias ? bias + q * co : nullptr,
                     {y, g.n, g.out, g.c_out, q * co, co});
    }
}

/// dx = gradient of <dy, x * w> with respect to x.
template <class T>
void backward_input(const conv_geometry& g, const T* dy, const T* w, T* dx) {
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, k = g.kernel_points() * ci;
    const auto remainders = [&](std::size_t axis) { return std::min(g.stride[axis], g.in[axis]); };
    for (index_t rd = 0; rd < remainders(0); ++rd)
        for (index_t rh = 0; rh < remainders(1); ++rh)
            for (index_t rw = 0; rw < remainders(2); ++rw) {
                const lattices l{gradient_lattice(g, 0, rd), gradient_lattice(g, 1, rh), gradient_lattice(g, 2, rw)};
                std::vector<index_t> taps;  // positions in w, in the order of the sum
                for (const tap& d : l[0].taps)
                    for (const tap& h : l[1].taps)
                        for (const tap& v : l[2].taps) taps.push_back((d.k * g.kernel[1] + h.k) * g.kernel[2] + v.k);
                auto packed = room_for_weights<T>(static_cast<index_t>(taps.size()) * co, ci);
                for (index_t q = 0; q < g.groups; ++q) {
                    parallel_for(static_cast<index_t>(taps.size()), 1, [&](index_t begin, index_t end) {
                        for (index_t t = begin; t < end; ++t)
                            builtin::pack_rows(false, 0, co, packed.k, ci,
                                               w + q * co * k + taps[static_cast<std::size_t>(t)] * ci, k,
                                               packed.panels.data() + t * co * panel_columns<T>);
                    });
                    correlate<T>(l, {dy, g.n, g.out, g.c_out, q * co, co}, packed, nullptr,
                                 {dx, g.n, g.in, g.c_in, q * ci, ci});
                }
            }
}

/// dw += gradient of <dy, x * w> with respect to w.
template <class T>
void backward_weight(const conv_geometry& g, const T* x, const T* dy, T* dw) {
    const lattices l{forward_lattice(g, 0), forward_lattice(g, 1), forward_lattice(g, 2)};
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, k = g.kernel_points() * ci, weights = co * k;
    const std::vector<run> runs = runs_of(l[2]);
    // Vectors lie along (kw, c), or along c_out if fewer lanes are idle then.
    const auto filled = [](index_t columns) {
        return static_cast<double>(columns) / static_cast<double>((columns + lanes<T> - 1) / lanes<T> * lanes<T>);
    };
    const index_t stretch = runs.front().count * ci;
    const bool along_c_out = co % lanes<T> == 0 && filled(stretch) < 0.9;
    const index_t spare =
        stretch % panel_columns<T> || along_c_out ? 4 * lanes<T> : 0;  // a tile may read behind its columns
    const index_t bytes = static_cast<index_t>(sizeof(T));
    const row_blocks parts(
        l, g.n, std::max<index_t>((index_t{1} << 17) / (bytes * std::max(co, ci * g.stride[1] * g.stride[2])), 32));
    // Pieces of the points, each with a sum of its own, and of the rows of dw, so that there is work for many threads.
    const index_t pieces = std::clamp<index_t>((index_t{1} << 20) / weights, 1, std::min<index_t>(16, parts.count()));
    const index_t most_rows = std::max<index_t>(builtin::tile_rows, (co + 15) / 16);
    const index_t row_pieces = pieces >= 8 || along_c_out ? 1 : (co + most_rows - 1) / most_rows;
    tensor<T> sums;
    if (pieces > 1 || along_c_out) sums = tensor<T>({pieces * weights}, memory_category::workspace);
    for (index_t q = 0; q < g.groups; ++q) {
        T* const target = dw + q * weights;
        const grid<const T> source{x, g.n, g.in, g.c_in, q * ci, ci};
        thread_rooms<T> rooms(slab<T>(l, source, spare).most(parts));
        parallel_for(pieces * row_pieces, 1, [&](index_t begin, index_t end) {
            slab<T> input(l, source, spare);
            std::vector<tile_segment> segments;
            for (index_t task = begin; task < end; ++task) {
                const index_t part = task / row_pieces, co_begin = co * (task % row_pieces) / row_pieces;
                const index_t co_end = co * (task % row_pieces + 1) / row_pieces;
                T* const sum = sums.empty() ? target : sums.data() + part * weights;
                if (!sums.empty() && along_c_out)
                    std::fill_n(sum, weights, T{});
                else if (!sums.empty())
                    std::fill(sum + co_begin * k, sum + co_end * k, T{});
                for (index_t i = part * parts.count() / pieces; i < (part + 1) * parts.count() / pieces; ++i) {
                    const row_block b = parts[i];
                    input.load(b, rooms.here());
                    index_t column = 0;  // of the matrix dw
                    for (const tap& d : l[0].taps)
                        for (const tap& h : l[1].taps) {
                            for (const run& r : runs) {
                                segments.clear();
                                for (index_t plane = b.plane_begin; plane < b.plane_end; ++plane)
                                    for (index_t row = b.row_begin; row < b.row_end; ++row)
                                        if (const index_t at = input.at(plane, row, d, h, r.offset); at >= 0) {
                                            const index_t from = (plane * g.out[1] + row) * g.out[2] * g.c_out;
                                            segments.push_back(along_c_out ? tile_segment{at, from, g.out[2]}
                                                                           : tile_segment{from, at, g.out[2]});
                                        }
                                const index_t count = static_cast<index_t>(segments.size());
                                const T *const in = input.base(), *const gradient = dy + q * co;
                                const index_t length = r.count * ci, in_step = l[2].source_step * ci;
                                if (along_c_out)
                                    for (index_t j = 0, wide; j < co; j += wide) {
                                        int vectors = builtin::tile_vectors<T>(length, co - j);
                                        while (vectors * lanes < T >> co - j) vectors /= 2;  // dy ends there
                                        wide = std::min(vectors * lanes<T>, co - j);
                                        builtin::tile_strip<T>(vectors, length,
                                                               {in, 1, in_step, gradient + j, g.c_out, panel_columns<T>,
                                                                segments.data(), count},
                                                               {sum + column * co + j, co, wide, T{1}, T{1}});
                                    }
                                else
                                    for (index_t j = 0, wide; j < length; j += wide) {
                                        const int vectors = builtin::tile_vectors<T>(co_end - co_begin, length - j);
                                        wide = std::min(vectors * lanes<T>, length - j);
                                        builtin::tile_strip<T>(vectors, co_end - co_begin,
                                                               {gradient + co_begin, 1, g.c_out, in + j, in_step,
                                                                panel_columns<T>, segments.data(), count},
                                                               {sum + co_begin * k + column + j, k, wide, T{1}, T{1}});
                                    }
                                column += length;
                            }
                        }
                }
            }
        });
        if (sums.empty()) continue;
        parallel_for(co, std::max<index_t>(4096 / k, 1), [&](index_t begin, index_t end) {
            for (index_t c = begin; c < end; ++c)
                for (index_t i = 0; i < k; ++i) {
                    const index_t at = along_c_out ? i * co + c : c * k + i;
                    T total = sums[at];
                    for (index_t part = 1; part < pieces; ++part) total += sums[part * weights + at];
                    target[c * k + i] += total;
                }
        });
    }
}

}  // namespace cairn::tiled
