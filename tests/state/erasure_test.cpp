// The erasure code against plain arithmetic with polynomials over {0, 1}.

#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/erasure.hpp>

#include <bit>

namespace cairn {

namespace {

/// a · b: the product of two polynomials, then what a division by x⁸ + x⁴ + x³ + x² + 1 leaves.
std::uint8_t polynomial_product(std::uint8_t a, std::uint8_t b) {
    std::uint32_t product = 0;
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j)
            if ((a >> i & 1) && (b >> j & 1)) product ^= 1u << (i + j);
    for (int degree = 14; degree >= 8; --degree)
        if (product >> degree & 1) product ^= 0x11du << (degree - 8);
    return static_cast<std::uint8_t>(product);
}

using chunk = std::vector<std::byte>;

chunk drawn_bytes(std::size_t bytes, std::uint32_t stream) {
    const random_stream numbers{7, stream};
    chunk all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(numbers.bits(i));
    return all;
}

/// The parities, byte by byte.
std::vector<chunk> plain_parities(const std::vector<chunk>& data, int m) {
    std::vector<chunk> all;
    for (int j = 0; j < m; ++j) {
        chunk parity(data[0].size());
        for (std::size_t i = 0; i < data.size(); ++i) {
            const auto divisor = static_cast<std::uint8_t>(j ^ (m + static_cast<int>(i)));
            std::uint8_t factor = 1;
            if (m > 1)
                while (polynomial_product(factor, divisor) != 1) ++factor;
            for (std::size_t b = 0; b < parity.size(); ++b)
                parity[b] ^= std::byte{polynomial_product(factor, std::to_integer<std::uint8_t>(data[i][b]))};
        }
        all.push_back(parity);
    }
    return all;
}

}  // namespace

TEST_CASE("erasure: products and inverses of all bytes", "[erasure]") {
    for (unsigned a = 0; a < 256; ++a) {
        for (unsigned b = 0; b < 256; ++b)
            REQUIRE(gf_product(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)) ==
                    polynomial_product(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)));
        const auto x = static_cast<std::uint8_t>(a);
        if (a > 0) REQUIRE(polynomial_product(x, gf_inverse(x)) == 1);
    }
}

TEST_CASE("erasure: products of arrays, at any length and alignment, by a table and by ISA-L", "[erasure]") {
    const chunk from = drawn_bytes(700, 1), before = drawn_bytes(700, 2);
    for (const std::uint8_t factor : std::vector<std::uint8_t>{0, 1, 2, 29, 142, 255})
        for (const std::size_t bytes : std::vector<std::size_t>{0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 640})
            for (const std::size_t begin : std::vector<std::size_t>{0, 1, 7, 32}) {
                chunk expected = before, got = before, by_table = before;
                for (std::size_t i = 0; i < bytes; ++i)
                    expected[begin + i] ^=
                        std::byte{polynomial_product(factor, std::to_integer<std::uint8_t>(from[begin + i]))};
                add_product(std::span(got).subspan(begin, bytes), factor, std::span(from).subspan(begin, bytes));
                detail::add_product_by_table(by_table.data() + begin, factor, from.data() + begin, bytes);
                CAPTURE(factor, bytes, begin);
                REQUIRE(got == expected);
                REQUIRE(by_table == expected);
            }
    chunk longer(100, std::byte{3});  // a chunk that ends early goes on with zeros
    add_product(longer, 7, std::span<const std::byte>(from).first(40));
    CHECK(longer[39] == (std::byte{3} ^ std::byte{gf_product(7, std::to_integer<std::uint8_t>(from[39]))}));
    CHECK(std::all_of(longer.begin() + 40, longer.end(), [](std::byte b) { return b == std::byte{3}; }));
}

TEST_CASE("erasure: all sets of lost chunks and parities come back, one more is refused", "[erasure]") {
    const std::size_t bytes = 100;
    for (const int n : {4, 5, 6, 8})
        for (int m = 1; m <= 3; ++m) {
            const int k = n - m;
            std::vector<chunk> data;
            for (int i = 0; i < k; ++i) data.push_back(drawn_bytes(bytes, static_cast<std::uint32_t>(i)));
            const std::vector<chunk> parities = plain_parities(data, m);
            for (int j = 0; j < m; ++j) {  // encoded by the library
                chunk parity(bytes);
                for (int i = 0; i < k; ++i)
                    add_product(parity, parity_factor(m, j, i), data[static_cast<std::size_t>(i)]);
                REQUIRE(parity == parities[static_cast<std::size_t>(j)]);
            }
            for (unsigned gone = 0; gone < 1u << n; ++gone) {  // bits: chunks, then parities
                std::vector<int> lost;
                for (int i = 0; i < k; ++i)
                    if (gone >> i & 1) lost.push_back(i);
                std::vector<bool> has_parity;
                for (int j = 0; j < m; ++j) has_parity.push_back(!(gone >> (k + j) & 1));
                CAPTURE(n, m, gone);
                if (std::popcount(gone) > m) {
                    if (static_cast<int>(lost.size()) > std::count(has_parity.begin(), has_parity.end(), true))
                        REQUIRE_THROWS_WITH(solve_lost_chunks(k, lost, has_parity),
                                            Catch::Contains("parities are left"));
                    continue;
                }
                for (const lost_chunk& one : solve_lost_chunks(k, lost, has_parity)) {
                    chunk rebuilt(bytes);
                    for (int i = 0; i < k; ++i)
                        if (!(gone >> i & 1))
                            add_product(rebuilt, one.of_chunk[static_cast<std::size_t>(i)],
                                        data[static_cast<std::size_t>(i)]);
                        else
                            REQUIRE(one.of_chunk[static_cast<std::size_t>(i)] == 0);
                    for (int j = 0; j < m; ++j)
                        if (!(gone >> (k + j) & 1))
                            add_product(rebuilt, one.of_parity[static_cast<std::size_t>(j)],
                                        parities[static_cast<std::size_t>(j)]);
                    REQUIRE(rebuilt == data[static_cast<std::size_t>(one.chunk)]);
                }
            }
        }
}

TEST_CASE("erasure: impossible factors and matrices are refused", "[erasure]") {
    CHECK_THROWS_WITH(parity_factor(2, 2, 0), Catch::Contains("parity 2 of 2"));
    CHECK_THROWS_WITH(parity_factor(2, 0, 254), Catch::Contains("256 chunks and parities"));
    CHECK_THROWS_WITH(detail::gf_inverse_matrix({1, 2, 2, 4}, 2), Catch::Contains("without an inverse"));
    CHECK(detail::gf_inverse_matrix({0, 1, 1, 0}, 2) == std::vector<std::uint8_t>{0, 1, 1, 0});
}

}  // namespace cairn
