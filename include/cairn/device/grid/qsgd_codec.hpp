#pragma once
// QSGD's messages on a grid device (codecs.hpp): packets k of a warp are a bucket. Planes are transposed eight at a
// time.

#include <cairn/device/codes.hpp>
#include <cairn/device/grid/packets.hpp>

#include <cstdint>
#include <limits>

namespace cairn::grid {

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
void encode(D d, const qsgd_code& code, const Values& values, index_t n, std::uint8_t* out,
            const random_stream& random) {
    launch_spans(d, n, 4 * span_words, qsgd_kernel<Values>{n, random, code, values, out});
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
inline qsgd_values decoded(const qsgd_code& code, index_t n, const std::uint8_t* bytes) { return {n, code, bytes}; }

}  // namespace cairn::grid
