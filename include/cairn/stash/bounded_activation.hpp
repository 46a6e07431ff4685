#pragma once
// A tensor as two streams of quantised symbols: the form of bounded_codec's activations on the host
// (bounded_codec.hpp has the format). Two passes over blocks of 8192 elements, in parallel: symbols, whose counts give
// sizes and codes, then bits. Workspace: one byte an element, and 1 kB of counts a block.

#include <cairn/compress/huffman.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/byte_planes.hpp>
#include <cairn/device/cpu/dithered_quantiser.hpp>
#include <cairn/stash/zero_pattern.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

namespace cairn::detail {

/// Values of a tensor in two streams of symbols. On a grid device: bounded_activation_on_grid.hpp.
template <Device D>
class bounded_activation;

/// See the top of the file.
template <>
class bounded_activation<cpu> final : public packed_activation<> {
public:
    bounded_activation(const tensor<float>& x, bounded_input<cpu> how)
        : packed_activation<>(x.shape()),
          quantiser_(how.bounds, or_one(how.moments.mean, 0), or_one(how.moments.deviation, 1), how.random,
                     how.first_element),
          zeros_(std::move(how.zeros)),
          kinds_(std::move(how.kinds)),
          huffman_(how.huffman),
          mask_bytes_(how.own_mask_bytes) {
        const index_t n = x.size(), blocks = (n + packed_block - 1) / packed_block;
        const kernel_call call("pack error-bounded", "f32", 12.0 * double(n), 5.0 * double(n), {n, huffman_});
        tensor<std::uint8_t> symbols({n}, memory_category::workspace);
        std::vector<block_summary> summaries(static_cast<std::size_t>(blocks));
        parallel_for(blocks, 4, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b) make_symbols(x, b, symbols, summaries[static_cast<std::size_t>(b)]);
        });
        write(x, symbols, summaries);
    }

    index_t bytes() const override { return body().size() + mask_bytes_; }

    tensor<float> unpack() const override {
        tensor<float> x(shape_);
        const index_t blocks = (x.size() + packed_block - 1) / packed_block;
        const kernel_call call("unpack error-bounded", "f32", 8.0 * double(x.size()), 5.0 * double(x.size()),
                               {x.size(), huffman_});
        if (on_phantom_rank()) return x;
        std::vector<huffman::byte_decoder> decoders;
        if (huffman_)
            for (std::size_t k = 0; k < 2; ++k) decoders.emplace_back(lengths_[k], lone_symbol_[k]);
        parallel_for((blocks + 1) / 2, 1, [&](index_t begin, index_t end) {
            block_decoder first, second;
            for (index_t pair = begin; pair < end; ++pair) {
                const bool two = 2 * pair + 1 < blocks;
                first.begin(*this, 2 * pair);
                if (two) second.begin(*this, 2 * pair + 1);
                for (std::size_t k = 0; k < 2; ++k)
                    if (huffman_) {
                        decoders[k].decode(first.codes(*this, k),
                                           two ? second.codes(*this, k) : huffman::byte_stream{});
                    } else {
                        first.read_planes(*this, k);
                        if (two) second.read_planes(*this, k);
                    }
                finish_block(first, x);
                if (two) finish_block(second, x);
            }
        });
        return x;
    }

