#pragma once
// Codes of numbers and the length of their messages: how a value becomes a few bits and how it comes back, one text for
// the kernels of all devices (cpu/codecs.hpp, grid/codecs.hpp). The files of the compressors say what each code
// promises: compress/bf16.hpp, fp16.hpp, natural.hpp, sign.hpp, qsgd.hpp.

#include <cairn/core/float16.hpp>
#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn {

/// Values that a host's thread encodes or decodes at a time, in formats whose pieces are independent: 256 KiB of
/// floats.
inline constexpr index_t compress_grain = index_t{1} << 16;
/// Values that share sixteen Philox blocks of random bits.
inline constexpr index_t random_group = 128;
/// Values whose codes are packed by planes together.
inline constexpr index_t plane_group = 128;

/// As what messages of one step may be added element by element, so that the sum decodes to the sum.
enum class summand { none, float32, bfloat16, float16 };

/// How decoded values enter an array: what decode and decode_add differ by.
struct assign {
    [[gnu::always_inline]] CAIRN_HD void operator()(float& into, float value) const { into = value; }
};
struct add_scaled {
    float scale = 1;
    [[gnu::always_inline]] CAIRN_HD void operator()(float& into, float value) const { into += scale * value; }
};

// 16 bits a value.

struct bf16_format {
    static constexpr const char* name = "bf16";
    static constexpr summand type = summand::bfloat16;
    static constexpr double contraction = 1 - 0x1p-16;
    static constexpr double variance = 0x1p-16;

    CAIRN_HD static std::uint16_t nearest(float x) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
        return static_cast<std::uint16_t>(is_nan(wide) ? (wide >> 16) | 0x40u : rounded);
    }
    CAIRN_HD static std::uint16_t stochastic(float x, std::uint32_t r) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        return static_cast<std::uint16_t>(is_nan(wide) ? (wide >> 16) | 0x40u : (wide + r) >> 16);
    }
    CAIRN_HD static float widen(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }

private:
    CAIRN_HD static bool is_nan(std::uint32_t wide) { return (wide & 0x7fffffffu) > 0x7f800000u; }
};

/// Finite values beyond 65504 become ±65504.
struct fp16_format {
    static constexpr const char* name = "fp16";
    static constexpr summand type = summand::float16;
    static constexpr double contraction = 0;  // nothing is left of tiny values, which may also become one unit
    static constexpr double variance = std::numeric_limits<double>::infinity();

    CAIRN_HD static std::uint16_t nearest(float x) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        return half_bits::nearest(wide, limited(wide & 0x7fffffffu));
    }
    CAIRN_HD static std::uint16_t stochastic(float x, std::uint32_t r) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t a = limited(wide & 0x7fffffffu);
        const std::uint32_t normal = capped((a - rebias + (r & 0x1fffu)) >> 13);
        const std::uint32_t is_tiny = below(a, smallest_normal);
        const float units = std::bit_cast<float>(a & is_tiny) * 0x1p24f;  // < 2^10
        const float u = (static_cast<float>(static_cast<std::int32_t>(r)) + 0.5f) * 0x1p-16f;
        const auto tiny = static_cast<std::uint32_t>(static_cast<std::int32_t>(units + u));
        return finish(wide, a, (tiny & is_tiny) | (normal & ~is_tiny));
    }
    CAIRN_HD static float widen(std::uint16_t h) { return half_bits::widened(h); }

private:
    static constexpr std::uint32_t rebias = half_bits::rebias, smallest_normal = half_bits::smallest_normal;
    static constexpr std::uint32_t largest = 0x477fe000u;  // 65504

    CAIRN_HD static std::uint32_t below(std::uint32_t a, std::uint32_t b) { return half_bits::below(a, b); }
    CAIRN_HD static std::uint32_t capped(std::uint32_t h) { return h < 0x7bffu ? h : 0x7bffu; }
    CAIRN_HD static std::uint32_t limited(std::uint32_t a) {
        const std::uint32_t too_large = below(largest, a) & below(a, 0x7f800000u);
        return (largest & too_large) | (a & ~too_large);
    }
    CAIRN_HD static std::uint16_t finish(std::uint32_t wide, std::uint32_t a, std::uint32_t h) {
        const std::uint32_t is_number = below(a, 0x7f800000u);
        const std::uint32_t special = (0x7c00u | (below(0x7f800000u, a) & 0x200u)) & ~is_number;
        return static_cast<std::uint16_t>(special | (h & is_number) | ((wide >> 16) & 0x8000u));
    }
};

/// n values of a 16-bit format, to nearest or at random.
template <class Format>
struct nearest_rounding {
    using format = Format;
    static index_t bytes(index_t n) { return 2 * n; }
};
template <class Format>
struct stochastic_rounding {
    using format = Format;
    static index_t bytes(index_t n) { return 2 * n; }
};

// 9 bits: ⌈n/8⌉ bytes of signs, n bytes of exponents.

struct natural_format {
    static index_t bytes(index_t n) { return (n + 7) / 8 + n; }
    /// The biased exponent that stands for a magnitude, by 16 random bits.
    CAIRN_HD static std::uint32_t exponent(std::uint32_t magnitude, std::uint32_t r) {
        const std::uint32_t e = (magnitude + (r << 7 | 64u)) >> 23;
        return e < 254u ? e : 254u;
    }
    /// The value; `negative` is 0 or 1.
    CAIRN_HD static float widen(std::uint32_t e, std::uint32_t negative) {
        return std::bit_cast<float>(negative << 31 | (e < 254u ? e : 254u) << 23);
    }
};

// 1 bit, and a scale for each block.

inline constexpr index_t one_scale = index_t{1} << 40;  // a block that no bucket fills

constexpr index_t scale_count(index_t n, index_t block) { return (n + block - 1) / block; }
constexpr index_t sign_bytes(index_t n, index_t block = one_scale) { return 4 * scale_count(n, block) + (n + 7) / 8; }

/// Scales are means of magnitudes.
struct sign_format {
    static constexpr index_t block = 1024;
    static index_t bytes(index_t n) { return sign_bytes(n, block); }
};

// A few levels of a bucket's norm, packed by planes: plane j holds bit j of all codes of a group of 128.

/// Bytes of n codes of `bits` bits in groups of 128.
constexpr index_t plane_bytes(index_t n, index_t bits) {
    return bits * (n / plane_group * (plane_group / 8) + (n % plane_group + 7) / 8);
}

/// The codes of s levels in b bits.
struct qsgd_code {
    int levels, bits;

    index_t bytes(index_t n) const { return 4 * ((n + plane_group - 1) / plane_group) + plane_bytes(n, bits); }

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

}  // namespace cairn
