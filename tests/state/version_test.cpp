// Whatever fails, dies or is damaged: the versions in the list are whole, and none that was announced is lost.

#include "catch.hpp"
#include "messages.hpp"
#include "state/small_version.hpp"

#include <cairn/core/random.hpp>

#include <chrono>
#include <fstream>
#include <thread>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

const version_id first_version{400, {0x3f2a9c41d07b5e66, 7}}, second_version{500, {0x3f2a9c41d07b5e66, 7}};

std::vector<std::string> listed_names(const std::filesystem::path& states) {
    std::vector<std::string> names;
    for (const stored_version& v : list_versions(states)) names.push_back(v.name);
    return names;
}

void put_byte(const std::filesystem::path& path, std::uint64_t at, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte);
}

// A system in which links are refused.
struct no_links : posix_system {
    int reason;
    explicit no_links(int why) : reason(why) {}
    int link(const char*, const char*) { return errno = reason, -1; }
};

// Writes the pack of rank 0 of 1 whose tensor "model/all" is in the pack of `parent`.
void write_referring_pack(const std::filesystem::path& directory, const pack_id& id, const state_view& view,
                          const pack_directory& parent) {
    pack_layout layout(id, view);
    const aligned_image image(layout.bytes());
    layout.fill(image.data.get());
    layout.seal(image.data.get());
    layout.leave_out(image.data.get(), [&](std::size_t i) -> const packed_piece* {
        if (layout.pieces()[i].name != "model/all") return nullptr;
        return &*std::ranges::find(parent.pieces, "model/all", &packed_piece::name);
    });
    std::ofstream(directory / id.file(), std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data.get()), static_cast<std::streamsize>(layout.bytes()));
}

}  // namespace

TEST_CASE("a version is there when it is committed, with the same digest from any number of ranks") {
    for (const int ranks : {1, 2, 3}) {
        const temporary_folder run;
        const auto states = run / "states";
        CHECK(list_versions(states).empty());
        const auto making = prepare_small_version(states, first_version, ranks, 3);
        CHECK(making == states / ".3f2a9c41d07b-00000400");
        CHECK(list_versions(states).empty());
        const manifest m = commit_version(states, first_version, ranks, "{\"step\": 400}\n");
        CHECK(listed_names(states) == std::vector<std::string>{"00000400-3f2a9c41d07b"});
        CHECK_FALSE(std::filesystem::exists(making));
        CHECK(m.digest == digest_of_small_version(3));
        CHECK(m.digest != digest_of_small_version(4));
        const auto directory = list_versions(states)[0].directory;
        CHECK(verify_version(directory, true) == m);
        CHECK(text_of(directory / "lineage.json") == "{\"step\": 400}\n");
        CHECK(m.packs.size() == static_cast<std::size_t>(ranks));
        REQUIRE(m.tensors.size() == 4);
        CHECK(m.tensors[1].name == "model/table");
        CHECK(m.tensors[1].extents == shape{7, 10});
    }
}

TEST_CASE("versions are listed newest first, and nothing else is") {
    const temporary_folder run;
    for (const version_id& id : {second_version, first_version, version_id{123456789, {1, 2}}})
        commit_small_version(run.path, id, 1, 1);
    prepare_small_version(run.path, {900, {3, 4}}, 1, 1);
    for (const char* name :
         {"00000600", "0000600-3f2a9c41d07b", "00000600-3f2a9c41d07B", "00000600-3f2a9c41d07bb", "x"})
        std::filesystem::create_directory(run / name);
    commit_small_version(run.path, {600, {0xaaaaaaaaaaaaaaaa, 4}}, 1, 1);
    const auto aside = set_aside(run.path, "00000600-aaaaaaaaaaaa");
    CHECK(aside.filename() == ".damaged-00000600-aaaaaaaaaaaa");
    CHECK(listed_names(run.path) ==
          std::vector<std::string>{"123456789-000000000000", "00000500-3f2a9c41d07b", "00000400-3f2a9c41d07b"});
    commit_small_version(run.path, {600, {0xaaaaaaaaaaaaaaaa, 4}}, 1, 1);
    CHECK(set_aside(run.path, "00000600-aaaaaaaaaaaa").filename() == ".damaged-00000600-aaaaaaaaaaaa-2");

    remove_version(run.path, "00000500-3f2a9c41d07b");
    CHECK(listed_names(run.path).size() == 2);
    CHECK(clean_leavings(run.path) == std::vector<std::string>{".000000000000-00000900"});
    CHECK(leavings_in(run.path).size() == 2);  // what was set aside stays
    CHECK_THROWS_WITH(remove_version(run.path, "00000500-3f2a9c41d07b"), Contains("00000500-3f2a9c41d07b: cannot be"));
}

