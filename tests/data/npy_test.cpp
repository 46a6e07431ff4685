#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/npz.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

template <class T>
void check_type(const std::string& code, const std::vector<T>& values) {
    for (auto [mark, order] : {std::pair{"<", std::endian::little}, std::pair{">", std::endian::big}})
        for (int version : {1, 2, 3}) {
            const bytes file =
                npy_file((sizeof(T) == 1 ? "|" : mark) + code, "(2, 3)", elements_of(values, order), false, version);
            const npy_array a = parse_npy(file, "x.npy");
            REQUIRE(a.shape == shape{2, 3});
            const auto t = a.to_tensor<double>();
            for (index_t i = 0; i < 6; ++i) REQUIRE(t[i] == static_cast<double>(values[static_cast<std::size_t>(i)]));
        }
}

}  // namespace

TEST_CASE("npy: every element type, both byte orders, versions 1 to 3", "[npy]") {
    check_type<float>("f4", {0, -1.5f, 3e30f, 1e-40f, 5, 6});
    check_type<double>("f8", {0, -1.1, 3e300, 1e-310, 5, 6});
    check_type<std::int8_t>("i1", {0, -1, 127, -128, 5, 6});
    check_type<std::uint8_t>("u1", {0, 255, 127, 128, 5, 6});
    check_type<std::uint8_t>("b1", {0, 1, 1, 0, 0, 1});
    check_type<std::int16_t>("i2", {0, -1, 300, -32768, 5, 6});
    check_type<std::uint16_t>("u2", {0, 65535, 300, 32768, 5, 6});
    check_type<std::int32_t>("i4", {0, -1, 70000, -2147483647, 5, 6});
    check_type<std::uint32_t>("u4", {0, 4294967295u, 70000, 1, 5, 6});
    check_type<std::int64_t>("i8", {0, -1, 1ll << 40, -(1ll << 52), 5, 6});
    check_type<std::uint64_t>("u8", {0, 1, 1ull << 40, 1ull << 52, 5, 6});
}

TEST_CASE("npy: shapes, Fortran order, conversions", "[npy]") {
    // Element (i, j, k) = 100 i + 10 j + k, stored first axis fastest.
    std::vector<std::int32_t> values;
    for (int k = 0; k < 4; ++k)
        for (int j = 0; j < 3; ++j)
            for (int i = 0; i < 2; ++i) values.push_back(100 * i + 10 * j + k);
    const auto t = parse_npy(npy_file("<i4", "(2, 3, 4)", elements_of(values), true), "x.npy").to_tensor<float>();
    for (index_t i = 0; i < 2; ++i)
        for (index_t j = 0; j < 3; ++j)
            for (index_t k = 0; k < 4; ++k) REQUIRE(t(i, j, k) == static_cast<float>(100 * i + 10 * j + k));

    const auto scalar = parse_npy(npy_file("<f8", "()", elements_of<double>({2.5})), "x.npy");
    REQUIRE(scalar.shape.rank() == 0);
    REQUIRE(scalar.to_tensor<float>()[0] == 2.5f);
    REQUIRE(parse_npy(npy_file("<f8", "(3,)", elements_of<double>({1, 2, 3})), "x.npy").shape == shape{3});
    for (const char* python2 : {"(3L,)", "(3L, 1L)", "(1, 3L)"})
        REQUIRE(parse_npy(npy_file("<f8", python2, elements_of<double>({1, 2, 3})), "x.npy").shape.size() == 3);
    REQUIRE(parse_npy(npy_file("<f8", "(3, 0, 2)", {}), "x.npy").to_tensor<float>().size() == 0);

    const auto wide = parse_npy(npy_file("<i8", "(2,)", elements_of<std::int64_t>({1, 1ll << 31})), "x.npy");
    REQUIRE(wide.to_tensor<std::int64_t>()[1] == 1ll << 31);
    REQUIRE_THAT(message_of([&] { wide.to_tensor<std::int32_t>(); }), Contains("x.npy: element 1 is 2147483648"));
    const auto real = parse_npy(npy_file("<f4", "(2,)", elements_of<float>({3, 2.5f})), "x.npy");
    REQUIRE_THAT(message_of([&] { real.to_tensor<std::int32_t>(); }), Contains("element 1 is 2.5"));
    const auto edge = parse_npy(npy_file("<f4", "(1,)", elements_of<float>({2147483648.0f})), "x.npy");
    REQUIRE_THAT(message_of([&] { edge.to_tensor<std::int32_t>(); }), Contains("no 4-byte integer"));
    const auto huge = parse_npy(npy_file("<f8", "(2,)", elements_of<double>({3, -1e39})), "x.npy");
    REQUIRE(huge.to_tensor<double>()[1] == -1e39);
    REQUIRE_THAT(message_of([&] { huge.to_tensor<float>(); }), Contains("x.npy: element 1 is -1e+39, too large"));
}

