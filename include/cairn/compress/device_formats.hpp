#pragma once
// The kernels of on_device.hpp: for each compressor what makes its message, and what reads four values of one. Formats
// are those of the compressors' own files.

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/device_packets.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/sign.hpp>

#include <cstdint>
#include <limits>

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
void encode(D d, const nearest_cast<Format>&, const values_alone& values, index_t n, std::uint8_t* out,
            const encode_step&) {
    for_each(d, n, round_to_nearest<Format>{}, values.x, reinterpret_cast<std::uint16_t*>(out));
}
template <GridDevice D, class Format>
void encode(D d, const nearest_cast<Format>&, const values_with_residual& values, index_t n, std::uint8_t* out,
            const encode_step&) {
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
void encode(D d, const stochastic_cast<Format>&, const Values& values, index_t n, std::uint8_t* out,
            const encode_step& at) {
    launch_spans(
        d, n, 4 * span_words,
        round_at_random<Format, Values>{n, at.own_random(Format::name), values, reinterpret_cast<std::uint16_t*>(out)});
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
void encode(D d, const natural&, const Values& values, index_t n, std::uint8_t* out, const encode_step& at) {
    launch_spans(d, n, 4 * span_words + span_values, natural_kernel<Values>{n, at.own_random("natural"), values, out});
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
inline natural_values decoded(const natural&, index_t n, const std::uint8_t* bytes) { return {n, bytes}; }

// sign: a span is a block with a scale.

static_assert(sign::block == span_values);

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
void encode(D d, const sign&, const Values& values, index_t n, std::uint8_t* out, const encode_step&) {
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
inline sign_values decoded(const sign&, index_t n, const std::uint8_t* bytes) {
    return {reinterpret_cast<const float*>(bytes), bytes + 4 * scale_count(n, span_values)};
}

// qsgd: packets k of a warp are a bucket. Planes are transposed eight at a time.

static_assert(plane_group == span_group);

/// Where the bucket of value i lies in a message of n values.
struct qsgd_bucket {
    index_t offset, stride, values;  // first byte, bytes of a plane
    CAIRN_HD qsgd_bucket(const qsgd_code& code, index_t i, index_t n)
        : offset(i / plane_group * (4 + code.bits * (plane_group / 8))),
          values(n - i / plane_group * plane_group < plane_group ? n - i / plane_group * plane_group : plane_group) {
        stride = (values + 7) / 8;
    }
};

template <class Values>
struct qsgd_kernel {
    index_t n;
    random_stream random;
    qsgd_code code;
    Values values;
    std::uint8_t* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const span_place here(b);
        std::uint32_t* const words = b.template shared<std::uint32_t>() + here.warp * span_words;
        for (index_t all = b.block() * span_warps * span_values; all < n; all += here.stride) {
            const index_t first = here.first(all);
            float_packet next = values.load(first + here.of_packet(0), n);
            draw_words(random, here.lane, first, n, words);
            b.sync();
            for (int k = 0; k < span_packets; ++k) {
                const float_packet x = next;
                if (k + 1 < span_packets) next = values.load(first + here.of_packet(k + 1), n);
                encode_bucket(b, here.lane, first + here.of_packet(k), x, random_packet(words, here.lane, k));
            }
            b.sync();  // all have read the words
        }
    }

    /// The bucket of which this thread has the values from number i on.
    template <class Block>
    CAIRN_HD void encode_bucket(Block& b, int lane, index_t i, const float_packet& x, const word_packet& r) const {
        double squares = 0;
        for (int j = 0; j < 4; ++j) squares += static_cast<double>(x.v[j]) * static_cast<double>(x.v[j]);
        for (int mask = warp_threads / 2; mask > 0; mask /= 2) squares += b.shuffle_xor(squares, mask);
        const bool finite = squares - squares == 0;
        const float norm = finite ? qsgd_code::norm(squares) : std::numeric_limits<float>::quiet_NaN();
        const float divisor = norm > 0 ? norm : 1.0f, unit = code.unit(norm);
        std::uint32_t codes[4];
        float_packet sent;
        for (int j = 0; j < 4; ++j) {
            codes[j] = finite ? code.encode(x.v[j], divisor, r.v[j]) : 0u;
            sent.v[j] = code.decode(codes[j], unit);
        }
        const qsgd_bucket bucket(code, i, n);
        std::uint8_t* const to = out + bucket.offset;
        for (int from = 0; from < code.bits; from += 8) {
            std::uint32_t planes = 0;
            for (int j = 0; j < 4; ++j) planes |= spread_bits(codes[j] >> from & 0xffu) << j;
            planes = transposed_nibbles(b, planes);
            const int plane = from + lane % 8, value = lane / 8 * 32;
            if (plane < code.bits && value < bucket.values)
                store_bits(to + 4 + plane * bucket.stride + value / 8, planes, bucket.values - value);
        }
        if (lane == 0 && i < n) *reinterpret_cast<float*>(to) = norm;
        values.keep(i, n, x, sent);
    }
};

template <GridDevice D, class Values>
void encode(D d, const qsgd& c, const Values& values, index_t n, std::uint8_t* out, const encode_step& at) {
    launch_spans(d, n, 4 * span_words, qsgd_kernel<Values>{n, at.own_random("qsgd"), c.code(), values, out});
}

struct qsgd_values {
    index_t n;
    qsgd_code code;
    const std::uint8_t* bytes;
    CAIRN_HD float_packet load(index_t i) const {
        const qsgd_bucket bucket(code, i, n);
        const std::uint8_t* const from = bytes + bucket.offset;
        const float unit = code.unit(*reinterpret_cast<const float*>(from));
        const std::uint8_t* const planes = from + 4 + i % plane_group / 8;
        std::uint32_t codes[4] = {};
        for (int first = 0; first < code.bits; first += 8) {
            std::uint32_t nibbles = 0;
            for (int plane = first; plane < code.bits && plane < first + 8; ++plane)
                nibbles |= (planes[plane * bucket.stride] >> (i % 8) & 0xfu) << 4 * (plane - first);
            for (int j = 0; j < 4; ++j) codes[j] |= gathered_bits(nibbles >> j) << first;
        }
        float_packet v;
        for (int j = 0; j < 4; ++j) v.v[j] = code.decode(codes[j], unit);
        return v;
    }
};
inline qsgd_values decoded(const qsgd& c, index_t n, const std::uint8_t* bytes) { return {n, c.code(), bytes}; }

// Reading: casts are elementwise passes, the others go by packets.

template <class Format>
struct add_widened {
    float scale;
    CAIRN_HD void operator()(const std::uint16_t& h, float& y) const { y += scale * Format::widen(h); }
};

template <class Decoded>
struct add_decoded_kernel {
    index_t n;
    Decoded values;
    float scale;
    float* into;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = 4 * b.blocks() * b.threads();
        for (index_t i = 4 * (b.block() * b.threads() + b.thread()); i < n; i += stride) {
            float_packet y = load_four(static_cast<const float*>(into), i, n);
            const float_packet v = values.load(i);
            for (int j = 0; j < 4; ++j) y.v[j] += scale * v.v[j];
            store_four(into, i, n, y);
        }
    }
};

template <GridDevice D, class Format>
void add_cast(D d, index_t n, const std::uint8_t* bytes, float* into, float scale) {
    for_each(d, n, add_widened<Format>{scale}, reinterpret_cast<const std::uint16_t*>(bytes), into);
}
template <GridDevice D, class Format>
void decode_add(D d, const nearest_cast<Format>&, index_t n, const std::uint8_t* bytes, float* into, float scale) {
    add_cast<D, Format>(d, n, bytes, into, scale);
}
template <GridDevice D, class Format>
void decode_add(D d, const stochastic_cast<Format>&, index_t n, const std::uint8_t* bytes, float* into, float scale) {
    add_cast<D, Format>(d, n, bytes, into, scale);
}
template <GridDevice D, class C>
void decode_add(D, const C& c, index_t n, const std::uint8_t* bytes, float* into, float scale) {
    const auto values = decoded(c, n, bytes);
    D::launch({.blocks = blocks_for<D>(n, 256, 8), .threads = 256},
              add_decoded_kernel<std::remove_const_t<decltype(values)>>{n, values, scale, into});
}

}  // namespace grid

}  // namespace cairn
