#pragma once
// Messages of codes (device/codes.hpp) made and read on the host. For each code
//   encode_values(cpu{}, code, n, x, out, random)            the message of x (n); false where a value is not finite
//                                                            and cannot be sent
//   decode_values(cpu{}, code, who, bytes, n, into, put)     put(into[i], value i); throws on a damaged message, naming
//                                                            the byte
// device/grid/codecs.hpp has the same. Pieces are independent: the bits do not depend on the number of threads.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/message_reader.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/bit_planes.hpp>
#include <cairn/device/cpu/random_bits.hpp>
#include <cairn/device/cpu/sign_bits.hpp>

#include <atomic>
#include <string_view>
#include <type_traits>

namespace cairn {

namespace detail {

/// The announcement of a code's kernel that moves `moved` bytes of numbers a value besides the message.
template <class Code>
kernel_call codec_call(const char* kind, const Code& code, index_t n, double moved) {
    return kernel_call(kind, "f32", static_cast<double>(n),
                       moved * static_cast<double>(n) + static_cast<double>(code.bytes(n)), {n, code.bytes(n)});
}

/// each(group, first value, number of values) for groups of 128.
template <class Each>
void for_each_group(index_t n, Each each) {
    parallel_for((n + random_group - 1) / random_group, compress_grain / random_group, [&](index_t begin, index_t end) {
        for (index_t g = begin; g < end; ++g) each(g, g * random_group, std::min(n - g * random_group, random_group));
    });
}

}  // namespace detail

template <class Format>
bool encode_values(cpu, const nearest_rounding<Format>& code, index_t n, const float* x, std::byte* out,
                   const random_stream&) {
    const kernel_call call = detail::codec_call("encode by rounding", code, n, 4);
    auto* const target = reinterpret_cast<std::uint16_t*>(out);  // aligned
    parallel_for(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
        for (index_t i = begin; i < end; ++i) target[i] = Format::nearest(x[i]);
    });
    return true;
}

template <class Format>
bool encode_values(cpu, const stochastic_rounding<Format>& code, index_t n, const float* x, std::byte* out,
                   const random_stream& stream) {
    const kernel_call call = detail::codec_call("encode by stochastic rounding", code, n, 4);
    auto* const target = reinterpret_cast<std::uint16_t*>(out);  // aligned
    const group_bits random(stream);
    parallel_for((n + random_group - 1) / random_group, compress_grain / random_group, [=](index_t begin, index_t end) {
        for (index_t g = begin; g < end; ++g) {
            std::uint32_t r[random_group];
            random.fill(g, r);
            const index_t first = g * random_group, count = std::min(n - first, random_group);
#pragma omp simd
            for (index_t i = 0; i < count; ++i) target[first + i] = Format::stochastic(x[first + i], r[i]);
        }
    });
    return true;
}

template <class Code, class Put>
    requires requires { typename Code::format; }
void decode_values(cpu, const Code& code, std::string_view who, std::span<const std::byte> bytes, index_t n,
                   float* into, Put put) {
    const kernel_call call = detail::codec_call("decode of rounding", code, n, 8);
    if (on_phantom_rank()) return;  // the message's bytes are not there
    message_reader reader(who, bytes);
    const std::byte* const source = reader.take(2 * n, "values");
    reader.finish();
    parallel_for(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
        for (index_t i = begin; i < end; ++i) {
            std::uint16_t h;
            std::memcpy(&h, source + 2 * i, 2);
            put(into[i], Code::format::widen(h));
        }
    });
}

inline bool encode_values(cpu, const natural_format& code, index_t n, const float* x, std::byte* out,
                          const random_stream& stream) {
    const kernel_call call = detail::codec_call("encode natural", code, n, 4);
    std::byte* const signs = out;
    auto* const exponents = reinterpret_cast<std::uint8_t*>(out + (n + 7) / 8);
    const group_bits random(stream);
    const index_t groups = (n + random_group - 1) / random_group;
    return parallel_sum<index_t>(groups, compress_grain / random_group, [=](index_t begin, index_t end) {
               std::uint32_t infinite = 0;
               for (index_t g = begin; g < end; ++g) {
                   const index_t first = g * random_group, m = std::min(n - first, random_group);
                   std::uint32_t r[random_group], found = 0;
                   std::uint8_t rounded[random_group];  // of its own: bytes in the message might alias x
                   random.fill(g, r);
#pragma omp simd reduction(| : found)
                   for (index_t i = 0; i < m; ++i) {
                       const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[first + i]) & 0x7fffffffu;
                       rounded[i] = static_cast<std::uint8_t>(natural_format::exponent(magnitude, r[i]));
                       found |= magnitude >= 0x7f800000u ? 1u : 0u;
                   }
                   infinite |= found;
                   std::memcpy(exponents + first, rounded, static_cast<std::size_t>(m));
                   for (index_t i = 0; i < m; i += 16) {
                       const index_t count = std::min<index_t>(16, m - i);
                       const auto lanes = simd::to_bits(
                           simd::greater(simd::pack<float>(0),
                                         count == 16 ? simd::load(x + first + i) : simd::load(x + first + i, count)));
                       std::memcpy(signs + (first + i) / 8, &lanes, static_cast<std::size_t>((count + 7) / 8));
                   }
               }
               return static_cast<index_t>(infinite);
           }) == 0;
}

