#pragma once
// Messages of codes (device/codes.hpp) made and read on a grid device, in device memory: those of device/cpu/codecs.hpp
// byte for byte, with the same random bits, so that a host reads what a device has made and the other way round.
// Nothing is copied to the host and nothing waits.
//   encode_values(d, code, n, x, out, random)                    as on the host
//   encode_with_residual(d, code, n, gradient, e, out, random)   the message of gradient + e, of which e becomes what
//                                                                is not sent: one pass
//   decode_values(d, code, who, bytes, n, into, put)             as on the host
// Arrays may begin at any float: 16 bytes are moved at a time where their address is a multiple of that. Messages begin
// at a multiple of 4 bytes; of 8 is faster for casts.
//
// Equal bytes: casts and natural always. sign and qsgd sum magnitudes and squares in double, but in another order than
// the host does: the last bit of a scale or norm may differ. qsgd's ξ may then differ by 1 where it is within a
// rounding of the next one, also where only one of the two compilers makes a product and a sum one operation. For the
// last reason decoded sums may differ by a rounding.
//
// Bytes a value, each moved once (m: those of the message; sums never leave registers, random words never shared
// memory):
//   encode 4 + m, decode into a sum 8 + m, encode with a residual 12 + m
//   m = 2 casts, 1.125 natural, 0.129 sign, 0.53 qsgd of 7 levels
//
// NaN and Inf: the caller looks for them before. Otherwise, casts pass them on; natural sends ±2^127 (a NaN as +); sign
// sends a block's scale as NaN or Inf, qsgd a bucket's norm as NaN with codes of 0: the host refuses both, decoding
// here adds them. With a residual what must be finite is gradient + residual: else a value of a cast, a block of sign,
// a bucket of qsgd loses its residual for good. Messages are not checked: they come from an encoder. Random numbers are
// drawn for the step of the call: not inside a recording (core/captured_graph.hpp).

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/grid/packets.hpp>
#include <cairn/device/grid/qsgd_codec.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace cairn {

namespace grid {

// Casts to nearest are elementwise passes.

template <class Format>
struct round_to_nearest {
    CAIRN_HD void operator()(const float& x, std::uint16_t& h) const { h = Format::nearest(x); }
    CAIRN_HD void operator()(const float& gradient, float& residual, std::uint16_t& h) const {
        const float x = residual + gradient;
        h = Format::nearest(x);
        residual = x - Format::widen(h);
    }
};

template <GridDevice D, class Format>
void encode(D d, const nearest_rounding<Format>&, const values_alone& values, index_t n, std::uint8_t* out,
            const random_stream&) {
    for_each(d, n, round_to_nearest<Format>{}, values.x, reinterpret_cast<std::uint16_t*>(out));
}
template <GridDevice D, class Format>
void encode(D d, const nearest_rounding<Format>&, const values_with_residual& values, index_t n, std::uint8_t* out,
            const random_stream&) {
    for_each(d, n, round_to_nearest<Format>{}, values.gradient, values.residual, reinterpret_cast<std::uint16_t*>(out));
}

// Casts at random.

template <class Format, class Values>
struct round_at_random {
    index_t n;
    random_stream random;
    Values values;
    std::uint16_t* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const span_place here(b);
        std::uint32_t* const words = b.template shared<std::uint32_t>() + here.warp * span_words;
        for (index_t all = b.block() * span_warps * span_values; all < n; all += here.stride) {
            const index_t first = here.first(all);
            float_packet x[span_packets];  // on their way while random words are computed
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) x[k] = values.load(first + here.of_packet(k), n);
            draw_words(random, here.lane, first, n, words);
            b.sync();
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) {
                const word_packet r = random_packet(words, here.lane, k);
                packet<std::uint16_t, 4> h;
                float_packet sent;
                for (int j = 0; j < 4; ++j) {
                    h.v[j] = Format::stochastic(x[k].v[j], r.v[j]);
                    sent.v[j] = Format::widen(h.v[j]);
                }
                const index_t i = first + here.of_packet(k);
                store_four(out, i, n, h);
                values.keep(i, n, x[k], sent);
            }
            b.sync();  // all have read the words
        }
    }
};

