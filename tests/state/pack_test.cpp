// Packs: any set of ranks reads what any other has written; damage is found.

#include "catch.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/saved_state.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace cairn {
namespace {

using Catch::Contains;

std::filesystem::path write_pack(const std::filesystem::path& folder, pack_id id, const state_view& state) {
    pack_layout layout(id, state);
    std::vector<std::byte> image(detail::rounded_up(layout.bytes(), detail::pack_block));
    layout.fill(image.data());
    layout.seal(image.data());
    const auto path = folder / id.file();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(layout.bytes()));
    return path;
}

tensor<float> counting(const shape& s, float from = 0) {
    tensor<float> t(s, memory_category::parameters);
    for (index_t i = 0; i < t.size(); ++i) t[i] = from + static_cast<float>(i);
    return t;
}

const shape table_extents{37, 50};

/// What rank r of `ranks` holds: a slice of the columns of one tensor, a range of another, all of a third (which the
/// ranks divide), a row of its own, and a number and a text of rank 0.
struct rank_of_test {
    tensor<float> slice, part, all, own;
    std::int64_t number = 0;
    std::string text;
    state_view view;

    rank_of_test(int r, int ranks, bool filled) {
        const range columns = shard_of(table_extents[1], ranks, r), elements = shard_of(1003, ranks, r);
        slice = counting({table_extents[0], columns.count});
        part = counting({elements.count}, static_cast<float>(elements.begin));
        all = counting({41, 13, 7});
        own = counting({3}, static_cast<float>(10 * r));
        for (index_t i = 0; i < slice.size(); ++i)
            slice[i] = static_cast<float>(i / columns.count * table_extents[1] + columns.begin + i % columns.count);
        if (filled)
            number = 7, text = "plan";
        else
            for (tensor<float>* t : {&slice, &part, &all, &own}) std::ranges::fill(t->span(), -1.0f);
        const piece_share of_root{0, r == 0 ? 1 : 0};
        view.add("table", slice,
                 {.where = piece{table_extents, {0, columns.begin}, slice.shape(), 0, slice.size()}, .share = {}});
        view.add("range", part, {.where = piece{{1003}, {}, {1003}, elements.begin, elements.count}, .share = {}});
        view.add("all", all, {.where = {}, .share = {r, ranks}});
        view.add("own", own, {.where = piece::whole({3}).in_row(r, ranks), .share = {}, .rows = row_change::sum});
        view.add("number", number, {.where = {}, .share = of_root});
        view.add("text", text, {.where = {}, .share = of_root});
    }
};

std::vector<std::string> write_ranks(const std::filesystem::path& folder, int ranks) {
    std::vector<std::string> files;
    for (int r = 0; r < ranks; ++r) {
        const rank_of_test rank(r, ranks, true);
        files.push_back(write_pack(folder, {{5, {1, 2}}, r, ranks}, rank.view).filename().string());
    }
    return files;
}

}  // namespace

TEST_CASE("any number of ranks reads what any other has written") {
    for (const int from : {1, 2, 3, 4})
        for (const int to : {1, 2, 3, 4}) {
            const temporary_folder folder;
            const saved_state saved = saved_state::of_packs(folder.path, write_ranks(folder.path, from));
            for (int r = 0; r < to; ++r) {
                const rank_of_test expected(r, to, true);
                rank_of_test found(r, to, false);
                saved.load(found.view);
                CHECK(std::ranges::equal(found.slice.span(), expected.slice.span()));
                CHECK(std::ranges::equal(found.part.span(), expected.part.span()));
                CHECK(std::ranges::equal(found.all.span(), expected.all.span()));
                CHECK(found.number == 7);
                CHECK(found.text == "plan");
                for (index_t i = 0; i < 3; ++i) {  // rows are 10 r + i
                    const float sum = static_cast<float>(5 * from * (from - 1) + from * i);
                    CHECK(found.own[i] == (from == to ? static_cast<float>(10 * r + i) : sum / static_cast<float>(to)));
                }
            }
        }
}

TEST_CASE("digests of tensors add up to the same on any number of ranks, and shares are alike") {
    std::map<std::string, std::uint64_t> first;
    for (const int ranks : {1, 2, 3, 4}) {
        const temporary_folder folder;
        std::map<std::string, std::uint64_t> sums;
        std::vector<std::uint64_t> bytes;
        for (const std::string& file : write_ranks(folder.path, ranks)) {
            bytes.push_back(0);
            for (const packed_piece& p : read_pack_directory(folder.path / file).pieces) {
                if (p.name != "own") sums[p.name] += p.digest;
                if (p.name == "all") bytes.back() += p.bytes;
            }
        }
        if (first.empty()) first = sums;
        CHECK(sums == first);
        CHECK(*std::ranges::max_element(bytes) - *std::ranges::min_element(bytes) <= 4096);
    }
}

