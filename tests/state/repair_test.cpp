// Damaged versions are healed from equal packs, equal pieces, copies and parities of hosts, and never get worse.

#include "catch.hpp"
#include "state/small_version.hpp"

#include <cairn/state/local_tier.hpp>
#include <cairn/state/repair.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace cairn::repair_test {

namespace fs = std::filesystem;
using test::commit_small_version, test::small_rank, test::aligned_image, test::text_of;

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
void flip(const fs::path& path, std::size_t at) {
    std::string bytes = text_of(path);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 8);
    write(path, bytes);
}
bool is_whole(const fs::path& version) {
    try {
        verify_version(version, true);
        return true;
    } catch (const error&) {
        return false;
    }
}
const version_id first{4, {0x1234567890abcdef, 1}}, second{5, {0x1234567890abcdef, 1}};

TEST_CASE("repair: every byte of a pack and of a manifest, from an equal pack", "[repair]") {
    const temporary_folder folder;
    const fs::path states = folder / "states", copy = folder / "copy";
    commit_small_version(states, first, 2, 3);
    const fs::path version = states / first.name();
    fs::copy(version, copy);
    const auto sources = repair_sources(copy);
    CHECK(sources.size() == 2);
    for (const std::string name : {"rank-0001.pack", "manifest"}) {
        const std::string good = text_of(version / name);
        for (std::size_t at = 0; at<good.size(); at += good.size()> 3000 ? 37 : 5) {
            flip(version / name, at);
            REQUIRE_FALSE(is_whole(version));
            const repair_report report = repair_version(version, sources);
            CAPTURE(name, at, report.lost);
            CHECK(report.lost.empty());
            CHECK(report.healed.size() == 1);
            CHECK(is_whole(version));
            CHECK((text_of(version / name) == good));
        }
        fs::remove(version / name);  // lost altogether
        CHECK(repair_version(version, sources).lost.empty());
        CHECK((text_of(version / name) == good));
    }
    CHECK(repair_version(version, {}).healed.empty());  // nothing is damaged
    CHECK(fs::exists(version / "rank-0001.pack.healed") == false);
    for (const auto& entry : fs::directory_iterator(copy)) CHECK(fs::file_size(entry.path()) > 0);
}

TEST_CASE("repair: equal pieces of another version, one by one", "[repair]") {
    const temporary_folder folder;
    const fs::path states = folder / "states";
    commit_small_version(states, first, 1, 3);
    commit_small_version(states, second, 1, 3);  // another pack with the same numbers
    const fs::path version = states / first.name(), file = version / "rank-0000.pack";
    const std::string good = text_of(file);
    const pack_directory d = read_pack_directory(file);
    const auto piece_of = [&](const std::string& name) {
        return *std::ranges::find(d.pieces, name, &packed_piece::name);
    };
    flip(file, piece_of("model/all").position + 5);
    flip(file, piece_of("model/table").position);
    flip(file, piece_of("model/all").position - 1);  // of the zeros in front
    const repair_report report = repair_version(version, repair_sources(states));
    CHECK(report.lost.empty());
    CHECK(report.healed.at(0).find("rank-0000.pack from pieces of") == 0);
    CHECK((text_of(file) == good));

    // What no other has stays as it is, and is named; the rest of the file too.
    const std::string other = text_of(states / second.name() / "rank-0000.pack");
    flip(states / second.name() / "rank-0000.pack", piece_of("model/table").position);
    flip(file, piece_of("model/table").position);
    const std::string damaged = text_of(file);
    const repair_report left = repair_version(version, repair_sources(states));
    CHECK(left.healed.empty());
    CHECK(left.lost.at(0).find("model/table") != std::string::npos);
    CHECK((text_of(file) == damaged));
    CHECK_FALSE(fs::exists(version / "rank-0000.pack.healed"));

    flip(file, 50);  // its header: nothing says what was there
    CHECK(repair_version(version, repair_sources(states)).healed.empty());
}

TEST_CASE("repair: a pack that versions share is healed once and shared again", "[repair]") {
    const temporary_folder folder;
    const fs::path states = folder / "states";
    commit_small_version(states, first, 1, 3);
    const fs::path earlier = states / first.name(), making = prepare_version(states, second);
    const small_rank rank(0, 1, 3);
    pack_layout layout({second, 0, 1}, rank.view);
    const aligned_image image(layout.bytes());
    layout.fill(image.data.get());
    layout.seal(image.data.get());
    REQUIRE(share_with_earlier(layout, image.data.get(), earlier, making) > 0);
    direct_file<> file(making / layout.id().file());
    file.write(image.data.get(), layout.bytes());
    file.commit();
    commit_version(states, second, 1, "{}\n");
    const fs::path later = states / second.name(), shared = later / layout.id().file_of(first);
    fs::copy_file(shared, folder / "kept.pack");
    flip(shared, text_of(shared).size() - 3);
    REQUIRE_FALSE(is_whole(earlier));
    REQUIRE_FALSE(is_whole(later));
    auto sources = repair_sources(states);
    sources.push_back(folder / "kept.pack");
    CHECK(repair_version(earlier, sources).lost.empty());
    CHECK(repair_version(later, sources).lost.empty());
    CHECK(is_whole(earlier));
    CHECK(is_whole(later));
    CHECK(fs::equivalent(earlier / "rank-0000.pack", shared));
}

TEST_CASE("repair: copies and parities of hosts", "[repair]") {
    for (const redundancy kind :
         {redundancy{redundancy::partner, 0}, redundancy{redundancy::parity, 1}, redundancy{redundancy::parity, 2}}) {
        const temporary_folder folder;
        const fs::path states = folder / "states", version = states / first.name();
        commit_small_version(states, first, 4, 3);
        run_ranks(4, {.kernel_threads = 1}, [&](threads_communicator& c) {
            host_group group{any_communicator(c.split(0, c.rank())), {"a", "b", "c", "d"}};
            local_tier disk(folder / concat("disk", c.rank()), c.rank(), concat("host", c.rank()),
                            host_redundancy{std::move(group), kind});
            const pack_id id{first, c.rank(), 4};
            const std::string pack = text_of(version / id.file());
            const aligned_image image(pack.size());
            std::memcpy(image.data.get(), pack.data(), pack.size());
            disk.store(id, {image.data.get(), pack.size()}, "{}\n");
        });
        const std::string good = text_of(version / "rank-0002.pack");
        flip(version / "rank-0002.pack", 200);
        fs::remove_all(folder / "disk2");  // with the host
        const repair_report report = repair_version(version, repair_sources(folder.path));
        CAPTURE(kind, report.lost);
        CHECK(report.lost.empty());
        CHECK(is_whole(version));
        CHECK((text_of(version / "rank-0002.pack") == good));
        // Neighbours lost, with what they keep: two parities are enough, one or a copy is not.
        for (const std::string rank : {"1", "2"}) {
            fs::remove_all(folder / ("disk" + rank));
            fs::remove(version / ("rank-000" + rank + ".pack"));
        }
        const repair_report two = repair_version(version, repair_sources(folder.path));
        CHECK(two.lost.empty() == (kind.parities == 2));
        CHECK(is_whole(version) == (kind.parities == 2));
    }
}

}  // namespace cairn::repair_test
