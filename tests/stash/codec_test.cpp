#include "catch.hpp"

#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/simple_codecs.hpp>

using namespace cairn;

namespace codec_tests {

const random_stream numbers{7, 1, 2};

/// Normal values of growing deviation by channel; half of them 0 if `relu`.
tensor<float> values(const shape& s, bool relu) {
    tensor<float> x(s);
    for (index_t i = 0; i < x.size(); ++i) {
        const auto v =
            static_cast<float>(numbers.normal(static_cast<std::uint64_t>(i))) * (1.0f + 0.5f * float(i % s.back()));
        x[i] = relu && v < 0 ? 0.0f : v;
    }
    return x;
}

bool bit(const tensor<std::uint8_t>& bits, index_t i) { return (bits[i / 8] >> (i % 8)) & 1; }

/// The deviation of each channel, by plain loops.
std::vector<double> deviations(const tensor<float>& x) {
    const index_t channels = x.extent(-1), rows = x.size() / channels;
    std::vector<double> all;
    for (index_t c = 0; c < channels; ++c) {
        double mean = 0, squares = 0;
        for (index_t r = 0; r < rows; ++r) mean += double(x[r * channels + c]) / double(rows);
        for (index_t r = 0; r < rows; ++r) squares += std::pow(double(x[r * channels + c]) - mean, 2) / double(rows);
        all.push_back(std::sqrt(squares));
    }
    return all;
}

TEST_CASE("moments of channels are those of plain loops", "[stash]") {
    for (const index_t rows : {1, 3, 4, 7, 130}) {
        tensor<float> x({rows, 5});
        for (index_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<float>(random_stream{1, 9, 0}.normal(static_cast<std::uint64_t>(i))) + float(i % 5);
        const auto found = detail::moments_of(x);
        for (index_t c = 0; c < 5; ++c) {
            double mean = 0, variance = 0;
            for (index_t r = 0; r < rows; ++r) mean += double(x[5 * r + c]) / double(rows);
            for (index_t r = 0; r < rows; ++r) variance += std::pow(double(x[5 * r + c]) - mean, 2) / double(rows);
            INFO(rows << " rows, channel " << c);
            CHECK(double(found.mean[c]) == Approx(mean).epsilon(1e-4));
            if (rows > 1) CHECK(double(found.deviation[c]) == Approx(std::sqrt(variance)).epsilon(1e-3));
        }
    }
}

}  // namespace codec_tests

using namespace codec_tests;

TEST_CASE("bounded codec: the bound holds for every value, zeros stay", "[stash]") {
    for (const shape& s : {shape{1, 1}, shape{3, 7}, shape{2, 5, 5, 16}, shape{37, 41, 12}, shape{1, 20000, 1}})
        for (const bool relu : {false, true})
            for (const float bound : {0.3f, 1e-2f, 1e-8f})
                for (const bool huffman : {false, true}) {
                    CAPTURE(s, relu, bound, huffman);
                    tensor<float> x = values(s, relu);
                    if (!relu) x[x.size() / 2] = 1e30f, x[0] = -1e-40f;
                    const auto packed =
                        bounded_codec({.bound = bound, .huffman = huffman}).pack(x, {.random = numbers});
                    const tensor<float> y = packed->unpack();
                    REQUIRE(y.shape() == x.shape());
                    double worst = 0;
                    bool zeros_stay = true;
                    for (index_t i = 0; i < x.size(); ++i) {
                        worst = std::max(worst, std::abs(double(x[i]) - double(y[i])));
                        if (relu && s.size() > 100) zeros_stay = zeros_stay && (x[i] != 0 || y[i] == 0);
                    }
                    CHECK(worst <= double(bound));
                    CHECK(zeros_stay);
                }
}

TEST_CASE("bounded codec: two bounds by the gradient's mask, in deviations of channels", "[stash]") {
    const tensor<float> x = values({64, 9, 9, 12}, false);
    tensor<std::uint8_t> mask({simd::mask_bytes<float>(x.size())});
    for (index_t i = 0; i < mask.size(); ++i)
        mask[i] = static_cast<std::uint8_t>(numbers.bits(static_cast<std::uint64_t>(i)));
    const std::vector<double> deviation = deviations(x);
    for (const bool huffman : {false, true}) {
        CAPTURE(huffman);
        const auto packed = bounded_codec({.bound = 0.2f, .masked_bound = 1, .normalise = true, .huffman = huffman})
                                .pack(x, {.random = numbers, .gradient_mask = &mask});
        const tensor<float> y = packed->unpack();
        double worst = 0, squares = 0, sum = 0;
        index_t finely = 0;
        for (index_t i = 0; i < x.size(); ++i) {
            const double bound = (bit(mask, i) ? 0.2 : 1.0) * deviation[static_cast<std::size_t>(i % 12)],
                         error = (double(y[i]) - double(x[i])) / bound;
            worst = std::max(worst, std::abs(error));
            if (!bit(mask, i)) continue;
            squares += error * error, sum += error;
            ++finely;
        }
        CHECK(worst <= 1.0001);                                                       // deviations are rounded to float
        CHECK(std::sqrt(3 * squares / double(finely)) == Approx(1).margin(0.02));     // uniform: deviation bound / √3
        CHECK(std::abs(sum / double(finely)) < 4 / std::sqrt(3.0 * double(finely)));  // without bias
    }
}

TEST_CASE("bounded codec: deviations of channels far from zero, and of huge values", "[stash]") {
    for (const double mean : {1e4, -1e5, 1e3})
        for (const double scale : {1e-3, 1.0, 1e30}) {
            CAPTURE(mean, scale);
            tensor<float> x({400, 3});
            for (index_t i = 0; i < x.size(); ++i)
                x[i] = static_cast<float>(scale * (mean + numbers.normal(static_cast<std::uint64_t>(i))));
            const std::vector<double> deviation = deviations(x);
            const tensor<float> y =
                bounded_codec({.bound = 0.1f, .normalise = true}).pack(x, {.random = numbers})->unpack();
            for (index_t i = 0; i < x.size(); ++i)
                REQUIRE(std::abs(double(y[i]) - double(x[i])) <= 0.10001 * deviation[static_cast<std::size_t>(i % 3)]);
        }
    for (const float large : {1.9e19f, 3.4e38f})
        for (const float bound : {0.1f, 1.0f, 1e30f}) {
            tensor<float> x({2, 1});
            x[0] = large, x[1] = -large;
            const tensor<float> y =
                bounded_codec({.bound = bound, .normalise = true}).pack(x, {.random = numbers})->unpack();
            for (index_t i = 0; i < 2; ++i) {
                CAPTURE(large, bound, y[i]);
                CHECK(std::isfinite(y[i]));
                CHECK(std::abs(double(y[i]) - double(x[i])) <= double(bound) * double(large));
            }
        }
}

TEST_CASE("bounded codec: a mask that another slot holds is not stored again", "[stash]") {
    const tensor<float> x = values({32, 8, 8, 16}, true);
    const tensor<std::uint8_t> bits = detail::zeros_of(x, {}).bits;
    for (index_t i = 0; i < x.size(); ++i) REQUIRE(bit(bits, i) == (x[i] != 0));
    const tensor<std::uint8_t>* const held[] = {&bits};
    const bounded_codec codec({.bound = 0.1f});
    const auto alone = codec.pack(x, {.random = numbers}),
               shared = codec.pack(x, {.random = numbers, .zero_masks = held});
    CHECK(alone->bytes() == shared->bytes() + bits.bytes());
    const tensor<float> y = alone->unpack(), z = shared->unpack();
    CHECK(std::equal(y.span().begin(), y.span().end(), z.span().begin()));
}

TEST_CASE("bounded codec: the same bits on any number of threads", "[stash]") {
    const tensor<float> x = values({50, 11, 11, 16}, true);
    const int before = threads();
    std::vector<std::vector<float>> all;
    for (const int n : {1, 2, 5}) {
        set_threads(n);
        const tensor<float> y = bounded_codec({.bound = 0.1f}).pack(x, {.random = numbers})->unpack();
        all.emplace_back(y.span().begin(), y.span().end());
    }
    set_threads(before);
    CHECK(all[0] == all[1]);
    CHECK(all[0] == all[2]);
}

TEST_CASE("bounded codec: refuses no bound, and an activation that is not finite", "[stash]") {
    CHECK_THROWS_WITH(bounded_codec({.bound = 0}), Catch::Matchers::Contains("above 0"));
    tensor<float> x = values({4, 100}, false);
    x[123] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH(bounded_codec({.bound = 0.1f}).pack(x, {.random = numbers}),
                      Catch::Matchers::Contains("element 123"));
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const index_t at : {0, 123, 255, 399}) {
            x = values({4, 100}, false);
            x[at] = broken;
            const auto finite = Catch::Matchers::Contains("an activation is ");
            CHECK_THROWS_WITH(bounded_codec({.bound = 0.1f, .normalise = true}).pack(x, {.random = numbers}), finite);
            CHECK_THROWS_WITH(group_codec(4).pack(x, {.random = numbers}), finite);
        }
}