template <class Put>
void decode_values(cpu, const natural_format& code, std::string_view who, std::span<const std::byte> bytes, index_t n,
                   float* into, Put put) {
    const kernel_call call = detail::codec_call("decode natural", code, n, 8);
    if (on_phantom_rank()) return;  // the message's bytes are not there
    message_reader reader(who, bytes);
    const std::byte* const signs = reader.take((n + 7) / 8, "signs");
    const auto* const exponents = reinterpret_cast<const std::uint8_t*>(reader.take(n, "exponents"));
    reader.finish();
    parallel_for((n + random_group - 1) / random_group, compress_grain / random_group, [=](index_t begin, index_t end) {
        for (index_t first = begin * random_group; first < std::min(n, end * random_group); first += 16) {
            const index_t m = std::min<index_t>(16, n - first);
            std::uint16_t lanes = 0;
            std::memcpy(&lanes, signs + first / 8, static_cast<std::size_t>((m + 7) / 8));
            const std::uint32_t all = lanes;
            const auto decode_run = [&](auto count) {
#pragma omp simd
                for (index_t i = 0; i < count; ++i) {
                    put(into[first + i], natural_format::widen(exponents[first + i], (all >> i) & 1u));
                }
            };
            if (m == 16)
                decode_run(std::integral_constant<index_t, 16>{});
            else
                decode_run(m);
        }
    });
}

inline bool encode_values(cpu, const sign_format& code, index_t n, const float* x, std::byte* out,
                          const random_stream&) {
    const kernel_call call = detail::codec_call("encode sign", code, n, 4);
    constexpr index_t block = sign_format::block;
    const index_t blocks = scale_count(n, block);
    std::byte* const bits = out + 4 * blocks;
    std::atomic<bool> finite = true;
    parallel_for(blocks, compress_grain / block, [&](index_t begin, index_t end) {
        for (index_t b = begin; b < end; ++b) {
            const index_t count = std::min(block, n - b * block);
            const magnitude_sums sums =
                pack_signs({x + b * block, static_cast<std::size_t>(count)}, bits + b * block / 8);
            const auto scale = static_cast<float>(sums.absolute / static_cast<double>(count));
            if (!std::isfinite(sums.absolute)) finite = false;
            std::memcpy(out + 4 * b, &scale, 4);
        }
    });
    return finite;
}

template <class Put>
void decode_values(cpu, const sign_format& code, std::string_view who, std::span<const std::byte> bytes, index_t n,
                   float* into, Put put) {
    const kernel_call call = detail::codec_call("decode sign", code, n, 8);
    decode_signs(who, bytes, {into, static_cast<std::size_t>(n)}, put, sign_format::block);
}

inline bool encode_values(cpu, const qsgd_code& code, index_t n, const float* x, std::byte* out,
                          const random_stream& stream) {
    const kernel_call call = detail::codec_call("encode qsgd", code, n, 4);
    const group_bits random(stream);
    const index_t whole = 4 + plane_bytes(plane_group, code.bits);
    std::atomic<bool> finite = true;
    detail::for_each_group(n, [&, code](index_t g, index_t first, index_t m) {
        const float* const v = x + first;
        std::byte* const target = out + g * whole;
        double squares = 0;
#pragma omp simd reduction(+ : squares)
        for (index_t i = 0; i < m; ++i) squares += static_cast<double>(v[i]) * static_cast<double>(v[i]);
        if (!std::isfinite(squares)) [[unlikely]] {
            finite = false;
            return;
        }
        const float norm = qsgd_code::norm(squares);
        std::memcpy(target, &norm, 4);
        const float divisor = norm > 0 ? norm : 1.0f;
        std::uint32_t r[plane_group], codes[plane_group] = {};
        random.fill(g, r);
#pragma omp simd
        for (index_t i = 0; i < m; ++i) codes[i] = code.encode(v[i], divisor, r[i]);
        store_planes(codes, m, code.bits, target + 4);
    });
    return finite;
}

template <class Put>
void decode_values(cpu, const qsgd_code& code, std::string_view who, std::span<const std::byte> bytes, index_t n,
                   float* into, Put put) {
    const kernel_call call = detail::codec_call("decode qsgd", code, n, 8);
    if (on_phantom_rank()) return;  // the message's bytes are not there
    const index_t whole = 4 + plane_bytes(plane_group, code.bits);
    message_reader reader(who, bytes);
    const std::byte* const source =
        reader.take(4 * ((n + plane_group - 1) / plane_group) + plane_bytes(n, code.bits), "buckets");
    reader.finish();
    detail::for_each_group(n, [&, code](index_t g, index_t first, index_t m) {
        float norm;
        std::memcpy(&norm, source + g * whole, 4);
        if (!(norm >= 0) || !std::isfinite(norm)) [[unlikely]]
            fail(who, ": message of ", bytes.size(), " bytes: byte ", g * whole, ": a norm of ", norm);
        std::uint32_t codes[plane_group];
        load_planes(source + g * whole + 4, m, code.bits, codes);
        const float unit = code.unit(norm);
#pragma omp simd
        for (index_t i = 0; i < m; ++i) put(into[first + i], code.decode(codes[i], unit));
    });
}

}  // namespace cairn