template <GridDevice D, class Format, class Values>
void encode(D d, const stochastic_rounding<Format>&, const Values& values, index_t n, std::uint8_t* out,
            const random_stream& random) {
    launch_spans(d, n, 4 * span_words,
                 round_at_random<Format, Values>{n, random, values, reinterpret_cast<std::uint16_t*>(out)});
}

// natural: exponents go through shared memory, because their part of the message may begin at any byte.

template <class Values>
struct natural_kernel {
    index_t n;
    random_stream random;
    Values values;
    std::uint8_t* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const span_place here(b);
        std::uint32_t* const memory = b.template shared<std::uint32_t>();
        std::uint32_t* const words = memory + here.warp * span_words;
        auto* const exponents =
            reinterpret_cast<std::uint8_t*>(memory + span_warps * span_words) + here.warp * span_values;
        for (index_t all = b.block() * span_warps * span_values; all < n; all += here.stride) {
            const index_t first = here.first(all);
            float_packet x[span_packets];
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) x[k] = values.load(first + here.of_packet(k), n);
            draw_words(random, here.lane, first, n, words);
            b.sync();
            std::uint32_t signs = 0;
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) {
                const word_packet r = random_packet(words, here.lane, k);
                packet<std::uint8_t, 4> e;
                float_packet sent;
                for (int j = 0; j < 4; ++j) {
                    const float v = x[k].v[j];
                    const std::uint32_t negative = v < 0 ? 1u : 0u;
                    const std::uint32_t exponent =
                        natural_format::exponent(std::bit_cast<std::uint32_t>(v) & 0x7fffffffu, r.v[j]);
                    e.v[j] = static_cast<std::uint8_t>(exponent);
                    sent.v[j] = natural_format::widen(exponent, negative);
                    signs |= negative << (4 * k + j);
                }
                *reinterpret_cast<packet<std::uint8_t, 4>*>(exponents + here.of_packet(k)) = e;
                values.keep(first + here.of_packet(k), n, x[k], sent);
            }
            signs = transposed_nibbles(b, signs);
            const index_t i = first + here.lane % 8 * span_group + here.lane / 8 * 32;
            if (i < n) store_bits(out + i / 8, signs, n - i);
            b.sync();  // all have written exponents, and read the words
            if (first < n)
                copy_bytes(here.lane, exponents, n - first < span_values ? n - first : span_values,
                           out + (n + 7) / 8 + first);
        }
    }
};

template <GridDevice D, class Values>
void encode(D d, const natural_format&, const Values& values, index_t n, std::uint8_t* out,
            const random_stream& random) {
    launch_spans(d, n, 4 * span_words + span_values, natural_kernel<Values>{n, random, values, out});
}

struct natural_values {
    index_t n;
    const std::uint8_t* bytes;
    CAIRN_HD float_packet load(index_t i) const {
        const auto e = load_four(bytes + (n + 7) / 8, i, n);
        const std::uint32_t signs = bytes[i / 8] >> (i % 8);
        float_packet v;
        for (int j = 0; j < 4; ++j) v.v[j] = natural_format::widen(e.v[j], signs >> j & 1u);
        return v;
    }
};
inline natural_values decoded(const natural_format&, index_t n, const std::uint8_t* bytes) { return {n, bytes}; }

// sign: a span is a block with a scale.

static_assert(sign_format::block == span_values);

template <class Values>
struct sign_kernel {
    index_t n;
    Values values;
    std::uint8_t* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const span_place here(b);
        for (index_t all = b.block() * span_warps * span_values; all < n; all += here.stride) {
            const index_t first = here.first(all), count = n - first < span_values ? n - first : span_values;
            float_packet x[span_packets];
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) x[k] = values.load(first + here.of_packet(k), n);
            std::uint32_t signs = 0;
            double sum = 0;
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k)
                for (int j = 0; j < 4; ++j) {
                    const float v = x[k].v[j];
                    const bool negative = v < 0;
                    signs |= (negative ? 1u : 0u) << (4 * k + j);
                    sum += static_cast<double>(negative ? -v : v);
                }
            for (int mask = warp_threads / 2; mask > 0; mask /= 2) sum += b.shuffle_xor(sum, mask);
            const std::uint32_t together = transposed_nibbles(b, signs);
            if (first >= n) continue;
            const float scale = static_cast<float>(sum / static_cast<double>(count));
            if (here.lane == 0) reinterpret_cast<float*>(out)[first / span_values] = scale;
            const index_t i = first + here.lane % 8 * span_group + here.lane / 8 * 32;
            if (i < n) store_bits(out + 4 * scale_count(n, span_values) + i / 8, together, n - i);
            CAIRN_UNROLL
            for (int k = 0; k < span_packets; ++k) {
                float_packet sent;
                for (int j = 0; j < 4; ++j) sent.v[j] = signs >> (4 * k + j) & 1u ? -scale : scale;
                values.keep(first + here.of_packet(k), n, x[k], sent);
            }
        }
    }
};

