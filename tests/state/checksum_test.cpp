#include "catch.hpp"

#include <cairn/state/checksum.hpp>

#include <numeric>
#include <string>
#include <vector>

using cairn::crc32c;

TEST_CASE("crc32c gives the values of RFC 3720") {
    std::vector<unsigned char> bytes(32, 0);
    CHECK(crc32c(bytes.data(), 32) == 0x8A9136AAu);
    bytes.assign(32, 0xFF);
    CHECK(crc32c(bytes.data(), 32) == 0x62A8AB43u);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    CHECK(crc32c(bytes.data(), 32) == 0x46DD794Eu);
    std::reverse(bytes.begin(), bytes.end());
    CHECK(crc32c(bytes.data(), 32) == 0x113FDB5Cu);
    CHECK(crc32c("123456789", 9) == 0xE3069283u);
    CHECK(crc32c("", 0) == 0u);
}

TEST_CASE("crc32c in pieces equals crc32c at once, at any alignment") {
    std::string text(200, ' ');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 + 11);
    for (std::size_t begin = 0; begin < 9; ++begin) {
        const std::uint32_t whole = crc32c(text.data() + begin, 150);
        for (std::size_t cut = 0; cut <= 150; ++cut)
            REQUIRE(crc32c(text.data() + begin + cut, 150 - cut, crc32c(text.data() + begin, cut)) == whole);
    }
}

TEST_CASE("crc32c sees every changed bit") {
    std::string text(67, 'x');
    const std::uint32_t before = crc32c(text.data(), text.size());
    for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
        text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
        REQUIRE(crc32c(text.data(), text.size()) != before);
        text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    }
}