TEST_CASE("group codec: every range of finite floats", "[stash]") {
    for (const float scale : {1e-44f, 1e-39f, 1e-30f, 1.0f, 3e38f})
        for (const int bits : {1, 4, 8}) {
            CAPTURE(scale, bits);
            tensor<float> x({300});
            for (index_t i = 0; i < x.size(); ++i) x[i] = scale * (static_cast<float>(i % 7) / 3 - 1);
            const tensor<float> y = group_codec(bits).pack(x, {.random = numbers})->unpack();
            const auto [least, most] = std::minmax_element(x.data(), x.data() + 256);
            const double unit = (double(*most) - double(*least)) / double((1 << bits) - 1);
            for (index_t i = 0; i < x.size(); ++i)
                REQUIRE(std::abs(double(y[i]) - double(x[i])) <= 1.0001 * unit + 0x1p-149);
        }
}

TEST_CASE("byte planes: pack and unpack", "[stash]") {
    for (const index_t n : {1, 31, 32, 33, 1000}) {
        std::vector<std::uint8_t> in(static_cast<std::size_t>(n + 32), 0), out(static_cast<std::size_t>(n + 32), 9);
        for (index_t i = 0; i < n; ++i)
            in[static_cast<std::size_t>(i)] =
                static_cast<std::uint8_t>(numbers.bits(static_cast<std::uint64_t>(i)) >> (24 + i / 32 % 8));
        std::vector<std::uint8_t> packed(static_cast<std::size_t>(byte_planes::packed_bytes(in.data(), n)));
        CHECK(byte_planes::pack(in.data(), n, packed.data()) == packed.data() + packed.size());
        byte_planes::unpack(packed.data(), n, out.data());
        CHECK(std::equal(in.begin(), in.begin() + n, out.begin()));
    }
}

