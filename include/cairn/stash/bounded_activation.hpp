#pragma once
// A tensor as two streams of quantised symbols (device/cpu/dithered_quantiser.hpp), what bounded_codec makes of an
// activation (bounded_codec.hpp has the format). Two passes over blocks of 8192 elements, in parallel: symbols, whose
// counts give sizes and codes, then bits. Workspace: one byte an element.

#include <cairn/compress/huffman.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/byte_planes.hpp>
#include <cairn/device/cpu/dithered_quantiser.hpp>
#include <cairn/device/cpu/simd.hpp>
#include <cairn/stash/codec.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace cairn {

namespace detail {

inline constexpr index_t stash_block = 8192;  // elements, whole groups of 32

/// Deviations of the channels and their means, in one pass each.
struct channel_moments {
    std::vector<float> mean, deviation;
};

inline channel_moments moments_of(const tensor<float>& x) {
    const index_t channels = x.extent(-1), rows = x.size() / channels;
    struct sums {
        std::vector<double> of, squares;
        sums& operator+=(const sums& other) {
            if (of.empty()) return *this = other;
            for (std::size_t c = 0; c < of.size(); ++c) of[c] += other.of[c], squares[c] += other.squares[c];
            return *this;
        }
    };
    const float* const values = x.data();
    const sums all = parallel_sum<sums>(rows, std::max<index_t>(1, 65536 / channels), [=](index_t begin, index_t end) {
        const auto width = static_cast<std::size_t>(channels);
        std::vector<float> of(width), squares(width);
        for (index_t r = begin; r < end; ++r) {
            const float* const row = values + r * channels;
#pragma omp simd
            for (index_t c = 0; c < channels; ++c) {
                of[static_cast<std::size_t>(c)] += row[c];
                squares[static_cast<std::size_t>(c)] += row[c] * row[c];
            }
        }
        return sums{{of.begin(), of.end()}, {squares.begin(), squares.end()}};
    });
    channel_moments m;
    for (std::size_t c = 0; c < all.of.size(); ++c) {
        const double mean = all.of[c] / double(rows), variance = all.squares[c] / double(rows) - mean * mean;
        m.mean.push_back(static_cast<float>(mean));
        m.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 1e-12))));
    }
    return m;
}

/// Bit i: x[i] is not 0. The layout of an activation's bits.
inline tensor<std::uint8_t> non_zero_bits(const tensor<float>& x) {
    tensor<std::uint8_t> bits({simd::mask_bytes<float>(x.size())});
    const float* const values = x.data();
    std::uint8_t* const out = bits.data();
    parallel_for(x.size(), stash_block, [=](index_t begin, index_t end) {
        const simd::pack<float> zero(0);
        simd::for_packs<float>(end - begin, [&](index_t i, auto count) {
            const auto equal = simd::to_bits(simd::equal(simd::load(values + begin + i, count), zero));
            const auto lanes = static_cast<std::uint16_t>(~equal & ((1u << count) - 1u));
            std::memcpy(out + (begin + i) / 8, &lanes, 2);
        });
    });
    return bits;
}

inline index_t count_bits(const tensor<std::uint8_t>& bits) {
    index_t n = 0;
    for (const std::uint8_t byte : bits.span()) n += std::popcount(byte);
    return n;
}

/// Values of a tensor in two streams of symbols; see the top of the file.
class bounded_activation final : public packed_activation {
public:
    /// `zeros`: bits of elements that are not 0, the others have no symbol; `kinds`: which of the bounds. Either empty.
    bounded_activation(const tensor<float>& x, dithered_quantiser quantiser, tensor<std::uint8_t> zeros,
                       index_t own_mask_bytes, tensor<std::uint8_t> kinds, bool huffman)
        : shape_(x.shape()),
          quantiser_(std::move(quantiser)),
          zeros_(std::move(zeros)),
          kinds_(std::move(kinds)),
          huffman_(huffman),
          mask_bytes_(own_mask_bytes) {
        const index_t n = x.size(), blocks = (n + stash_block - 1) / stash_block;
        tensor<std::uint8_t> symbols({n}, memory_category::workspace);
        std::vector<block_summary> summaries(static_cast<std::size_t>(blocks));
        const counts all = parallel_sum<counts>(blocks, 8, [&](index_t begin, index_t end) {
            counts mine;
            for (index_t b = begin; b < end; ++b)
                summaries[static_cast<std::size_t>(b)] = make_symbols(x, b, symbols, mine);
            return mine;
        });
        write(x, symbols, summaries, all);
    }

