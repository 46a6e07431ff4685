#pragma once
// What codecs of activations obey on a grid device (stash/): they keep their bounds, and their bytes are the host's. Of
// the bounded codec that holds where both compilers make the same of a product and a sum; `Alike` says so. Elsewhere a
// symbol in very many may be the next one, which changes the size of its group.

#include "device/cuda/law_numbers.hpp"

#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/simple_codecs.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace cairn::stash_laws {

using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;
using kernel_laws::same_bits;
using bits = tensor<std::uint8_t>;

const random_stream numbers{7, 1, 2};

// Around groups of 32, of 256, and blocks of 8192.
inline const std::vector<shape> shapes{{1},   {31},         {32},   {33},   {5, 7}, {255},
                                       {257}, {3, 11, 100}, {8191}, {8192}, {8193}, {2, 5, 3, 700}};

/// Normal values of growing deviation by channel; half of them 0 if `relu`.
inline tensor<float> values(const shape& s, bool relu, std::uint32_t stream = 1) {
    tensor<float> x = drawn<float>(s, stream);
    for (index_t i = 0; i < x.size(); ++i) x[i] = relu && x[i] < 0 ? 0 : x[i] * (1 + 0.5f * float(i % s.back()));
    return x;
}

inline bits random_mask(index_t n, std::uint32_t stream) {
    bits mask({simd::mask_bytes<float>(n)});
    for (index_t i = 0; i < mask.size(); ++i)
        mask[i] = static_cast<std::uint8_t>(random_stream{3, stream, 0}.bits(static_cast<std::uint64_t>(i)));
    return mask;
}
inline bool bit(const bits& mask, index_t i) { return (mask[i / 8] >> (i % 8)) & 1; }

/// x after packing and unpacking on D.
struct result {
    index_t bytes;
    bits body;
    tensor<float> back;
};
template <class D>
result packed_on(const activation_codec<D>& codec, const tensor<float>& x, const bits* gradient = nullptr,
                 const bits* zeros = nullptr, std::uint64_t first = 0) {
    const auto d_x = device_side<D>(x, memory_category::activations);
    tensor<std::uint8_t, D> d_gradient, d_zeros;
    pack_hints<D> hints{.random = numbers, .first_element = first};
    if (gradient) {
        d_gradient = device_side<D>(*gradient, memory_category::activations);
        hints.gradient_mask = &d_gradient;
    }
    if (zeros) d_zeros = device_side<D>(*zeros, memory_category::activations);
    const tensor<std::uint8_t, D>* const held[] = {&d_zeros};
    if (zeros) hints.zero_masks = held;
    const auto packed = codec.pack(d_x, hints);
    return {packed->bytes(), host_side(packed->body()), host_side(packed->unpack())};
}

/// The result on D, which is that of the same codec on the host.
template <class D, bool Alike>
result as_on_host(const activation_codec<>& on_cpu, const activation_codec<D>& codec, const tensor<float>& x,
                  const bits* gradient = nullptr, std::uint64_t first = 0) {
    result host = packed_on<cpu>(on_cpu, x, gradient, nullptr, first),
           device = packed_on<D>(codec, x, gradient, nullptr, first);
    REQUIRE(device.back.shape() == x.shape());
    if (Alike) {
        CHECK(device.bytes == host.bytes);
        CHECK(same_bits(device.body, host.body));
        CHECK(same_bits(device.back, host.back));
    } else {
        CHECK(double(device.bytes) == Approx(double(host.bytes)).epsilon(0.01).margin(8));
    }
    return device;
}
template <class D, bool Alike>
result bounded_as_on_host(const bounded_codec_config& c, const tensor<float>& x, const bits* gradient = nullptr,
                          std::uint64_t first = 0) {
    return as_on_host<D, Alike>(bounded_codec<>(c), bounded_codec<D>(c), x, gradient, first);
}

inline bounded_codec_config planes(float bound) { return {.bound = bound, .huffman = false}; }