TEST_CASE("bf16 and group codecs: errors within half a unit and one unit", "[stash]") {
    const tensor<float> x = values({13, 77, 3}, false);
    const tensor<float> half = bf16_codec<>().pack(x, {})->unpack();
    for (index_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(x[i] - half[i]) <= std::abs(x[i]) * 0x1p-8f);
    for (const int bits : {1, 2, 3, 4, 8}) {
        const auto packed = group_codec(bits).pack(x, {.random = numbers});
        const tensor<float> y = packed->unpack();
        CHECK(packed->bytes() == (x.size() + 255) / 256 * (8 + 32 * bits));
        double worst = 0, sum = 0;
        for (index_t g = 0; g < x.size(); g += 256) {
            const index_t end = std::min(x.size(), g + 256);
            const auto [least, most] = std::minmax_element(x.data() + g, x.data() + end);
            const double unit = (double(*most) - double(*least)) / double((1 << bits) - 1);
            for (index_t i = g; i < end; ++i) {
                worst = std::max(worst, std::abs(double(y[i]) - double(x[i])) / unit);
                sum += (double(y[i]) - double(x[i])) / unit;
            }
        }
        CHECK(worst <= 1.0001);
        CHECK(std::abs(sum) < 4 * 0.5 * std::sqrt(double(x.size())));  // without bias
    }
}
