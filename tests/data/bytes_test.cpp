#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/bytes.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("bytes: numbers in both orders, and never past the end", "[bytes]") {
    const std::vector<std::uint8_t> raw{0x01, 0x02, 0x03, 0x04, 0xff};
    byte_reader big(raw, "f.bin"), little(raw, "f.bin");
    REQUIRE(big.number<std::uint32_t>("a number", std::endian::big) == 0x01020304u);
    REQUIRE(little.number<std::uint16_t>("a number", std::endian::little) == 0x0201u);
    REQUIRE(big.number<std::int8_t>("a number", std::endian::big) == -1);
    REQUIRE(big.left() == 0);
    REQUIRE(little.position() == 2);
    REQUIRE_THAT(message_of([&] { little.number<std::uint32_t>("a number", std::endian::little); }),
                 Contains("f.bin: truncated at byte 5: a number needs 4 bytes from byte 2, 3 are left"));
    REQUIRE_THAT(message_of([&] { little.take(~std::uint64_t{0}, "everything"); }), Contains("truncated"));
    REQUIRE(little.position() == 2);
}

TEST_CASE("bytes: claimed extents are counted without overflow", "[bytes]") {
    using extents = std::vector<std::uint64_t>;
    REQUIRE(checked_product(extents{}, 10, "f") == 1);
    REQUIRE(checked_product(extents{2, 5}, 10, "f") == 10);
    REQUIRE(checked_product(extents{2, 0, 5}, 10, "f") == 0);
    REQUIRE_THAT(message_of([] {
                     checked_product(extents{2, 6}, 10, "f");
                 }),
                 Contains("f: its header claims more than 10 elements"));
    const std::uint64_t huge = std::uint64_t{1} << 63;
    REQUIRE_THAT(message_of([&] {
                     checked_product(extents{huge, huge, 0}, most_elements, "f");
                 }),
                 Contains("claims more"));
}

TEST_CASE("bytes: files that cannot be read", "[bytes]") {
    const temporary_folder folder;
    REQUIRE(read_bytes(folder.write("empty", "")).empty());
    REQUIRE_THAT(message_of([&] { read_bytes(folder.path() / "missing"); }), Contains("missing: no such file"));
    REQUIRE_THAT(message_of([&] { read_bytes(folder.path()); }), Contains("not a regular file"));
}

}  // namespace cairn::test
