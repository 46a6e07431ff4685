// Pieces of a tensor: what two of them share, against loops over elements.

#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/piece.hpp>

#include <map>
#include <vector>

namespace cairn {
namespace {

/// Random numbers below n, one after another.
struct piece_dice {
    random_stream random;
    std::uint64_t next = 0;
    index_t below(index_t n) { return static_cast<index_t>(random.uniform(next++) * static_cast<double>(n)); }
};

piece random_piece(piece_dice& dice, const shape& global) {
    piece p{global, {}, {}, 0, 0};
    for (int a = 0; a < global.rank(); ++a) {
        const index_t begin = dice.below(3) ? 0 : dice.below(global[a]);
        p.begin[static_cast<std::size_t>(a)] = begin;
        p.extent.push_back(dice.below(3) ? global[a] - begin : dice.below(global[a] - begin + 1));
    }
    p.first = dice.below(2) ? 0 : dice.below(p.extent.size() + 1);
    p.count = dice.below(2) ? p.extent.size() - p.first : dice.below(p.extent.size() - p.first + 1);
    return p;
}

/// Position in the whole tensor of each element of a piece, by plain division.
std::vector<index_t> positions(const piece& p) {
    std::vector<index_t> all;
    for (index_t i = p.first; i < p.first + p.count; ++i) {
        index_t rest = i, position = 0, stride = 1;
        for (int a = p.global.rank(); a-- > 0;) {
            position += (p.begin[static_cast<std::size_t>(a)] + rest % p.extent[a]) * stride;
            rest /= p.extent[a];
            stride *= p.global[a];
        }
        all.push_back(position);
    }
    return all;
}

void check_pairs(int pairs, std::uint64_t seed) {
    piece_dice dice{{seed, 0, 0}};
    for (int i = 0; i < pairs; ++i) {
        shape global;
        for (index_t axes = dice.below(6); axes > 0; --axes) global.push_back(1 + dice.below(5));
        const piece a = random_piece(dice, global), b = random_piece(dice, global);
        REQUIRE(a.fits());
        const std::vector<index_t> in_a = positions(a), in_b = positions(b);
        std::map<index_t, index_t> of_a;
        for (std::size_t e = 0; e < in_a.size(); ++e) of_a[in_a[e]] = static_cast<index_t>(e);
        std::vector<index_t> from(in_a.size()), to(in_b.size(), -1), expected(in_b.size(), -1);
        for (std::size_t e = 0; e < in_a.size(); ++e) from[e] = static_cast<index_t>(e);
        index_t shared = 0;
        for (std::size_t e = 0; e < in_b.size(); ++e)
            if (const auto found = of_a.find(in_b[e]); found != of_a.end()) expected[e] = found->second, ++shared;
        INFO("from " << a << " to " << b);
        REQUIRE(copy_shared(a, from.data(), b, to.data(), sizeof(index_t)) == shared);
        REQUIRE(to == expected);
        REQUIRE(shared_elements(b, a) == shared);
    }
}

}  // namespace

TEST_CASE("what two random pieces share is what a loop over elements finds") { check_pairs(2000, 1); }
TEST_CASE("what two random pieces share, many", "[.exhaustive]") { check_pairs(200'000, 2); }

TEST_CASE("pieces of a sliced parameter have the positions that its layout says") {
    for (const index_t parts : {1, 3}) {
        parameter_layout layout{.global = {12, 5}, .begin = {parts == 3 ? 1 : 4, 2}, .parts = parts};
        const shape here{6, 2};
        for (const range part : {range{3, 7}, range{0, 12}, range{4, 4}}) {
            std::vector<index_t> expected, found, in_rows;
            for (index_t i = part.begin; i < part.end(); ++i) expected.push_back(layout.global_index(here, i));
            for (const piece& p : piece::of(layout, here, part)) {
                REQUIRE(p.fits());
                for (const index_t at : positions(p)) found.push_back(at);
                for (const index_t at : positions(p.in_row(2, 4))) in_rows.push_back(at - 2 * 60);
            }
            CHECK(found == expected);
            CHECK(in_rows == expected);
        }
    }
}

TEST_CASE("pieces that do not lie within their tensor are found") {
    CHECK(piece::whole({2, 3}).fits());
    CHECK_FALSE(piece{{2, 3}, {0, 1}, {2, 3}, 0, 6}.fits());
    CHECK_FALSE(piece{{2, 3}, {0, 0}, {2, 3}, 1, 6}.fits());
    CHECK_FALSE(piece{{2, 3}, {}, {2}, 0, 2}.fits());
    CHECK_FALSE(piece{{2, 3}, {-1}, {2, 3}, 0, 6}.fits());
    CHECK_THROWS_WITH(shared_elements(piece::whole({2}), piece::whole({3})), Catch::Contains("of one of shape (3)"));
}

}  // namespace cairn