TEST_CASE("of one step reached twice, the version committed last comes first") {
    const temporary_folder run;
    commit_small_version(run.path, {400, {~std::uint64_t{0}, 0}}, 1, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    commit_small_version(run.path, {400, {1, 0}}, 1, 2);
    CHECK(listed_names(run.path) == std::vector<std::string>{"00000400-000000000000", "00000400-ffffffffffff"});
}

TEST_CASE("ranks may prepare a version at the same time") {
    const temporary_folder run;
    std::vector<std::thread> ranks;
    for (int r = 0; r < 4; ++r)
        ranks.emplace_back([&, r] {
            const small_rank rank(r, 4, 2);
            write_small_pack(prepare_version(run / "states", first_version), {first_version, r, 4}, rank.view);
        });
    for (std::thread& t : ranks) t.join();
    CHECK(commit_version(run / "states", first_version, 4, "{}").digest == digest_of_small_version(2));
    CHECK(new_attempt() != new_attempt());
}

TEST_CASE("packs that are no whole version are refused, and named") {
    const temporary_folder run;
    const auto made = [&] {
        std::filesystem::remove_all(directory_in_making(run.path, first_version));
        return prepare_small_version(run.path, first_version, 2, 3);
    };
    const auto refusal = [&](int ranks = 2) {
        const std::string why = message_of([&] { commit_version(run.path, first_version, ranks, "{}"); });
        CHECK(list_versions(run.path).empty());
        return why;
    };
    const pack_id one{first_version, 1, 2};

    std::filesystem::remove(made() / "rank-0001.pack");
    CHECK_THAT(refusal(), Contains("rank-0001.pack: cannot be opened: No such file"));
    made();
    CHECK_THAT(refusal(1), Contains("rank-0000.pack: of version 00000400-3f2a9c41d07b, rank 0 of 2; this is"));
    auto d = made();
    std::filesystem::copy(d / "rank-0000.pack", d / "rank-0002.pack");
    CHECK_THAT(refusal(), Contains("rank-0002.pack: a pack that the version does not need"));
    d = made();
    std::filesystem::copy(d / "rank-0000.pack", d / "rank-0001.pack",
                          std::filesystem::copy_options::overwrite_existing);
    CHECK_THAT(refusal(), Contains("rank-0001.pack") && Contains("rank 0 of 2; this is"));
    for (const version_id& other : {second_version, version_id{400, {0x3f2a9c41d07b5e66, 8}}}) {
        d = made();
        const small_rank rank(1, 2, 3);
        write_small_pack(d, {other, 1, 2}, rank.view);
        CHECK_THAT(refusal(), Contains("rank-0001.pack: of version " + other.name()));
    }
    d = made();
    std::filesystem::resize_file(d / "rank-0001.pack", std::filesystem::file_size(d / "rank-0001.pack") - 1);
    CHECK_THAT(refusal(), Contains("rank-0001.pack: truncated"));

    d = made();
    small_rank twice(1, 2, 3);  // writes all of what it should share
    twice.view = {};
    twice.view.add("model/all", twice.all);
    write_small_pack(d, one, twice.view);
    CHECK_THAT(refusal(),
               Contains("tensor model/all (1500): elements 0 to ") && Contains("are in two pieces, of rank-000"));
    d = made();
    small_rank without(1, 2, 3);
    without.view = {};
    without.view.add("model/all", without.all, {.where = {}, .share = {1, 2}});
    write_small_pack(d, one, without.view);
    CHECK_THAT(refusal(), Contains("tensor model/table (7, 10): elements 5 to 10 are in no pack"));
    d = made();
    small_rank other_shape(1, 2, 3);
    other_shape.view = {};
    tensor<float> table = tensor<float>::zeros({7, 9});
    other_shape.view.add("model/table", table);
    other_shape.view.add("model/all", other_shape.all, {.where = {}, .share = {1, 2}});
    write_small_pack(d, one, other_shape.view);
    CHECK_THAT(refusal(),
               Contains("tensor model/table is float32 (7, 9) in rank-0001.pack, float32 (7, 10) in rank-0000"));
    std::filesystem::remove_all(d);
    CHECK_THAT(refusal(), Contains(".3f2a9c41d07b-00000400/rank-0000.pack: cannot be opened"));
    made();
    abandon_version(run.path, first_version);
    abandon_version(run.path, first_version);
    CHECK(leavings_in(run.path).empty());
}

TEST_CASE("a pack of an earlier version is shared by a link, or copied where links are refused") {
    for (const int refusal : {0, EXDEV, EPERM, EMLINK}) {
        const temporary_folder run;
        commit_small_version(run.path, first_version, 1, 3);
        const auto parent = run.path / first_version.name() / "rank-0000.pack";
        const auto d = prepare_version(run.path, second_version);
        const pack_id id{second_version, 0, 1};
        small_rank changed(0, 1, 3);
        changed.number = 500;
        write_referring_pack(d, id, changed.view, read_pack_directory(parent));

        CHECK_THAT(message_of([&] { commit_version(run.path, second_version, 1, "{}"); }),
                   Contains("rank-0000.00000400-3f2a9c41d07b.pack: cannot be opened"));
        if (refusal)
            share_pack(parent, d / id.file_of(first_version), no_links(refusal));
        else
            share_pack(parent, d / id.file_of(first_version));
        share_pack(parent, d / id.file_of(first_version));  // twice does no harm
        CHECK(std::filesystem::hard_link_count(parent) == (refusal ? 1u : 2u));
        const manifest m = commit_version(run.path, second_version, 1, "{}");
        CHECK(m.packs.size() == 2);
        CHECK(m.tensors[0].digest == read_manifest(run.path / first_version.name()).tensors[0].digest);

        remove_version(run.path, first_version.name());  // the later one is whole by itself
        CHECK(verify_version(run.path / second_version.name(), true) == m);
        CHECK(std::filesystem::hard_link_count(run.path / second_version.name() / id.file_of(first_version)) == 1);
        const auto held = run.path / second_version.name() / id.file_of(first_version);
        commit_small_version(run.path, {300, {9, 9}}, 1, 3);
        std::filesystem::copy(run.path / version_id{300, {9, 9}}.name() / "rank-0000.pack", held,
                              std::filesystem::copy_options::overwrite_existing);
        CHECK_THAT(message_of([&] { verify_version(run.path / second_version.name(), false); }),
                   Contains(id.file_of(first_version) + ": of version 00000300-000000000000"));
    }
    const temporary_folder run;
    CHECK_THROWS_WITH(share_pack(run / "absent", run / "x"),
                      Contains("x: cannot be linked to") && Contains("No such file"));
    CHECK_THROWS_WITH(share_pack(run / "absent", run / "x", no_links(EIO)), Contains("Input/output error"));
}

TEST_CASE("a damaged byte of any file of a version is found") {
    const temporary_folder run;
    const auto making = prepare_version(run.path, first_version);
    for (int r = 0; r < 2; ++r) {
        small_rank rank(r, 2, 3);
        state_view few;
        few.add("model/table", rank.table, {.where = rank.view.entries()[0].where});
        if (r == 0) few.add("plan", rank.text);
        write_small_pack(making, {first_version, r, 2}, few);
    }
    commit_version(run.path, first_version, 2, "{}");
    const auto directory = run.path / first_version.name();
    for (const char* name : {"rank-0000.pack", "rank-0001.pack", "manifest"}) {
        const auto path = directory / name;
        const std::string good = text_of(path);
        for (std::size_t at = 0; at < good.size(); ++at) {
            put_byte(path, at, static_cast<char>(good[at] ^ (1 << at % 8)));
            const std::string why = message_of([&] { verify_version(directory, true); });
            if (!contains(why, path.string()) && !contains(why, "manifest"))
                FAIL(name << ", byte " << at << ": \"" << why << '"');
            put_byte(path, at, good[at]);
        }
        REQUIRE_NOTHROW(verify_version(directory, true));
        for (std::size_t length = good.size() - 1;; length -= std::min(length, 1 + length / 16)) {
            std::filesystem::resize_file(path, length);
            REQUIRE_THROWS_AS(verify_version(directory, true), error);
            if (length == 0) break;
        }
        std::ofstream(path, std::ios::binary) << good;
        REQUIRE_NOTHROW(verify_version(directory, true));
    }
    // Packs that are whole, but of other values.
    small_rank other(1, 2, 4);
    state_view few;
    few.add("model/table", other.table, {.where = other.view.entries()[0].where});
    write_small_pack(directory, {first_version, 1, 2}, few);
    CHECK_THROWS_WITH(verify_version(directory, false), Contains("the packs are not those of the manifest"));
    std::filesystem::rename(directory, run / "00000401-3f2a9c41d07b");
    CHECK_THROWS_WITH(read_manifest(run / "00000401-3f2a9c41d07b"),
                      Contains("of version 00000400-3f2a9c41d07b, the directory is called 00000401"));
}

TEST_CASE("500 flipped bits of a large version are found", "[.exhaustive]") {
    const temporary_folder run;
    const auto making = prepare_version(run.path, first_version);
    tensor<float> weights({3'000'000});
    const random_stream random{41, 0, 0};
    for (index_t i = 0; i < weights.size(); ++i) weights[i] = random.uniform(static_cast<std::uint64_t>(i));
    state_view view;
    view.add("weights", weights);
    write_small_pack(making, {first_version, 0, 1}, view);
    commit_version(run.path, first_version, 1, "{}");
    const auto directory = run.path / first_version.name(), path = directory / "rank-0000.pack";
    const std::string good = text_of(path);
    for (std::uint64_t trial = 0; trial < 500; ++trial) {
        const std::uint64_t bit = random.below(8 * good.size(), 10'000'000 + trial);
        put_byte(path, bit / 8, static_cast<char>(good[bit / 8] ^ (1 << bit % 8)));
        REQUIRE_THROWS_WITH(verify_version(directory, true), Contains(path.string()));
        put_byte(path, bit / 8, good[bit / 8]);
    }
    REQUIRE_NOTHROW(verify_version(directory, true));
}

TEST_CASE("a directory that vanishes while a version is written is an error that names it") {
    const temporary_folder run;
    const auto d = prepare_version(run / "states", first_version);
    const small_rank rank(0, 1, 3);
    direct_file<> file(d / "rank-0000.pack");
    std::filesystem::remove_all(run / "states");
    const aligned_image image(100);
    CHECK_THROWS_WITH(
        [&] {
            file.write(image.data.get(), 100);
            file.commit();
        }(),
        Contains("rank-0000.pack.tmp: cannot be renamed") && Contains("No such file"));
    CHECK_THROWS_WITH(prepare_version(run / "absent/states", first_version), Contains("absent/states: cannot be made"));
}

}  // namespace cairn::test