TEST_CASE("long pieces are cut, empty tensors stay") {
    const temporary_folder folder;
    const index_t n = (16 << 20) / 4 + 5;
    tensor<float> large = counting({n}), none = counting({0, 3});
    state_view v;
    v.add("large", large);
    v.add("none", none);
    const auto file = write_pack(folder.path, {{1, {3, 4}}, 0, 1}, v);
    const pack_directory d = read_pack_directory(file);
    REQUIRE(d.pieces.size() == 3);
    CHECK(d.pieces[0].position % 4096 == 0);
    CHECK(d.pieces[1].where.first == (16 << 20) / 4);
    verify_pack(file);
    const tensor<float> expected = large.clone();
    std::ranges::fill(large.span(), 0.0f);
    saved_state::of_packs(folder.path, {file.filename().string()}).load(v);
    CHECK(std::ranges::equal(large.span(), expected.span()));
}

TEST_CASE("checksum and digest of a long piece are those of its bytes at once; what is not good ends the sealing") {
    const shape whole{70, 5000};
    tensor<float> columns = counting({70, 1801}), rows = counting({1 << 17}, 0.5f), small = counting({9});
    state_view view;
    view.add("columns", columns, {.where = piece{whole, {0, 77}, columns.shape(), 0, columns.size()}, .share = {}});
    view.add("rows", rows);
    view.add("small", small);
    pack_layout layout({{3, {1, 2}}, 0, 1}, view);
    std::vector<std::byte> image(layout.bytes());
    layout.fill(image.data());
    std::vector<std::string> seen;
    REQUIRE(layout.seal(image.data(), [&](const packed_piece& p, const std::byte* data) {
        seen.push_back(p.name);
        return p.checksum == xxh3(data, p.bytes) && p.digest == detail::digest_of(p, data);
    }));
    CHECK(seen == std::vector<std::string>{"columns", "rows", "small"});
    CHECK_FALSE(layout.seal(image.data(), [](const packed_piece& p, const std::byte*) { return p.name != "rows"; }));
}

TEST_CASE("every changed byte of a pack is found, and every length but the right one") {
    const temporary_folder folder;
    state_view small;
    tensor<float> t = counting({5, 3}), u = counting({1030}), gone = counting({1030});
    std::int64_t number = 3;
    std::string text = "words";
    small.add("t", t);
    small.add("u", u);
    small.add("number", number);
    small.add("text", text);
    const auto path = write_pack(folder.path, {{1, {3, 4}}, 0, 1}, small);
    const std::string good = test::text_of(path);
    const auto load = [&] { saved_state::of_packs(folder.path, {path.filename().string()}).load(small); };
    load();
    int unseen = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
        std::ofstream(path, std::ios::binary) << bad;
        bool verified = false, loaded = false;
        try {
            verify_pack(path);
            verified = true;
        } catch (const error& e) {
            CHECK_THAT(e.what(), Contains("rank-0000.pack"));
        }
        try {
            load();
            loaded = true;
        } catch (const error&) {}
        unseen += verified || loaded;
    }
    CHECK(unseen == 0);
    for (std::size_t length = 0; length < good.size() + 3; length += length < 700 ? 1 : 97) {
        if (length == good.size()) continue;
        std::ofstream(path, std::ios::binary)
            << good.substr(0, length) + std::string(length > good.size() ? 2 : 0, 'x');
        CHECK_THROWS_AS(verify_pack(path), error);
    }
}

TEST_CASE("what a program needs and a state has not is named") {
    const temporary_folder folder;
    const std::vector<std::string> files = write_ranks(folder.path, 1);
    const saved_state saved = saved_state::of_packs(folder.path, files);
    tensor<float> t = counting({2});
    tensor<double> d = tensor<double>::zeros({2});
    state_view v;
    v.add("table", t);
    v.add("absent", t);
    v.add("range", d);
    v.add("absent, optional", t, {.where = {}, .share = {}, .optional = true});
    CHECK_THROWS_WITH(saved.load(v), Contains("table is float32 (37, 50) there, float32 (2) in the program") &&
                                         Contains("absent (float32 (2)) is not there") &&
                                         Contains("range is float32 (1003) there, float64 (2)") &&
                                         !Contains("optional"));
    CHECK(t[1] == 1);
    state_view rows;
    tensor<float> own = counting({3});
    rows.add("own", own, {.where = piece::whole({3}).in_row(0, 2), .share = {}});
    CHECK_THROWS_WITH(saved.load(rows), Contains("own is float32 (1, 3) there, float32 (2, 3)"));
}

TEST_CASE("a pack from which elements are missing is refused by who needs them") {
    const temporary_folder folder;
    const std::vector<std::string> files = write_ranks(folder.path, 3);
    const saved_state some = saved_state::of_packs(folder.path, {files[0], files[2]});
    rank_of_test found(0, 1, false);
    CHECK_THROWS_WITH(some.load(found.view), Contains("elements") && Contains("are not there"));
    CHECK_THROWS_WITH(saved_state::of_packs(folder.path, {"rank-0009.pack"}), Contains("rank-0009.pack"));
}

}  // namespace cairn