TEST_CASE("npy: bad files", "[npy]") {
    const auto message = [](const bytes& b) { return message_of([&] { parse_npy(b, "x.npy"); }); };
    const bytes six = elements_of<float>({1, 2, 3, 4, 5, 6});
    REQUIRE(message(npy_file("<f4", "(2, 3)", six)).empty());
    REQUIRE_THAT(message({}), Contains("x.npy: truncated at byte 0"));
    REQUIRE_THAT(message(counting(100)), Contains("byte 0: not an npy file"));
    REQUIRE_THAT(message(npy_file("<f4", "(2, 3)", six, false, 4)), Contains("byte 6: npy version 4"));
    REQUIRE_THAT(message(npy_file("<f4", "(2, 4)", six)), Contains("x.npy"));
    REQUIRE_THAT(message(npy_file("<f4", "(2, 2)", six)), Contains("takes 16 bytes from byte 128, 24 are there"));
    REQUIRE_THAT(message(npy_file("|O", "(2, 3)", six)), Contains("element type '|O'") || Contains("object arrays"));
    REQUIRE_THAT(message(npy_file("|O8", "(2, 3)", six)), Contains("object arrays"));
    REQUIRE_THAT(message(npy_file("<f2", "(2, 3)", six)), Contains("element type '<f2'"));
    REQUIRE_THAT(message(npy_file("<c8", "(3,)", six)), Contains("element type '<c8'"));
    REQUIRE_THAT(message(npy_file("<f4", "(2, -3)", six)), Contains("an extent expected"));
    REQUIRE_THAT(message(npy_file("<f4", "(2, 3", six)), Contains("x.npy"));
    REQUIRE_THAT(message(npy_file("<f4", "(1,1,1,1,1,2,3)", six)), Contains("more than 6 axes"));
    REQUIRE_THAT(message(npy_file("<f4", "(1099511627776,)", six)), Contains("takes 4398046511104 bytes"));
    REQUIRE_THAT(message(npy_file("<f4", "(4294967296, 4294967296, 4294967296)", six)), Contains("claims more than"));
    REQUIRE_THAT(message(npy_file("<f4', 'x': 'y", "(2, 3)", six)), Contains("unknown key 'x'"));
}

TEST_CASE("npz: stored and deflated members, zip64 or not", "[npz]") {
    const temporary_folder folder;
    const bytes x = npy_file("<f4", "(2, 3)", elements_of<float>({1, 2, 3, 4, 5, 6}));
    const bytes y = npy_file("<i8", "(2,)", elements_of<std::int64_t>({7, 8}));
    for (bool deflate : {false, true})
        for (bool wide : {false, true}) {
            const npz_file npz(folder.write("a.npz", zip_file({{"x.npy", x}, {"folder/y.npy", y}}, deflate, wide)));
            REQUIRE(npz.names() == std::vector<std::string>{"x", "folder/y"});
            REQUIRE(npz.read("x").to_tensor<float>()[5] == 6);
            REQUIRE(npz.read("folder/y").to_tensor<std::int32_t>()[1] == 8);
            REQUIRE_THAT(message_of([&] { npz.read("z"); }), Contains("no array 'z'; there are: x, folder/y"));
        }
    REQUIRE(npz_file(zip_file({}, false), "a.npz").names().empty());
}

TEST_CASE("npz: bad files", "[npz]") {
    const bytes x = npy_file("<f4", "(2, 3)", elements_of<float>({1, 2, 3, 4, 5, 6}));
    const bytes good = zip_file({{"x.npy", x}}, true);
    const auto message = [](bytes b) { return message_of([&] { npz_file(std::move(b), "a.npz").read("x"); }); };
    REQUIRE(message(good).empty());
    REQUIRE_THAT(message({}), Contains("a.npz: 0 bytes are no zip file"));
    REQUIRE_THAT(message(counting(1000)), Contains("no end record"));
    for (std::size_t n = 0; n < good.size(); ++n)
        REQUIRE_FALSE(message(bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n))).empty());
    bytes bad = zip_file({{"x.npy", x}}, false);
    bad[100] ^= 1;  // inside the data
    REQUIRE_THAT(message(bad), Contains("a.npz[x.npy]: checksum"));
    bad = good;
    bad[bad.size() - 22 - 46 - 5 + 24 + 3] = 0xff;  // unpacked size in the directory
    REQUIRE_THAT(message(bad), Contains("corrupt directory"));
}

}  // namespace cairn::test
