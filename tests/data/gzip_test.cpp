#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/gzip.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("gzip: sizes from nothing to several megabytes, one member or two", "[gzip]") {
    for (std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20, (std::size_t{1} << 22) + 13}) {
        bytes plain(n);
        for (std::size_t i = 0; i < n; ++i) plain[i] = static_cast<std::uint8_t>(i * i >> 7);
        REQUIRE(gunzip(gzipped(plain), "a.gz") == plain);
        bytes twice = gzipped(plain);
        append(twice, gzipped(counting(9)));
        bytes expected = plain;
        append(expected, counting(9));
        REQUIRE(gunzip(twice, "a.gz") == expected);
        REQUIRE(inflate_raw(deflated(plain, -15), n, "a.zip") == plain);
    }
    // A thousand to one: output grows in steps.
    const bytes zeros(std::size_t{1} << 24);
    REQUIRE(gunzip(gzipped(zeros), "a.gz") == zeros);
}

TEST_CASE("gzip: truncated, corrupt, oversized and mistaken files", "[gzip]") {
    const bytes plain = counting(5000, 37), packed = gzipped(plain);
    for (std::size_t n = 0; n < packed.size(); ++n) {
        const bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(n));
        REQUIRE_THAT(message_of([&] { gunzip(cut, "a.gz"); }), Contains("a.gz"));
    }
    REQUIRE_THAT(message_of([&] { gunzip(bytes(packed.begin(), packed.end() - 9), "a.gz"); }), Contains("truncated"));
    bytes bad = packed;
    bad[bad.size() - 6] ^= 1;  // the checksum
    REQUIRE_THAT(message_of([&] { gunzip(bad, "a.gz"); }), Contains("corrupt") && Contains("incorrect data check"));
    REQUIRE_THAT(message_of([&] { gunzip(plain, "a.gz"); }), Contains("not a gzip file"));
    REQUIRE_THAT(message_of([&] { gunzip(packed, "a.gz", 4999); }), Contains("more than 4999 bytes"));
    REQUIRE(gunzip(packed, "a.gz", 5000) == plain);
    REQUIRE_THAT(message_of([&] { inflate_raw(deflated(plain, -15), 5001, "a.zip"); }),
                 Contains("unpacks to 5000 bytes, 5001"));
    REQUIRE_THAT(message_of([&] { inflate_raw(deflated(plain, -15), 4999, "a.zip"); }), Contains("more than 4999"));
    REQUIRE(crc32_of(counting(256)) == 0x29058c73u);
}

}  // namespace cairn::test