template <class D, bool Alike>
void bounds_hold() {
    for (const shape& s : shapes)
        for (const bool relu : {false, true})
            for (const float bound : {0.3f, 1e-2f, 1e-8f}) {
                CAPTURE(s, relu, bound);
                tensor<float> x = values(s, relu);
                if (!relu) x[x.size() / 2] = 1e30f, x[0] = -1e-40f;
                const result got = bounded_as_on_host<D, Alike>(planes(bound), x, nullptr, 1234567);
                double worst = 0;
                bool zeros_stay = true;
                for (index_t i = 0; i < x.size(); ++i) {
                    worst = std::max(worst, std::abs(double(x[i]) - double(got.back[i])));
                    if (relu && s.size() > 100) zeros_stay = zeros_stay && (x[i] != 0 || got.back[i] == 0);
                }
                CHECK(worst <= double(bound));
                CHECK(zeros_stay);
            }
}

/// Two bounds by the gradient's mask; all elements of one kind too, and escapes in both streams.
template <class D, bool Alike>
void masked_bounds() {
    for (const shape& s : shapes)
        for (const int kind : {0, 1, 2}) {
            CAPTURE(s, kind);
            tensor<float> x = values(s, false);
            for (index_t i = 0; i < x.size(); i += 97) x[i] = 1e6f * float(i + 1);
            const bits mask = kind == 2 ? random_mask(x.size(), 2)
                                        : bits::filled({simd::mask_bytes<float>(x.size())}, kind ? 0xff : 0);
            bounded_codec_config c = planes(0.02f);
            c.masked_bound = 0.5f;
            const result got = bounded_as_on_host<D, Alike>(c, x, &mask);
            for (index_t i = 0; i < x.size(); ++i)
                REQUIRE(std::abs(double(x[i]) - double(got.back[i])) <= (bit(mask, i) ? 0.02 : 0.5) * 1.0001);
        }
}

/// In deviations of the channels. Moments of the host and of a device differ by rounding, so do symbols.
template <class D, bool>
void in_deviations() {
    for (const shape& s : {shape{64, 9, 12}, shape{700, 13}, shape{40, 300}}) {
        const tensor<float> x = values(s, false);
        const auto moments = detail::moments_of(x);
        const bits mask = random_mask(x.size(), 4);
        const bounded_codec_config c{.bound = 0.2f, .masked_bound = 1, .normalise = true, .huffman = false};
        const result host = packed_on<cpu>(bounded_codec<>(c), x, &mask),
                     device = packed_on<D>(bounded_codec<D>(c), x, &mask);
        CHECK(double(device.bytes) == Approx(double(host.bytes)).epsilon(0.01));
        double worst = 0;
        index_t other = 0;
        for (index_t i = 0; i < x.size(); ++i) {
            const double bound = (bit(mask, i) ? 0.2 : 1.0) * double(moments.deviation[i % s.back()]);
            worst = std::max(worst, std::abs(double(x[i]) - double(device.back[i])) / bound);
            other += std::abs(double(host.back[i]) - double(device.back[i])) > 0.01 * bound;
        }
        CHECK(worst <= 1.0001);
        CHECK(other <= x.size() / 1000);
    }
    tensor<float> x({2, 1});
    for (const float large : {1.9e19f, 3.4e38f}) {
        x[0] = large, x[1] = -large;
        const result got = packed_on<D>(bounded_codec<D>({.bound = 0.1f, .normalise = true, .huffman = false}), x);
        for (index_t i = 0; i < 2; ++i) CHECK(std::abs(double(got.back[i]) - double(x[i])) <= 0.1 * double(large));
    }
}

/// A mask that another slot holds is not stored again; ReLU's bits are those of its output.
template <class D, bool Alike>
void shared_masks() {
    for (const shape& s : shapes) {
        CAPTURE(s);
        const tensor<float> in = drawn<float>(s, 6);
        const auto d_in = on_device<D>(in);
        tensor<float, D> d_x(s);
        tensor<std::uint8_t, D> d_bits({simd::mask_bytes<float>(in.size())});
        D::set_bytes(d_bits.data(), 0xff, d_bits.bytes());
        sign_activation_forward(D{}, in.size(), 0.0f, d_in.data(), d_x.data(), d_bits.data());
        const tensor<float> x = on_host(d_x);
        const bits relu = on_host(d_bits);
        const auto found = detail::zeros_of(d_x, {});
        const bits non_zero = on_host(found.bits);
        index_t expected = 0;
        for (index_t i = 0; i < x.size(); ++i) {
            REQUIRE(bit(non_zero, i) == (x[i] != 0));
            REQUIRE(bit(relu, i) == (x[i] != 0));
            expected += x[i] != 0;
        }
        CHECK(found.non_zero == expected);
        const bool many = double(x.size() - expected) > 0.1 * double(x.size());
        const result alone = bounded_as_on_host<D, Alike>(planes(0.1f), x),
                     shared = packed_on<D>(bounded_codec<D>(planes(0.1f)), x, nullptr, &relu);
        CHECK(alone.bytes == shared.bytes + (many ? relu.bytes() : 0));
        CHECK(same_bits(alone.back, shared.back));
        bits other = non_zero.clone();
        other[0] ^= 1;
        CHECK(packed_on<D>(bounded_codec<D>(planes(0.1f)), x, nullptr, &other).bytes == alone.bytes);
    }
}