template <GridDevice D, class Values>
void encode(D d, const sign_format&, const Values& values, index_t n, std::uint8_t* out, const random_stream&) {
    launch_spans(d, n, 0, sign_kernel<Values>{n, values, out});
}

struct sign_values {
    const float* scales;
    const std::uint8_t* bits;
    CAIRN_HD float_packet load(index_t i) const {
        const float scale = scales[i / span_values];
        const std::uint32_t signs = bits[i / 8] >> (i % 8);
        float_packet v;
        for (int j = 0; j < 4; ++j) v.v[j] = signs >> j & 1u ? -scale : scale;
        return v;
    }
};
inline sign_values decoded(const sign_format&, index_t n, const std::uint8_t* bytes) {
    return {reinterpret_cast<const float*>(bytes), bytes + 4 * scale_count(n, span_values)};
}

// Reading: casts are elementwise passes, the others go by packets.

template <class Format, class Put>
struct put_widened {
    Put put;
    CAIRN_HD void operator()(const std::uint16_t& h, float& y) const { put(y, Format::widen(h)); }
};

template <class Decoded, class Put>
struct decode_kernel {
    index_t n;
    Decoded values;
    Put put;
    float* into;

    CAIRN_HD void operator()(index_t packet) const {
        const index_t i = 4 * packet;
        float_packet y = load_four(static_cast<const float*>(into), i, n);
        const float_packet v = values.load(i);
        for (int j = 0; j < 4; ++j) put(y.v[j], v.v[j]);
        store_four(into, i, n, y);
    }
};

template <GridDevice D, class Code, class Put>
void decode(D d, const Code& code, index_t n, const std::uint8_t* bytes, float* into, Put put) {
    if constexpr (requires { typename Code::format; }) {
        for_each(d, n, put_widened<typename Code::format, Put>{put}, reinterpret_cast<const std::uint16_t*>(bytes),
                 into);
    } else {
        const auto values = decoded(code, n, bytes);
        for_indices(d, (n + 3) / 4, decode_kernel<std::remove_const_t<decltype(values)>, Put>{n, values, put, into});
    }
}

inline void require_place(const std::byte* bytes) {
    if (!aligned_as<float>(bytes)) [[unlikely]]
        fail("codes on a device: a message must begin at a multiple of 4 bytes");
}

}  // namespace grid

template <GridDevice D, class Code>
bool encode_values(D d, const Code& code, index_t n, const float* x, std::byte* out, const random_stream& random) {
    grid::require_place(out);
    flop_counter::count(0, 4.0 * static_cast<double>(n) + static_cast<double>(code.bytes(n)));
    if (n > 0) grid::encode(d, code, grid::values_alone{x}, n, reinterpret_cast<std::uint8_t*>(out), random);
    return true;
}

template <GridDevice D, class Code>
void encode_with_residual(D d, const Code& code, index_t n, const float* gradient, float* residual, std::byte* out,
                          const random_stream& random) {
    grid::require_place(out);
    flop_counter::count(0, 12.0 * static_cast<double>(n) + static_cast<double>(code.bytes(n)));
    if (n > 0)
        grid::encode(d, code, grid::values_with_residual{gradient, residual}, n, reinterpret_cast<std::uint8_t*>(out),
                     random);
}

template <GridDevice D, class Code, class Put>
void decode_values(D d, const Code& code, std::string_view, std::span<const std::byte> bytes, index_t n, float* into,
                   Put put) {
    grid::require_place(bytes.data());
    flop_counter::count(0, 8.0 * static_cast<double>(n) + static_cast<double>(bytes.size()));
    if (n > 0) grid::decode(d, code, n, reinterpret_cast<const std::uint8_t*>(bytes.data()), into, put);
}

}  // namespace cairn