    index_t bytes() const override { return body_.get().size() + mask_bytes_; }

    tensor<float> unpack() const override {
        tensor<float> x(shape_);
        const index_t n = x.size(), blocks = (n + stash_block - 1) / stash_block;
        std::vector<huffman::byte_decoder> decoders;
        if (huffman_)
            for (std::size_t k = 0; k < 2; ++k) decoders.emplace_back(lengths_[k], lone_symbol_[k]);
        parallel_for(blocks, 1, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b) unpack_block(b, decoders, x);
        });
        return x;
    }

private:
    static constexpr std::uint32_t everything = ~std::uint32_t{0};
    using symbol_buffer = std::array<std::uint8_t, stash_block + 64>;

    /// How often each symbol comes. Four counters each, for neighbours are often equal, and a counter that was just
    /// written is slow to read.
    struct counts {
        std::array<std::array<std::array<std::uint32_t, 256>, 4>, 2> of{};
        void add(std::size_t k, const std::uint8_t* symbols, std::uint32_t n) {
            auto& c = of[k];
            std::uint32_t i = 0;
            for (; i + 8 <= n; i += 8) {
                std::uint64_t eight;
                std::memcpy(&eight, symbols + i, 8);
                for (std::size_t j = 0; j < 8; ++j, eight >>= 8) ++c[j % 4][eight & 255u];
            }
            for (; i < n; ++i) ++c[0][symbols[i]];
        }
        counts& operator+=(const counts& other) {
            for (std::size_t k = 0; k < 2; ++k)
                for (std::size_t j = 0; j < 4; ++j)
                    for (std::size_t i = 0; i < 256; ++i) of[k][j][i] += other.of[k][j][i];
            return *this;
        }
        std::vector<std::uint64_t> sums(std::size_t k) const {
            std::vector<std::uint64_t> all(256);
            for (std::size_t i = 0; i < 256; ++i)
                for (std::size_t j = 0; j < 4; ++j) all[i] += of[k][j][i];
            return all;
        }
    };
    struct block_summary {
        std::array<std::uint32_t, 2> symbols{}, escapes{}, bytes{};
    };
    /// Where a block's parts begin in body_.
    struct block_place {
        std::array<std::uint32_t, 2> symbols{}, escapes{};
    };

    /// Elements of a group that have a symbol.
    [[gnu::always_inline]] std::uint32_t live(index_t first, index_t count) const {
        const std::uint32_t inside = count < 32 ? (1u << count) - 1u : everything;
        return has_zeros() ? mask_word(zeros_.get(), first) & inside : inside;
    }
    [[gnu::always_inline]] std::uint32_t kinds(index_t first) const {
        return kinds_.get().empty() ? everything : mask_word(kinds_.get(), first);
    }
    bool has_zeros() const { return !zeros_.get().empty(); }

    /// Calls each(first, count) for the groups of a block.
    template <class Each>
    [[gnu::always_inline]] static void for_groups(index_t b, index_t n, Each&& each) {
        const index_t end = std::min(n, (b + 1) * stash_block);
        for (index_t first = b * stash_block; first < end; first += 32) each(first, std::min<index_t>(32, end - first));
    }

    // Stream 1 of block b, then stream 0, into its place of `all`.
    block_summary make_symbols(const tensor<float>& x, index_t b, tensor<std::uint8_t>& all, counts& seen) const {
        block_summary s;
        std::array<symbol_buffer, 2> streams;
        for_groups(b, x.size(), [&](index_t first, index_t count) {
            std::uint8_t symbols[32];
            const std::uint32_t some = live(first, count), kind = kinds(first);
            quantiser_.encode(x.data() + first, first, count, kind, symbols);
            s.symbols[1] +=
                static_cast<std::uint32_t>(gather_bytes(symbols, some & kind, streams[1].data() + s.symbols[1]));
            if (kind != everything)
                s.symbols[0] +=
                    static_cast<std::uint32_t>(gather_bytes(symbols, some & ~kind, streams[0].data() + s.symbols[0]));
        });
        std::uint8_t* to = all.data() + b * stash_block;
        for (const std::size_t k : {1u, 0u}) {
            std::uint8_t* const stream = streams[k].data();
            const std::uint32_t n = s.symbols[k];
            std::memset(stream + n, 0, 32);
            std::uint32_t escapes = 0;
#pragma omp simd reduction(+ : escapes)
            for (std::uint32_t i = 0; i < n; ++i) escapes += stream[i] == dithered_quantiser::escape;
            s.escapes[k] = escapes;
            if (huffman_)  // bytes follow when the codes are known
                seen.add(k, stream, n);
            else
                s.bytes[k] = static_cast<std::uint32_t>(byte_planes::packed_bytes(stream, n));
            std::memcpy(to, stream, n);
            to += n;
        }
        return s;
    }

    void write(const tensor<float>& x, const tensor<std::uint8_t>& symbols, std::vector<block_summary>& summaries,
               const counts& all) {
        std::array<std::vector<huffman::code>, 2> codes;
        if (huffman_)
            for (std::size_t k = 0; k < 2; ++k) {
                const std::vector<std::uint64_t> seen = all.sums(k);
                lengths_[k] = huffman::optimal_lengths(seen);
                codes[k] = huffman::codes_of(lengths_[k]);
                const auto first = std::ranges::find_if(seen, [](std::uint64_t n) { return n > 0; });
                lone_symbol_[k] = static_cast<std::uint8_t>(first == seen.end() ? 0 : first - seen.begin());
            }
        const index_t blocks = static_cast<index_t>(summaries.size());
        if (huffman_)
            parallel_for(blocks, 1, [&](index_t begin, index_t end) {
                for (index_t b = begin; b < end; ++b)
                    count_bytes(symbols.data() + b * stash_block, summaries[static_cast<std::size_t>(b)]);
            });
        std::uint64_t at = 0;
        for (const block_summary& s : summaries) {
            block_place place;
            for (const std::size_t k : {1u, 0u}) {
                place.symbols[k] = static_cast<std::uint32_t>(at);
                at += s.bytes[k];
                place.escapes[k] = static_cast<std::uint32_t>(at);
                at += 4ull * s.escapes[k];
            }
            places_.push_back(place);
            symbols_.push_back(s.symbols[1]);
            escapes_.push_back(s.escapes[0] + s.escapes[1] > 0);
        }
        require(at < (std::uint64_t{1} << 32), "error-bounded codec: ", at, " bytes; 4 GiB is the most of one tensor");
        tensor<std::uint8_t> body({static_cast<index_t>(at)});
        parallel_for(blocks, 1, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b) {
                const block_summary& s = summaries[static_cast<std::size_t>(b)];
                const std::uint8_t* from = symbols.data() + b * stash_block;
                for (const std::size_t k : {1u, 0u}) {
                    write_stream(from, s.symbols[k], codes[k],
                                 body.data() + places_[static_cast<std::size_t>(b)].symbols[k]);
                    from += s.symbols[k];
                }
                if (escapes_[static_cast<std::size_t>(b)])
                    write_escapes(x, b, symbols.data() + b * stash_block, s.symbols[1], body);
            }
        });
        body_ = waiting_bytes(std::move(body));
    }

    // Of the codes of a block's streams.
    void count_bytes(const std::uint8_t* symbol, block_summary& s) const {
        for (const std::size_t k : {1u, 0u}) {
            std::uint64_t bits = 0;
            for (std::uint32_t i = 0; i < s.symbols[k]; ++i) bits += lengths_[k][*symbol++];
            s.bytes[k] = static_cast<std::uint32_t>((bits + 7) / 8);
        }
    }

    void write_stream(const std::uint8_t* from, std::uint32_t n, const std::vector<huffman::code>& codes,
                      std::uint8_t* to) const {
        if (huffman_) {
            huffman::writer write(reinterpret_cast<std::byte*>(to));
            for (std::uint32_t i = 0; i < n; ++i) write.put(codes[from[i]]);
            write.finish();
        } else {
            symbol_buffer padded;  // zeros behind the last
            std::memcpy(padded.data(), from, n);
            std::memset(padded.data() + n, 0, 32);
            byte_planes::pack(padded.data(), n, to);
        }
    }

    /// Calls each(element, its kind) for the elements of a block that have a symbol, in the order of the streams.
    template <class Each>
    void for_live(index_t b, index_t n, Each&& each) const {
        for_groups(b, n, [&](index_t first, index_t count) {
            const std::uint32_t some = live(first, count), kind = kinds(first);
            for (index_t i = 0; i < count; ++i)
                if ((some >> i) & 1u) each(first + i, static_cast<std::size_t>((kind >> i) & 1u));
        });
    }

    // `stream1`: symbols of stream 1, behind which are those of stream 0.
    void write_escapes(const tensor<float>& x, index_t b, const std::uint8_t* symbols, std::uint32_t stream1,
                       tensor<std::uint8_t>& body) const {
        std::array<const std::uint8_t*, 2> next{symbols + stream1, symbols};
        const block_place& place = places_[static_cast<std::size_t>(b)];
        std::array<std::uint8_t*, 2> to{body.data() + place.escapes[0], body.data() + place.escapes[1]};
        for_live(b, x.size(), [&](index_t i, std::size_t k) {
            if (*next[k]++ != dithered_quantiser::escape) return;
            require(std::isfinite(x[i]), "an activation is ", x[i], " (element ", i, " of ", x.shape(), ')');
            std::memcpy(to[k], x.data() + i, 4);
            to[k] += 4;
        });
    }

    void unpack_block(index_t b, const std::vector<huffman::byte_decoder>& decoders, tensor<float>& x) const {
        const index_t n = x.size();
        const block_place& place = places_[static_cast<std::size_t>(b)];
        const index_t length = std::min(stash_block, n - b * stash_block);
        std::array<symbol_buffer, 2> streams;
        index_t with_symbol = length;
        if (has_zeros()) {
            with_symbol = 0;
            for_groups(b, n, [&](index_t first, index_t count) { with_symbol += std::popcount(live(first, count)); });
        }
        const std::array<index_t, 2> held{with_symbol - symbols_[static_cast<std::size_t>(b)],
                                          symbols_[static_cast<std::size_t>(b)]};
        for (std::size_t k = 0; k < 2; ++k) read_stream(place, k, held[k], decoders, streams[k]);
        std::array<index_t, 2> next{};
        for_groups(b, n, [&](index_t first, index_t count) {
            std::uint8_t symbols[32] = {};
            const std::uint32_t some = live(first, count), kind = kinds(first);
            next[1] += spread_bytes(streams[1].data() + next[1], some & kind, symbols);
            if (kind != everything) next[0] += spread_bytes(streams[0].data() + next[0], some & ~kind, symbols);
            float values[32];
            quantiser_.decode(symbols, first, kind, values);
            if (some != everything)
#pragma omp simd
                for (std::uint32_t i = 0; i < 32; ++i) values[i] = (some >> i) & 1u ? values[i] : 0.0f;
            std::memcpy(x.data() + first, values, static_cast<std::size_t>(count) * sizeof(float));
        });
        if (!escapes_[static_cast<std::size_t>(b)]) return;
        std::array<const std::uint8_t*, 2> symbol{streams[0].data(), streams[1].data()},
            from{body_.get().data() + place.escapes[0], body_.get().data() + place.escapes[1]};
        for_live(b, n, [&](index_t i, std::size_t k) {
            if (*symbol[k]++ != dithered_quantiser::escape) return;
            std::memcpy(x.data() + i, from[k], 4);
            from[k] += 4;
        });
    }

    void read_stream(const block_place& place, std::size_t k, index_t n,
                     const std::vector<huffman::byte_decoder>& decoders, symbol_buffer& into) const {
        const std::uint8_t* const from = body_.get().data() + place.symbols[k];
        if (!huffman_) return byte_planes::unpack(from, n, into.data());
        const auto bytes = static_cast<std::size_t>(place.escapes[k] - place.symbols[k]);
        decoders[k].decode({reinterpret_cast<const std::byte*>(from), bytes}, n, into.data());
    }

    cairn::shape shape_;
    dithered_quantiser quantiser_;
    waiting_bytes zeros_, kinds_;
    bool huffman_;
    index_t mask_bytes_;
    std::array<huffman::lengths, 2> lengths_;    // of the codes
    std::array<std::uint8_t, 2> lone_symbol_{};  // of a stream that has no other
    std::vector<block_place> places_;
    std::vector<std::uint32_t> symbols_;  // of stream 1, in each block
    std::vector<bool> escapes_;           // whether a block has some
    waiting_bytes body_{tensor<std::uint8_t>()};
};

}  // namespace detail

}  // namespace cairn