template <class D, bool>
void simple_codecs() {
    for (const shape& s : shapes)
        for (const float scale : {1e-44f, 1e-30f, 1.0f, 3e38f}) {
            CAPTURE(s, scale);
            tensor<float> x(s);
            for (index_t i = 0; i < x.size(); ++i) x[i] = scale * (static_cast<float>(i * 5 % 7) / 3 - 1);
            const auto half = as_on_host<D, true>(bf16_codec<>(), bf16_codec<D>(), x);
            for (index_t i = 0; i < x.size(); ++i)
                if (std::abs(x[i]) > 1e-37f) REQUIRE(std::abs(x[i] - half.back[i]) <= std::abs(x[i]) * 0x1p-8f);
            for (const int bits_each : {1, 3, 4, 8}) {
                const result got =
                    as_on_host<D, true>(group_codec<>(bits_each), group_codec<D>(bits_each), x, nullptr, 13);
                CHECK(got.bytes == (x.size() + 255) / 256 * (8 + 32 * bits_each));
            }
        }
    for (const int bits_each : {1, 2, 5})
        as_on_host<D, true>(group_codec<>(bits_each), group_codec<D>(bits_each), values({70, 77}, true));
}

template <class D, bool>
void not_finite() {
    const auto refused = [](const activation_codec<D>& codec, const tensor<float>& x) {
        CHECK_THROWS_WITH(codec.pack(on_device<D>(x), {.random = numbers}),
                          Catch::Matchers::Contains("an activation is ") &&
                              Catch::Matchers::Contains(concat("(element ", 123, " of ")));
    };
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        tensor<float> x = values({90, 100}, false);
        x[123] = broken;
        x[8999] = broken;
        refused(bounded_codec<D>(planes(0.1f)), x);
        refused(bounded_codec<D>({.bound = 0.1f, .normalise = true, .huffman = false}), x);
        refused(group_codec<D>(4), x);
    }
    CHECK_THROWS_WITH(bounded_codec<D>({.bound = 0.1f}).pack(on_device<D>(values({90}, true)), {}),
                      Catch::Matchers::Contains("set huffman to false"));
}

/// Packed tensors wait in the category of the host.
template <class D, bool Alike>
void memory() {
    const tensor<float> x = values({20, 1000}, true);
    const auto d_x = on_device<D>(x);
    const memory_use before = D::memory().use_of(memory_category::saved);
    const auto packed = bounded_codec<D>(planes(0.1f)).pack(d_x, {.random = numbers});
    const auto waits = D::memory().use_of(memory_category::saved).live - before.live;
    const index_t host_before = memory_pool::host().use_of(memory_category::saved).live;
    const auto on_cpu = bounded_codec<>(planes(0.1f)).pack(x, {.random = numbers});
    const auto host_waits = memory_pool::host().use_of(memory_category::saved).live - host_before;
    CHECK(waits >= packed->bytes());
    CHECK(waits < packed->bytes() + 3 * memory_pool::alignment);
    if (Alike) CHECK(waits == host_waits);
}

template <class D, bool Alike = true>
std::vector<law> all() {
    return {{"activations: the bound holds, zeros stay", bounds_hold<D, Alike>},
            {"activations: two bounds by the gradient's mask", masked_bounds<D, Alike>},
            {"activations: bounds in deviations of channels", in_deviations<D, Alike>},
            {"activations: masks that other slots hold", shared_masks<D, Alike>},
            {"activations: bfloat16 and groups", simple_codecs<D, Alike>},
            {"activations: what is not finite is named", not_finite<D, Alike>},
            {"activations: memory that waits", memory<D, Alike>}};
}

}  // namespace cairn::stash_laws