private:
    static constexpr std::uint32_t everything = ~std::uint32_t{0};
    using symbol_buffer = std::array<std::uint8_t, packed_block + 64>;

    struct block_summary {
        std::array<std::uint32_t, 2> symbols{}, escapes{}, bytes{};
        std::array<std::array<std::uint16_t, 256>, 2> counts{};  // how often each symbol comes
    };
    /// Where a block's parts begin in body_.
    struct block_place {
        std::array<std::uint32_t, 2> symbols{}, escapes{};
    };

    /// A word for each group of a block: which elements have a symbol, and which of them have bound 1.
    struct block_bits {
        static constexpr index_t groups = packed_block / symbol_group;
        std::array<std::uint32_t, groups> live, kinds;
    };
    block_bits bits_of(index_t b, index_t length) const {
        block_bits bits;
        for (index_t g = 0; 32 * g < length; ++g) {
            const index_t first = b * packed_block + 32 * g, n = b * packed_block + length;
            const auto at = static_cast<std::size_t>(g);
            bits.live[at] = bits_of_group(zeros_.get().data(), first, n);
            bits.kinds[at] = kinds_.get().empty() ? everything : bits_of_group(kinds_.get().data(), first, n);
        }
        return bits;
    }
    static std::vector<float> or_one(const tensor<float>& of_channels, float of_all) {
        if (of_channels.empty() || on_phantom_rank()) return {of_all};
        return {of_channels.span().begin(), of_channels.span().end()};
    }
    static index_t length_of(index_t b, index_t n) { return std::min(packed_block, n - b * packed_block); }

    // Stream 1 of block b, then stream 0, into its place of `all`.
    void make_symbols(const tensor<float>& x, index_t b, tensor<std::uint8_t>& all, block_summary& s) const {
        symbol_buffer symbols;
        std::array<symbol_buffer, 2> streams;
        const index_t length = length_of(b, x.size());
        const block_bits bits = bits_of(b, length);
        quantiser_.encode(x.data() + b * packed_block, b * packed_block, length, bits.kinds.data(), symbols.data());
        for (index_t g = 0; 32 * g < length; ++g) {
            const auto at = static_cast<std::size_t>(g);
            const std::uint32_t some = bits.live[at], kind = bits.kinds[at];
            const std::uint8_t* const from = symbols.data() + 32 * g;
            s.symbols[1] += gather_bytes(from, some & kind, streams[1].data() + s.symbols[1]);
            if (kind != everything) s.symbols[0] += gather_bytes(from, some & ~kind, streams[0].data() + s.symbols[0]);
        }
        std::uint8_t* to = all.data() + b * packed_block;
        for (const std::size_t k : {1u, 0u}) {
            std::uint8_t* const stream = streams[k].data();
            const std::uint32_t n = s.symbols[k];
            std::memset(stream + n, 0, 32);
            std::uint32_t escapes = 0;
#pragma omp simd reduction(+ : escapes)
            for (std::uint32_t i = 0; i < n; ++i) escapes += stream[i] == escape_symbol;
            s.escapes[k] = escapes;
            if (huffman_)  // bytes follow when the codes are known
                count_symbols(stream, n, s.counts[k]);
            else
                s.bytes[k] = static_cast<std::uint32_t>(byte_planes::packed_bytes(stream, n));
            std::memcpy(to, stream, n);
            to += n;
        }
    }

    /// In four tables, for neighbours are often equal, and a counter that was just written is slow to read.
    static void count_symbols(const std::uint8_t* symbols, std::uint32_t n, std::array<std::uint16_t, 256>& counts) {
        std::array<std::array<std::uint16_t, 256>, 4> of{};
        std::uint32_t i = 0;
        for (; i + 8 <= n; i += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, symbols + i, 8);
            for (std::size_t j = 0; j < 8; ++j, eight >>= 8) ++of[j % 4][eight & 255u];
        }
        for (; i < n; ++i) ++of[0][symbols[i]];
        for (std::size_t s = 0; s < 256; ++s)
            counts[s] = static_cast<std::uint16_t>(of[0][s] + of[1][s] + of[2][s] + of[3][s]);
    }

    // On a phantom rank a byte stands for each element: as many as there are at most, but for escapes.
    void write(const tensor<float>& x, const tensor<std::uint8_t>& symbols, std::vector<block_summary>& summaries) {
        if (on_phantom_rank()) return void(body_ = waiting_bytes<>(tensor<std::uint8_t>({x.size()})));
        std::array<std::vector<huffman::code>, 2> codes;
        for (std::size_t k = 0; huffman_ && k < 2; ++k) {
            std::vector<std::uint64_t> counts(256);
            for (const block_summary& s : summaries)
                for (std::size_t i = 0; i < 256; ++i) counts[i] += s.counts[k][i];
            lengths_[k] = huffman::optimal_lengths(counts);
            codes[k] = huffman::codes_of(lengths_[k]);
            const auto first = std::ranges::find_if(counts, [](std::uint64_t n) { return n > 0; });
            lone_symbol_[k] = static_cast<std::uint8_t>(first == counts.end() ? 0 : first - counts.begin());
            for (block_summary& s : summaries) {
                std::uint32_t bits = 0;
                for (std::size_t i = 0; i < 256; ++i) bits += std::uint32_t{s.counts[k][i]} * lengths_[k][i];
                s.bytes[k] = (bits + 7) / 8;
            }
        }
        const index_t blocks = static_cast<index_t>(summaries.size());
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
                const std::uint8_t* from = symbols.data() + b * packed_block;
                for (const std::size_t k : {1u, 0u}) {
                    std::uint8_t* const to = body.data() + places_[static_cast<std::size_t>(b)].symbols[k];
                    write_stream(from, s.symbols[k], codes[k], {to, s.bytes[k]});
                    from += s.symbols[k];
                }
                if (escapes_[static_cast<std::size_t>(b)])
                    write_escapes(x, b, symbols.data() + b * packed_block, s.symbols[1], body);
            }
        });
        body_ = waiting_bytes<>(std::move(body));
    }

    void write_stream(const std::uint8_t* from, std::uint32_t n, const std::vector<huffman::code>& codes,
                      std::span<std::uint8_t> to) const {
        if (huffman_) {
            const auto bytes = std::as_writable_bytes(to);
            huffman::writer write(bytes.data());
            write.put(from, n, codes, bytes.data() + bytes.size());
            write.finish();
        } else {
            symbol_buffer padded;  // zeros behind the last
            std::memcpy(padded.data(), from, n);
            std::memset(padded.data() + n, 0, 32);
            byte_planes::pack(padded.data(), n, to.data());
        }
    }

    /// Calls each(element, its kind) for the elements of a block that have a symbol, in the order of the streams.
    template <class Each>
    void for_live(index_t b, index_t n, Each&& each) const {
        const index_t length = length_of(b, n);
        const block_bits bits = bits_of(b, length);
        for (index_t i = 0; i < length; ++i) {
            const auto at = static_cast<std::size_t>(i / 32);
            if ((bits.live[at] >> i % 32) & 1u) each(b * packed_block + i, (bits.kinds[at] >> i % 32) & 1u);
        }
    }

    // `stream1`: symbols of stream 1, behind which are those of stream 0.
    void write_escapes(const tensor<float>& x, index_t b, const std::uint8_t* symbols, std::uint32_t stream1,
                       tensor<std::uint8_t>& body) const {
        std::array<const std::uint8_t*, 2> next{symbols + stream1, symbols};
        const block_place& place = places_[static_cast<std::size_t>(b)];
        std::array<std::uint8_t*, 2> to{body.data() + place.escapes[0], body.data() + place.escapes[1]};
        for_live(b, x.size(), [&](index_t i, std::size_t k) {
            if (*next[k]++ != escape_symbol) return;
            if (!std::isfinite(x[i])) fail_of_not_finite(x);
            std::memcpy(to[k], x.data() + i, 4);
            to[k] += 4;
        });
    }

    /// Decodes one block.
    struct block_decoder {
        index_t b, length;
        block_bits bits;
        std::array<index_t, 2> symbols;
        std::array<symbol_buffer, 2> streams;

        void begin(const bounded_activation& of, index_t number) {
            b = number;
            length = length_of(b, of.shape_.size());
            bits = of.bits_of(b, length);
            index_t live = 0;
            for (index_t g = 0; 32 * g < length; ++g) live += std::popcount(bits.live[static_cast<std::size_t>(g)]);
            symbols[1] = of.symbols_[static_cast<std::size_t>(b)];
            symbols[0] = live - symbols[1];
        }
        const block_place& place(const bounded_activation& of) const { return of.places_[static_cast<std::size_t>(b)]; }
        huffman::byte_stream codes(const bounded_activation& of, std::size_t k) {
            const auto bytes = std::as_bytes(of.body().span());
            const block_place& at = place(of);
            return {bytes.subspan(at.symbols[k], at.escapes[k] - at.symbols[k]), symbols[k], streams[k].data()};
        }
        void read_planes(const bounded_activation& of, std::size_t k) {
            byte_planes::unpack(of.body().data() + place(of).symbols[k], symbols[k], streams[k].data());
        }
    };

    void finish_block(const block_decoder& block, tensor<float>& x) const {
        symbol_buffer symbols{};
        std::array<std::uint32_t, 2> next{};
        for (index_t g = 0; 32 * g < block.length; ++g) {
            const auto at = static_cast<std::size_t>(g);
            const std::uint32_t some = block.bits.live[at], kind = block.bits.kinds[at];
            std::uint8_t* const to = symbols.data() + 32 * g;
            next[1] += spread_bytes(block.streams[1].data() + next[1], some & kind, to);
            if (kind != everything) next[0] += spread_bytes(block.streams[0].data() + next[0], some & ~kind, to);
        }
        const index_t first = block.b * packed_block;
        quantiser_.decode(symbols.data(), first, block.length, block.bits.kinds.data(), block.bits.live.data(),
                          x.data() + first);
        if (!escapes_[static_cast<std::size_t>(block.b)]) return;
        const block_place& place = block.place(*this);
        std::array<const std::uint8_t*, 2> symbol{block.streams[0].data(), block.streams[1].data()},
            from{body().data() + place.escapes[0], body().data() + place.escapes[1]};
        for_live(block.b, x.size(), [&](index_t i, std::size_t k) {
            if (*symbol[k]++ != escape_symbol) return;
            std::memcpy(x.data() + i, from[k], 4);
            from[k] += 4;
        });
    }

    dithered_quantiser quantiser_;
    waiting_bytes<> zeros_, kinds_;
    bool huffman_;
    index_t mask_bytes_;
    std::array<huffman::lengths, 2> lengths_;    // of the codes
    std::array<std::uint8_t, 2> lone_symbol_{};  // of a stream that has no other
    std::vector<block_place> places_;
    std::vector<std::uint32_t> symbols_;  // of stream 1, in each block
    std::vector<bool> escapes_;           // whether a block has some
};

}  // namespace cairn::detail
