#pragma once
// Error-bounded lossy compression of the SZ family (Di and Cappello 2016; the order of steps that has no loop-carried
// dependence is cuSZ's, Tian et al. 2020): |x − x̂| ≤ eb for every value, always.
//   q_i = round(x_i / 2eb),  x̂_i = 2eb q_i      quantise
//   d_i = q_i − p_i                              p_i = q_{i−1} (Lorenzo in one dimension) or 0: the smaller, by block
//   symbol d_i + 512, or 0: outlier              where |d_i| ≥ 512, or |x − x̂| ≤ eb fails in exact arithmetic
//   Huffman code of the symbols                  one code for the bucket, huffman.hpp
// Outliers travel as they are; for prediction they have the q of the formula, 0 if |q| > 2^22.
// eb is given, or a share of the bucket's largest magnitude.
//
// Wire, B = ⌈n / 16384⌉ blocks:
//   | eb, 4 bytes | first symbol that occurs, 2 | how many from there on, 2 | code lengths, 4 bits each |
//   | for each block: bytes of codes, 4; number of outliers, 3; 1 if Lorenzo, else 0 | codes | outliers, 4 each |
// Nothing for n = 0. State: none. Scratch: 2 bytes a value. Blocks are encoded and decoded in parallel.

#include <cairn/compress/compressor.hpp>
#include <cairn/compress/huffman.hpp>

#include <array>
#include <cmath>

namespace cairn {

class error_bounded : public stateless<cpu> {  // on the host alone: lengths differ
public:
    enum class kind { absolute, relative };
    struct config {
        double bound = 1e-3;
        kind of = kind::relative;  // bound × the largest magnitude of the bucket, or the bound itself
    };
    static constexpr index_t block = 16384;

    error_bounded() : error_bounded(config{}) {}
    explicit error_bounded(config c) : config_(c) {
        require(c.bound > 0 && std::isfinite(c.bound), "error_bounded: bound ", c.bound, ", expected above 0");
    }

    std::string name() const { return "error_bounded"; }
    compression_contract contract(index_t) const {
        compression_contract c{.fixed_bytes = false};
        if (config_.of == kind::absolute) c.absolute_error = config_.bound;
        return c;
    }
    /// Bytes that stand for those of a message on a phantom rank, which has no numbers: a byte a symbol, about the
    /// entropy of normal numbers of which the largest is five deviations, at the default bound.
    static index_t expected_bytes(index_t n) { return n ? 8 + radius + 8 * blocks(n) + n : 0; }
    /// No code is worse than one of 10 bits a symbol.
    index_t max_bytes(index_t n) const { return n ? 8 + radius + 9 * blocks(n) + (10 * n + 7) / 8 + 4 * n : 0; }

    void encode(std::span<const float> values, message<>& out, const encode_step& at) {
        const index_t n = static_cast<index_t>(values.size()), count = blocks(n);
        if (n == 0) return void(out.prepare(0));
        const double all = static_cast<double>(n);
        const kernel_call call("encode error-bounded", "f32", 12 * all, 13 * all, {n});
        const float largest = max_abs(cpu{}, n, values.data());
        if (!std::isfinite(largest)) require_finite(name(), values, at);
        const quantiser quantise(bound_for(largest));

        if (symbols_.size() < n) symbols_ = tensor<std::uint16_t>({n}, memory_category::communication);
        if (on_phantom_rank()) return void(out.prepare(expected_bytes(n)));
        std::vector<block_summary> summaries(static_cast<std::size_t>(count));
        parallel_for(count, 1, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b)
                summaries[static_cast<std::size_t>(b)] =
                    make_symbols(quantise, values.data() + b * block, length(n, b), symbols_.data() + b * block);
        });

        std::vector<std::uint64_t> counts(symbols, 0);
        for (const block_summary& s : summaries)
            for (std::size_t k = 0; k < symbols; ++k) counts[k] += s.counts[k];
        std::size_t first = 0, last = symbols - 1;
        while (!counts[first]) ++first;
        while (!counts[last]) --last;
        const huffman::lengths lengths = huffman::optimal_lengths(counts);

        index_t outliers = 0, codes = 0;
        const std::size_t used = last - first + 1;
        for (block_summary& s : summaries) {
            std::uint64_t bits = 0;
            for (std::size_t k = first; k <= last; ++k) bits += std::uint64_t{s.counts[k]} * lengths[k];
            s.bytes = static_cast<index_t>((bits + 7) / 8);
            s.code_at = std::exchange(codes, codes + s.bytes);
            s.outlier_at = std::exchange(outliers, outliers + s.counts[0]);
        }
        const index_t head = 8 + static_cast<index_t>((used + 1) / 2), bodies = head + 8 * count;
        std::byte* const message_begin = out.prepare(bodies + codes + 4 * outliers).data();
        write_head(quantise.bound, first, used, lengths, message_begin);

