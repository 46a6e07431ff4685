#pragma once
// QSGD (Alistarh et al., NeurIPS 2017, section 3.1): in buckets of 128 values, each with its norm,
//   x̂_i = ‖x‖₂ · sign(x_i) · ξ_i / s,   ξ_i = ⌊s |x_i| / ‖x‖₂ + u_i⌋,  u_i uniform in [0, 1)
// so that E x̂ = x and E‖x̂ − x‖² ≤ min(128/s², √128/s) ‖x‖². u has 16 random bits: a bias of 2^-17 of a level.
//
// Wire, for each bucket of m ≤ 128: | ‖x‖₂, 4 bytes | m codes of b = 1 + ⌈log₂(s+1)⌉ bits: ξ, sign on top;
// bit_planes.hpp |
// Bytes: 4 ⌈n/128⌉ + the planes; 4.25 bits a value for s = 7. State: none. Traffic: the bucket once.

#include <cairn/compress/bit_planes.hpp>
#include <cairn/compress/compressor.hpp>
#include <cairn/compress/random_bits.hpp>
#include <cairn/core/host_device.hpp>

#include <bit>

namespace cairn {

/// The codes of s levels in b bits.
struct qsgd_code {
    int levels, bits;

    /// Any norm above the largest value keeps the mean.
    CAIRN_HD static float norm(double squares) {
        const double most = std::numeric_limits<float>::max(), root = std::sqrt(squares);
        return static_cast<float>(root < most ? root : most);
    }
    /// ξ and the sign of v, `norm` being 1 where it is 0; r: 16 random bits.
    CAIRN_HD std::uint32_t encode(float v, float norm, std::uint32_t r) const {
        const float u = (static_cast<float>(static_cast<std::int32_t>(r)) + 0.5f) * 0x1p-16f;
        const auto xi =
            static_cast<std::uint32_t>(static_cast<std::int32_t>(std::abs(v) / norm * static_cast<float>(levels) + u));
        const auto top = static_cast<std::uint32_t>(levels);
        return (xi < top ? xi : top) | std::bit_cast<std::uint32_t>(v) >> 31 << (bits - 1);
    }
    CAIRN_HD float unit(float norm) const { return norm / static_cast<float>(levels); }
    CAIRN_HD float decode(std::uint32_t code, float unit) const {
        const std::uint32_t sign_bit = 1u << (bits - 1);
        const auto level = static_cast<float>(static_cast<std::int32_t>(code & (sign_bit - 1)));
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(level * unit) ^ (code & sign_bit) << (32 - bits));
    }
};

class qsgd {
public:
    struct config {
        int levels = 7;  // s, 1 … 255; 2^j − 1 wastes no code
    };
    qsgd() : qsgd(config{}) {}
    explicit qsgd(config c) : code_{c.levels, 1 + static_cast<int>(std::bit_width(static_cast<unsigned>(c.levels)))} {
        require(c.levels >= 1 && c.levels <= 255, "qsgd: ", c.levels, " levels, expected 1 to 255");
    }

    std::string name() const { return concat("qsgd", code_.levels); }
    const qsgd_code& code() const { return code_; }
    compression_contract contract(index_t n) const {
        const double m = static_cast<double>(std::min(n, plane_group)), s = code_.levels;
        const double variance = std::min(m / (s * s), std::sqrt(m) / s);
        return {.unbiased = true, .deterministic = false, .contraction = 1 - variance, .variance = variance};
    }
    index_t max_bytes(index_t n) const {
        return 4 * ((n + plane_group - 1) / plane_group) + plane_bytes(n, code_.bits);
    }

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size());
        const float* const x = values.data();
        std::byte* const target = out.prepare(max_bytes(n)).data();
        const group_bits random(at.own_random("qsgd"));
        for_each_bucket(n, [&](index_t g, index_t m, index_t offset) {
            const float* const v = x + g * plane_group;
            double squares = 0;
#pragma omp simd reduction(+ : squares)
            for (index_t i = 0; i < m; ++i) squares += static_cast<double>(v[i]) * static_cast<double>(v[i]);
            if (!std::isfinite(squares)) [[unlikely]]
                require_finite(name(), values, at);
            const float norm = qsgd_code::norm(squares);
            std::memcpy(target + offset, &norm, 4);
            const float divisor = norm > 0 ? norm : 1.0f;
            const qsgd_code code = code_;
            std::uint32_t r[plane_group], codes[plane_group] = {};
            random.fill(g, r);
#pragma omp simd
            for (index_t i = 0; i < m; ++i) codes[i] = code.encode(v[i], divisor, r[i]);
            store_planes(codes, m, code.bits, target + offset + 4);
        });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_with(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_with(bytes, into, add_scaled{scale});
    }

private:
    template <class Put>
    void decode_with(std::span<const std::byte> bytes, std::span<float> into, Put put) const {
        const index_t n = static_cast<index_t>(into.size());
        message_reader reader("qsgd", bytes);
        const std::byte* const source = reader.take(max_bytes(n), "buckets");
        reader.finish();
        float* const y = into.data();
        for_each_bucket(n, [&](index_t g, index_t m, index_t offset) {
            float norm;
            std::memcpy(&norm, source + offset, 4);
            if (!(norm >= 0) || !std::isfinite(norm)) [[unlikely]]
                fail("qsgd: message of ", bytes.size(), " bytes: byte ", offset, ": a norm of ", norm);
            std::uint32_t codes[plane_group];
            load_planes(source + offset + 4, m, code_.bits, codes);
            const qsgd_code code = code_;
            const float unit = code.unit(norm);
#pragma omp simd
            for (index_t i = 0; i < m; ++i) put(y[g * plane_group + i], code.decode(codes[i], unit));
        });
    }

    /// body(bucket, its values, where its bytes begin).
    template <class Body>
    void for_each_bucket(index_t n, Body body) const {
        const index_t whole = 4 + plane_bytes(plane_group, code_.bits);
        parallel_for((n + plane_group - 1) / plane_group, compress_grain / plane_group,
                     [&](index_t begin, index_t end) {
                         for (index_t g = begin; g < end; ++g)
                             body(g, std::min(n - g * plane_group, plane_group), g * whole);
                     });
    }

    qsgd_code code_;
};

}  // namespace cairn
