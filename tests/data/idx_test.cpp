#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/idx.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("idx: every element type, plain and packed", "[idx]") {
    const temporary_folder folder;
    const auto check = [&](std::uint8_t code, const bytes& elements, const std::vector<double>& expected) {
        const bytes plain = idx_file({2, 3}, elements, code);
        for (bool packed : {false, true}) {
            const idx_array a = read_idx(folder.write("a.idx", packed ? gzipped(plain) : plain));
            REQUIRE(a.shape == shape{2, 3});
            const auto t = a.to_tensor<double>();
            for (index_t i = 0; i < 6; ++i) {
                REQUIRE(a[i] == expected[static_cast<std::size_t>(i)]);
                REQUIRE(t[i] == expected[static_cast<std::size_t>(i)]);
            }
        }
    };
    constexpr auto big = std::endian::big;
    check(0x08, {0, 1, 2, 127, 128, 255}, {0, 1, 2, 127, 128, 255});
    check(0x09, {0, 1, 2, 127, 128, 255}, {0, 1, 2, 127, -128, -1});
    check(0x0b, elements_of<std::int16_t>({0, 1, -2, 300, -32768, 32767}, big), {0, 1, -2, 300, -32768, 32767});
    check(0x0c, elements_of<std::int32_t>({0, 1, -2, 70000, -2147483647, 5}, big), {0, 1, -2, 70000, -2147483647, 5});
    check(0x0d, elements_of<float>({0, 1.5f, -2, 1e30f, -0.25f, 5}, big),
          {0, 1.5, -2, static_cast<double>(1e30f), -0.25, 5});
    check(0x0e, elements_of<double>({0, 1.1, -2, 1e300, -0.25, 5}, big), {0, 1.1, -2, 1e300, -0.25, 5});
}

TEST_CASE("idx: elements that do not fit are refused", "[idx]") {
    const auto array = [](std::uint8_t code, const bytes& elements) {
        return parse_idx(idx_file({2}, elements, code), "x.idx");
    };
    constexpr auto big = std::endian::big;
    const auto integers = array(0x0c, elements_of<std::int32_t>({5, -1}, big));
    const auto message = [](const idx_array& a, auto example) {
        return message_of([&] { a.to_tensor<decltype(example)>(); });
    };
    REQUIRE(integers.to_tensor<std::int64_t>()[1] == -1);
    REQUIRE_THAT(message(integers, std::uint64_t{}), Contains("x.idx: element 1 is -1, which is no 8-byte integer"));
    for (const double value : {1.5, std::numeric_limits<double>::quiet_NaN(), 1e300}) {
        const auto real = array(0x0e, elements_of<double>({0, value}, big));
        REQUIRE_THAT(message(real, std::int64_t{}), Contains("which is no 8-byte integer"));
        REQUIRE(message(real, double{}).empty());
        REQUIRE_THAT(message(real, float{}),
                     value == 1e300 ? Contains("element 1 is 1e+300, too large for the 4-byte") : Contains(""));
    }
    REQUIRE(array(0x0e, elements_of<double>({0, std::numeric_limits<double>::infinity()}, big)).to_tensor<float>()[1] ==
            std::numeric_limits<float>::infinity());
}

TEST_CASE("idx: bad files are named, with the byte", "[idx]") {
    const auto message = [](bytes b) { return message_of([&] { parse_idx(std::move(b), "x.idx"); }); };
    const bytes good = idx_file({2, 3}, counting(6));
    REQUIRE(message(good).empty());
    REQUIRE_THAT(message({}), Contains("x.idx: truncated at byte 0") && Contains("magic"));
    REQUIRE_THAT(message({0, 0, 8}), Contains("truncated at byte 3"));
    REQUIRE_THAT(message(idx_file({2, 3}, counting(5))),
                 Contains("x.idx") && Contains("take 6 bytes from byte 12, 5 are there"));
    REQUIRE_THAT(message(idx_file({2, 3}, counting(7))), Contains("7 are there"));
    REQUIRE_THAT(message(idx_file({2, 3}, counting(6), 7)), Contains("byte 2: unknown IDX element type 7"));
    bytes bad = good;
    bad[0] = 'P';
    REQUIRE_THAT(message(bad), Contains("byte 0: not an IDX file"));
    bad = good;
    bad[3] = 0;
    REQUIRE_THAT(message(bad), Contains("rank 0"));
    bad[3] = 200;
    REQUIRE_THAT(message(bad), Contains("rank 200"));
    // 2^32 · 2^32 · 2^32 elements claimed by 16 bytes.
    REQUIRE_THAT(message(idx_file({0xffffffff, 0xffffffff, 0xffffffff}, {})), Contains("claims more than"));
    REQUIRE_THAT(message_of([] { read_idx("/nowhere/x.idx"); }), Contains("/nowhere/x.idx: no such file"));
    REQUIRE_THAT(message_of([] { read_idx("/"); }), Contains("not a regular file"));
}

}  // namespace cairn::test