        const std::vector<huffman::code> codes_of_symbols = huffman::codes_of(lengths);
        std::byte* const outlier_begin = message_begin + bodies + codes;
        parallel_for(count, 1, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b) {
                const block_summary& s = summaries[static_cast<std::size_t>(b)];
                const std::array<std::uint32_t, 2> entry{static_cast<std::uint32_t>(s.bytes),
                                                         s.counts[0] | (s.lorenzo ? 1u << 24 : 0u)};
                std::memcpy(message_begin + head + 8 * b, entry.data(), 8);
                write_block(values.data() + b * block, length(n, b), symbols_.data() + b * block, codes_of_symbols,
                            message_begin + bodies + s.code_at, outlier_begin + 4 * s.outlier_at, s.counts[0]);
            }
        });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_with(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_with(bytes, into, add_scaled{scale});
    }

private:
    static constexpr int radius = 512;
    static constexpr std::size_t symbols = 2 * radius;

    /// The first three lines of the head comment. q is computed by one product and one rounding: nothing that a
    /// compiler could contract, so that the decoder's q of an outlier is the encoder's.
    struct quantiser {
        explicit quantiser(float eb) : bound(eb), step(2 * eb), inverse(1 / step) {}
        std::int32_t operator()(float x) const {
            const float scaled = std::nearbyint(x * inverse);
            return static_cast<std::int32_t>(std::abs(scaled) <= 0x1p22f ? scaled : 0.0f);
        }
        float value(std::int32_t q) const { return static_cast<float>(q) * step; }
        float bound, step, inverse;
    };

    struct block_summary {
        std::array<std::uint32_t, symbols> counts{};  // counts[0]: outliers
        bool lorenzo = false;
        index_t bytes = 0, code_at = 0, outlier_at = 0;
    };

    static index_t blocks(index_t n) { return (n + block - 1) / block; }
    static index_t length(index_t n, index_t b) { return std::min(block, n - b * block); }

    /// The bound as a float that is not above it.
    float bound_for(float largest) const {
        const double bound =
            config_.of == kind::absolute ? config_.bound : config_.bound * static_cast<double>(largest);
        float eb = static_cast<float>(std::min(bound, static_cast<double>(std::numeric_limits<float>::max())));
        if (static_cast<double>(eb) > bound) eb = std::nextafter(eb, 0.0f);
        return eb;
    }

    static block_summary make_symbols(const quantiser& quantise, const float* x, index_t n, std::uint16_t* out) {
        block_summary s;
        std::vector<std::int32_t> room(static_cast<std::size_t>(2 * n + 1));
        std::int32_t *const q = room.data() + 1, *const fits = q + n;  // q[−1] = 0
        std::int64_t plain = 0, lorenzo = 0;
#pragma omp simd
        for (index_t i = 0; i < n; ++i) {
            q[i] = quantise(x[i]);
            // In double, where the difference of two floats of similar size is exact.
            const double off = static_cast<double>(x[i]) - static_cast<double>(quantise.value(q[i]));
            fits[i] = std::abs(off) <= static_cast<double>(quantise.bound) ? 1 : 0;
        }
#pragma omp simd reduction(+ : plain, lorenzo)
        for (index_t i = 0; i < n; ++i) {
            plain += std::abs(q[i]);
            lorenzo += std::abs(q[i] - q[i - 1]);
        }
        s.lorenzo = lorenzo < plain;
        const std::int32_t predicted = s.lorenzo ? -1 : 0;  // a mask
#pragma omp simd
        for (index_t i = 0; i < n; ++i) {
            const std::int32_t d = q[i] - (q[i - 1] & predicted);
            const bool inside = (d < radius) & (d > -radius) & (fits[i] != 0);
            out[i] = static_cast<std::uint16_t>(inside ? d + radius : 0);
        }
        for (index_t i = 0; i < n; ++i) ++s.counts[out[i]];
        return s;
    }

    static void write_head(float eb, std::size_t first, std::size_t used, const huffman::lengths& lengths,
                           std::byte* out) {
        const std::array<std::uint16_t, 2> range{static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(used)};
        std::memcpy(out, &eb, 4);
        std::memcpy(out + 4, range.data(), 4);
        for (std::size_t k = 0; k < used; k += 2) {
            const unsigned high = k + 1 < used ? lengths[first + k + 1] : 0u;
            out[8 + k / 2] = static_cast<std::byte>(lengths[first + k] | high << 4);
        }
    }

    static void write_block(const float* x, index_t n, const std::uint16_t* symbol,
                            const std::vector<huffman::code>& codes, std::byte* out, std::byte* outliers,
                            std::uint32_t outlier_count) {
        huffman::writer write(out);
        for (index_t i = 0; i < n; ++i) write.put(codes[symbol[i]]);
        write.finish();
        if (outlier_count == 0) return;
        for (index_t i = 0; i < n; ++i)
            if (symbol[i] == 0) {
                std::memcpy(outliers, x + i, 4);
                outliers += 4;
            }
    }

    template <class Put>
    static void decode_with(std::span<const std::byte> bytes, std::span<float> into, Put put) {
        message_reader reader("error_bounded", bytes);
        const index_t n = static_cast<index_t>(into.size()), count = blocks(n);
        if (n == 0) return reader.finish();
        const double all = static_cast<double>(n);
        const kernel_call call("decode error-bounded", "f32", 4 * all, 8 * all + static_cast<double>(bytes.size()),
                               {n});
        if (on_phantom_rank()) return;  // the message's bytes are not there
        const float eb = reader.number<float>("the bound");
        if (!(eb >= 0) || !std::isfinite(eb)) reader.damaged("the bound before it is ", eb);
        const quantiser quantise(eb);
        const std::size_t first = reader.number<std::uint16_t>("the first symbol");
        const std::size_t used = reader.number<std::uint16_t>("the number of symbols");
        if (used == 0 || first + used > symbols) reader.damaged("symbols ", first, " to ", first + used, " before it");
        huffman::lengths lengths(symbols, 0);
        const std::byte* const nibbles = reader.take(static_cast<index_t>((used + 1) / 2), "code lengths");
        for (std::size_t k = 0; k < used; ++k)
            lengths[first + k] =
                static_cast<std::uint8_t>((static_cast<unsigned>(nibbles[k / 2]) >> (k % 2 * 4)) & 15u);
        if (!huffman::complete(lengths)) reader.damaged("the code lengths before it belong to no code");
        const huffman::decoder huffman_decoder(lengths, static_cast<std::uint16_t>(first));

        struct place {
            index_t code_at, bytes, outlier_at, outliers;
            bool lorenzo;
        };
        std::vector<place> places(static_cast<std::size_t>(count));
        index_t codes = 0, outliers = 0;
        for (place& p : places) {
            p.bytes = reader.number<std::uint32_t>("the bytes of a block");
            const auto word = reader.number<std::uint32_t>("the outliers of a block");
            p.outliers = word & 0xffffffu;
            p.lorenzo = (word >> 24) == 1;
            if ((word >> 24) > 1 || p.outliers > block) reader.damaged("outliers of a block before it");
            p.code_at = std::exchange(codes, codes + p.bytes);
            p.outlier_at = std::exchange(outliers, outliers + p.outliers);
        }
        const index_t codes_begin = reader.position();
        const std::byte* const code_begin = reader.take(codes, "codes");
        const std::byte* const outlier_begin = reader.take(4 * outliers, "outliers");
        reader.finish();

        parallel_for(count, 1, [&](index_t begin, index_t end) {
            std::vector<std::uint16_t> symbol(static_cast<std::size_t>(block));
            for (index_t b = begin; b < end; ++b) {
                const place& p = places[static_cast<std::size_t>(b)];
                const index_t m = length(n, b);
                const index_t bits = huffman_decoder.decode({code_begin + p.code_at, static_cast<std::size_t>(p.bytes)},
                                                            m, symbol.data());
                const std::byte* const raw = outlier_begin + 4 * p.outlier_at;
                if (bits < 0 || (bits + 7) / 8 != p.bytes ||
                    !decode_block(quantise, symbol.data(), m, p.lorenzo, raw, p.outliers, into.data() + b * block, put))
                    fail("error_bounded: message of ", bytes.size(), " bytes: byte ", codes_begin + p.code_at,
                         ": the codes of block ", b, " do not fit its ", p.bytes, " bytes and ", p.outliers,
                         " outliers");
            }
        });
    }

    /// False if there are not exactly `outliers` outliers.
    template <class Put>
    static bool decode_block(const quantiser& quantise, const std::uint16_t* symbol, index_t n, bool lorenzo,
                             const std::byte* raw, index_t outliers, float* into, Put put) {
        std::int32_t q = 0;
        index_t found = 0;
        for (index_t i = 0; i < n; ++i) {
            if (symbol[i] == 0) [[unlikely]] {
                if (found == outliers) return false;
                float x;
                std::memcpy(&x, raw + 4 * found++, 4);
                q = quantise(x);
                put(into[i], x);
                continue;
            }
            // Unsigned: a damaged message may sum up to anything.
            const std::uint32_t before = lorenzo ? static_cast<std::uint32_t>(q) : 0u;
            q = static_cast<std::int32_t>(before + symbol[i] - static_cast<std::uint32_t>(radius));
            put(into[i], quantise.value(q));
        }
        return found == outliers;
    }

    config config_;
    tensor<std::uint16_t> symbols_;
};

}  // namespace cairn
