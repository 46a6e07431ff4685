#include "catch.hpp"

#include <cairn/device/cpu/simd.hpp>
#include <cairn/device/cpu/simd_codes.hpp>

#include "device/cpu/kernel_numbers.hpp"

#include <limits>

namespace cairn {

using namespace kernel_tests;

TEMPLATE_TEST_CASE("simd: arithmetic and loads of whole and shorter packs", "[simd]", float, double) {
    using T = TestType;
    constexpr index_t lanes = simd::lanes<T>;
    const auto a = draw<T>(lanes, 1), b = draw<T>(lanes, 2);
    std::vector<T> c(lanes);
    simd::store(c.data(), simd::load(a.data()) * simd::load(b.data()) + simd::pack<T>(T(3)));
    for (std::size_t i = 0; i < c.size(); ++i) CHECK(std::abs(c[i] - (a[i] * b[i] + 3)) <= 10 * eps<T>());
    for (index_t count = 0; count < lanes; ++count) {
        std::vector<T> out(lanes, T(-7));
        simd::store(out.data(), simd::load(a.data(), count), lanes);
        for (index_t i = 0; i < lanes; ++i) CHECK(out[std::size_t(i)] == (i < count ? a[std::size_t(i)] : T(0)));
        std::fill(out.begin(), out.end(), T(-7));
        simd::store(out.data(), simd::load(a.data()), count);
        for (index_t i = 0; i < lanes; ++i) CHECK(out[std::size_t(i)] == (i < count ? a[std::size_t(i)] : T(-7)));
    }
}

TEMPLATE_TEST_CASE("simd: comparisons, their bits and what they select", "[simd]", float, double) {
    using T = TestType;
    constexpr std::size_t lanes = simd::lanes<T>;
    std::vector<T> a = draw<T>(lanes, 1), b = draw<T>(lanes, 2);
    a[1] = b[1];
    a[2] = std::numeric_limits<T>::quiet_NaN();
    b[3] = std::numeric_limits<T>::quiet_NaN();
    a[4] = std::numeric_limits<T>::infinity();
    const simd::pack<T> x = simd::load(a.data()), y = simd::load(b.data());
    const auto check = [&](const simd::mask<T>& m, auto&& expected) {
        const unsigned bits = simd::to_bits(m);
        std::uint8_t stored[2] = {};
        simd::store_bits(stored, m);
        std::vector<T> chosen(lanes), kept(lanes);
        simd::store(chosen.data(), simd::select(simd::load_bits<T>(stored), x, y));
        simd::store(kept.data(), simd::keep(simd::from_bits<T>(static_cast<simd::lane_bits<T>>(bits)), x));
        for (std::size_t i = 0; i < lanes; ++i) {
            CAPTURE(i, a[i], b[i]);
            const bool on = expected(a[i], b[i]);
            CHECK(((bits >> i) & 1u) == (on ? 1u : 0u));
            CHECK(((stored[i / 8] >> (i % 8)) & 1) == (on ? 1 : 0));
            const T other = on ? a[i] : b[i], zero = on ? a[i] : T(0);
            CHECK((chosen[i] == other || (std::isnan(chosen[i]) && std::isnan(other))));
            CHECK((kept[i] == zero || (std::isnan(kept[i]) && std::isnan(zero))));
        }
    };
    check(simd::greater(x, y), [](T u, T v) { return u > v; });
    check(simd::not_less_equal(x, y), [](T u, T v) { return !(u <= v); });
    check(simd::equal(x, y), [](T u, T v) { return u == v; });
    check(simd::unordered(x), [](T u, T) { return std::isnan(u); });
    check(simd::either(simd::equal(x, y), simd::unordered(x)), [](T u, T v) { return u == v || std::isnan(u); });
}

TEMPLATE_TEST_CASE("simd: codes, sums, widening", "[simd]", float, double) {
    using T = TestType;
    constexpr index_t lanes = simd::lanes<T>;
    const auto check = [&](auto code) {
        using Code = decltype(code);
        std::vector<Code> from(lanes);
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Code>(255 - 16 * i);
        for (index_t count = 1; count <= lanes; ++count) {
            std::vector<Code> codes(lanes, Code(9));
            const auto loaded = simd::codes<T, Code>::load(from.data(), count);
            loaded.store(codes.data(), count);
            for (index_t i = 0; i < lanes; ++i) {
                const auto at = std::size_t(i);
                CHECK(codes[at] == (i < count ? from[at] : Code(9)));
                const unsigned same = simd::to_bits(loaded == simd::codes<T, Code>(from[at]));
                CHECK(same == (i < count ? 1u << i : 0u));
                const auto other = select(simd::from_bits<T>(static_cast<simd::lane_bits<T>>(1u << i)),
                                          simd::codes<T, Code>(Code(7)), loaded);
                std::vector<Code> mixed(lanes);
                other.store(mixed.data(), lanes);
                for (index_t k = 0; k < lanes; ++k)
                    CHECK(mixed[std::size_t(k)] == (k == i ? Code(7) : k < count ? from[std::size_t(k)] : Code(0)));
            }
        }
    };
    check(std::uint8_t{});
    check(std::int32_t{});

    std::vector<T> whole(lanes);
    double expected = 0;
    for (std::size_t i = 0; i < whole.size(); ++i)
        expected += static_cast<double>(whole[i] = static_cast<T>(255 - 16 * i));
    CHECK(static_cast<double>(simd::sum(simd::load(whole.data()))) == expected);

    const auto f = draw<float>(16, 3);
    const simd::double_packs wide = simd::widen(simd::load(f.data()));
    double back[16];
    simd::store(back, wide.low);
    simd::store(back + 8, wide.high);
    for (std::size_t i = 0; i < 16; ++i) CHECK(back[i] == static_cast<double>(f[i]));
}

}  // namespace cairn
