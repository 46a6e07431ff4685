// Coverage of tensors by pieces, against a count for each element; and every byte of a manifest.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/pack_survey.hpp>

#include <numeric>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

struct draws {
    random_stream stream;
    std::uint64_t at = 0;
    index_t below(index_t n) { return static_cast<index_t>(stream.below(static_cast<std::uint64_t>(n), at++)); }
};

// Cuts a box along random axes, and the boxes that come of it into ranges of elements.
void cut(const piece& box, draws& draw, std::vector<packed_piece>& out) {
    const int axis = box.global.rank() ? static_cast<int>(draw.below(box.global.rank())) : 0;
    if (box.global.rank() && box.extent[axis] > 1 && draw.below(4)) {
        const index_t at = 1 + draw.below(box.extent[axis] - 1);
        piece low = box, high = box;
        low.extent = box.extent.with(axis, at);
        high.extent = box.extent.with(axis, box.extent[axis] - at);
        high.begin[static_cast<std::size_t>(axis)] += at;
        low.count = low.extent.size(), high.count = high.extent.size();
        cut(low, draw, out);
        cut(high, draw, out);
        return;
    }
    for (index_t from = 0; from < box.count || from == 0;) {
        const index_t n = std::min(box.count - from, 1 + draw.below(20));
        packed_piece p;
        p.name = "t";
        p.where = box.part(from, n);
        out.push_back(p);
        from += std::max<index_t>(n, 1);
    }
}

// How often each element of the tensor is in a piece, element by element.
std::vector<int> counts_of(const shape& global, const std::vector<packed_piece>& pieces) {
    std::vector<int> counts(static_cast<std::size_t>(global.size()));
    for (const packed_piece& p : pieces)
        for (index_t i = p.where.first; i < p.where.first + p.where.count; ++i) {
            index_t rest = i, position = 0, stride = 1;
            for (int a = global.rank() - 1; a >= 0; --a) {
                position += (rest % p.where.extent[a] + p.where.begin[static_cast<std::size_t>(a)]) * stride;
                rest /= p.where.extent[a];
                stride *= global[a];
            }
            ++counts[static_cast<std::size_t>(position)];
        }
    return counts;
}

std::string refusal_of(const std::vector<packed_piece>& pieces) {
    const std::string file = "f";
    std::vector<detail::piece_of_pack> all;
    for (const packed_piece& p : pieces) all.push_back({&p, &file});
    return message_of([&] { detail::require_covered("here", all); });
}

manifest small_manifest() {
    manifest m;
    m.version = {500, {0x3f2a9c41d07b5e66, 0x22b1a7c04d9e8f10}};
    m.ranks = 2;
    m.packs = {{"rank-0000.pack", 1089536, 0x9c1185a5c5e9fc54}, {"rank-0001.pack", 77, 3}};
    m.tensors = {{"model/conv 1", element_type::bfloat16, {64, 3, 7, 7}, 0x5b1e0e7a4c8d2f93},
                 {"steps", element_type::int64, {}, 1},
                 {"text", element_type::text, {}, 0}};
    m.digest = 0x0b54f1d8a7c3e296;
    return m;
}

// A text with the checksum of what is before its last line.
std::string sealed(const std::string& text) {
    return text + "checksum " + detail::hexadecimal(xxh3(text.data(), text.size())) + '\n';
}

}  // namespace

TEST_CASE("runs of a piece in the whole tensor are those that it shares with it") {
    draws draw{{22, 0, 0}};
    for (int trial = 0; trial < 300; ++trial) {
        shape global;
        for (index_t axes = draw.below(6); axes > 0; --axes) global.push_back(draw.below(5) + (draw.below(8) ? 1 : 0));
        std::vector<packed_piece> pieces;
        cut(piece::whole(global), draw, pieces);
        for (const packed_piece& p : pieces) {
            std::vector<std::array<index_t, 3>> shared, runs;
            for_shared_runs(p.where, piece::whole(global), [&](index_t at, index_t position, index_t n) {
                shared.push_back({at, position, n});
            });
            for_runs_in_whole(p.where, [&](index_t at, index_t position, index_t n) {
                runs.push_back({at, position, n});
            });
            const auto joined = [](const std::vector<std::array<index_t, 3>>& all) {
                std::vector<std::array<index_t, 2>> elements;
                for (const auto& [at, position, n] : all)
                    for (index_t i = 0; i < n; ++i) elements.push_back({at + i, position + i});
                return elements;
            };
            REQUIRE(joined(runs) == joined(shared));
        }
    }
    piece far{{index_t{1} << 40, 2}, {0, 1}, {index_t{1} << 40, 1}, (index_t{1} << 40) - 3, 2};
    std::vector<index_t> positions;  // found at once
    for_runs_in_whole(far, [&](index_t, index_t position, index_t n) {
        positions.insert(positions.end(), {position, n});
    });
    CHECK(positions == std::vector<index_t>{(index_t{1} << 41) - 5, 1, (index_t{1} << 41) - 3, 1});
}

TEST_CASE("coverage by pieces is what counting each element says") {
    draws draw{{21, 0, 0}};
    int refused = 0;
    for (int trial = 0; trial < 600; ++trial) {
        shape global;
        for (index_t axes = draw.below(5); axes > 0; --axes) global.push_back(draw.below(7) + (draw.below(8) ? 1 : 0));
        std::vector<packed_piece> pieces;
        cut(piece::whole(global), draw, pieces);
        for (std::size_t i = pieces.size(); i > 1; --i)
            std::swap(pieces[i - 1], pieces[static_cast<std::size_t>(draw.below(static_cast<index_t>(i)))]);
        REQUIRE(refusal_of(pieces) == "");
        const auto some = static_cast<std::size_t>(draw.below(static_cast<index_t>(pieces.size())));
        switch (draw.below(3)) {  // one is missing, there twice, or a little longer or shorter
            case 0:
                if (pieces.size() > 1) pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(some));
                break;
            case 1:
                pieces.push_back(packed_piece(pieces[some]));
                break;
            default:
                piece& p = pieces[some].where;
                if (draw.below(2) && p.first + p.count < p.extent.size())
                    ++p.count;
                else if (p.count > 0)
                    --p.count;
        }
        const std::vector<int> counts = counts_of(global, pieces);
        const bool covered = std::ranges::all_of(counts, [](int n) { return n == 1; });
        const std::string why = refusal_of(pieces);
        REQUIRE(why.empty() == covered);
        if (covered) continue;
        ++refused;
        const auto wrong = std::ranges::find_if(counts, [](int n) { return n != 1; });
        CHECK_THAT(why, Contains(concat("elements ", wrong - counts.begin(), " to ")) &&
                            Contains(*wrong ? "are in two pieces" : "are in no pack"));
    }
    CHECK(refused > 400);
}

TEST_CASE("a manifest is read back as it was written") {
    const manifest m = small_manifest();
    const std::string text = to_text(m);
    CHECK(parse_manifest(text, "f") == m);
    CHECK_THAT(text, Contains("attempt 3f2a9c41d07b5e6622b1a7c04d9e8f10\nstep 500\nranks 2\n"
                              "pack 1089536 9c1185a5c5e9fc54 rank-0000.pack\n"));
    CHECK_THAT(text, Contains("\ntensor bfloat16 64,3,7,7 5b1e0e7a4c8d2f93 model/conv 1\ntensor int64  000"));
    CHECK(parse_manifest(to_text({}), "f") == manifest{});
    manifest bad = m;
    bad.tensors[0].name = "a\nb";
    CHECK_THROWS_WITH(to_text(bad), Contains("has several lines"));
}

TEST_CASE("every changed bit, every truncation and every byte too many of a manifest is refused") {
    const std::string good = to_text(small_manifest());
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        std::string bad = good;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
        INFO("bit " << bit);
        REQUIRE_THROWS_WITH(parse_manifest(bad, "DIR/manifest"), Contains("DIR/manifest: "));
    }
    for (std::size_t length = 0; length < good.size(); ++length)
        REQUIRE_THROWS_WITH(parse_manifest(good.substr(0, length), "DIR/manifest"), Contains("DIR/manifest: "));
    CHECK_THROWS_WITH(parse_manifest(good + "\n", "f"), Contains("f: a checksum is wrong"));
    CHECK_THROWS_WITH(parse_manifest("", "f"), Contains("f: line 1 is no whole line of cairn: truncated"));
}

// The checksums are right here, so that the parser itself is what stands.
TEST_CASE("a manifest that lies is refused with its line") {
    const std::string front = "cairn manifest 1\nattempt 3f2a9c41d07b5e6622b1a7c04d9e8f10\n",
                      back = "digest 0000000000000000\n";
    const auto refusal = [&](const std::string& text) {
        return message_of([&] { parse_manifest(sealed(text), "f"); });
    };
    CHECK(refusal(front + "step 5\nranks 1\n" + back) == "");
    CHECK_THAT(refusal("cairn manifest 2\n"), Contains("line 1 says \"manifest 2\"; this program reads manifest 1"));
    CHECK_THAT(refusal(front + "step x\nranks 1\n" + back), Contains("line 3 \"x\" is no number"));
    CHECK_THAT(refusal(front + "step -5\nranks 1\n" + back), Contains("line 4 says 1 ranks at step -5"));
    CHECK_THAT(refusal(front + "step 05\nranks 1\n" + back), Contains("another form"));
    CHECK_THAT(refusal(front + "step 5 \nranks 1\n" + back), Contains("another form"));
    CHECK_THAT(refusal(front + "step 99999999999999999999\nranks 1\n" + back), Contains("is no number"));
    CHECK_THAT(refusal(front + "step 5\nranks 0\n" + back), Contains("says 0 ranks"));
    CHECK_THAT(refusal(front + "ranks 1\n" + back), Contains("line 3 begins with \"ranks\" in place of step"));
    CHECK_THAT(refusal("cairn manifest 1\nattempt 3f\n"), Contains("line 2 has no attempt of 32 digits"));
    const std::string start = front + "step 5\nranks 1\n";
    CHECK_THAT(refusal(start + "pack 1 0000000000000000 ../x.pack\n" + back),
               Contains("line 5 names a file of another"));
    CHECK_THAT(refusal(start + "pack 1 00 x.pack\n" + back), Contains("another form"));
    CHECK_THAT(refusal(start + "tensor float12 3 0000000000000000 x\n" + back),
               Contains("has the unknown type float12"));
    CHECK_THAT(refusal(start + "tensor float32 -3 0000000000000000 x\n" + back), Contains("f: shape: extent -3"));
    CHECK_THAT(refusal(start + "tensor float32 1,1,1,1,1,1,1 0000000000000000 x\n" + back),
               Contains("more than 6 axes"));
    CHECK_THAT(refusal(start + "tensor float32 4294967296,4294967296 0000000000000000 x\n" + back),
               Contains("can be counted"));
    CHECK_THAT(refusal(start + "tensor float32 3, 0000000000000000 x\n" + back), Contains("another form"));
}

}  // namespace cairn::test
