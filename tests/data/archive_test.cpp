#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/archive.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

const auto everything = [](const std::string&) { return true; };

}  // namespace

TEST_CASE("archive: members of plain and packed tar files", "[archive]") {
    const temporary_folder folder;
    const std::vector<std::pair<std::string, bytes>> members{{"./top/", {}},
                                                             {"./top/a.bin", counting(3000, 7)},
                                                             {"top/empty", {}},
                                                             {"top/b.txt", counting(100)},
                                                             {"other/", {}}};
    for (const char* filter : {"", "gzip", "zstd"}) {
        const bytes file = tar_file(members, filter);
        const auto path = folder.write("a.tar", file);
        for (const auto& found : {read_archive(path, everything), read_archive(file, "a.tar", everything)}) {
            REQUIRE(found.size() == 5);
            REQUIRE(found[0].folder);
            REQUIRE(found[0].name == "top");
            REQUIRE(found[1].name == "top/a.bin");
            REQUIRE(found[1].bytes == counting(3000, 7));
            REQUIRE(found[2].bytes.empty());
            REQUIRE(found[4].folder);
        }
        const auto some = read_archive(path, [](const std::string& name) { return name.ends_with(".txt"); });
        REQUIRE(some.size() == 3);
        REQUIRE(some[1].bytes == counting(100));
    }
    REQUIRE(is_archive_name("x/y.tar.gz"));
    REQUIRE(is_archive_name("y.tgz"));
    REQUIRE_FALSE(is_archive_name("y.gz"));
}

TEST_CASE("archive: truncated, corrupt, mistaken and oversized files", "[archive]") {
    const temporary_folder folder;
    const std::vector<std::pair<std::string, bytes>> members{{"top/a.bin", counting(3000, 7)},
                                                             {"top/b.bin", counting(3000, 11)}};
    for (const char* filter : {"", "gzip", "zstd"}) {
        const bytes good = tar_file(members, filter);
        REQUIRE_THAT(message_of([&] { read_archive(std::span(good).first(good.size() / 2), "a.tar", everything); }),
                     Contains("a.tar") && Contains("truncated"));
    }
    const bytes good = tar_file(members);
    // Each member takes a header of 512 bytes and six blocks; an end mark of one block counts too.
    for (const std::size_t members_left : {1, 2}) {
        const auto cut = std::span(good).first(members_left * (512 + 3072));
        const std::string last = members_left == 1 ? "top/a.bin" : "top/b.bin";
        REQUIRE_THAT(message_of([&] { read_archive(cut, "a.tar", everything); }),
                     Contains("a.tar: ends behind member " + last) && Contains("truncated"));
        REQUIRE_THAT(message_of([&] { read_archive(folder.write("cut.tar", cut), everything); }),
                     Contains("cut.tar: ends behind member " + last));
        REQUIRE_THAT(message_of([&] { read_archive(gzipped(cut), "a.tar.gz", everything); }),
                     Contains("ends behind member " + last));
    }
    for (std::size_t left = 1; left < 2 * (512 + 3072) + 512; left += 17)
        REQUIRE_THAT(message_of([&] { read_archive(std::span(good).first(left), "a.tar", everything); }),
                     Contains("a.tar"));
    for (const std::size_t zeros : {512, 1024})
        REQUIRE(read_archive(std::span(good).first(2 * (512 + 3072) + zeros), "a.tar", everything).size() == 2);
    bytes bad = good;
    bad[512 + 3072 + 10] ^= 0x55;  // the name in the second header: its checksum no longer fits
    REQUIRE_THAT(message_of([&] { read_archive(bad, "a.tar", everything); }), Contains("a.tar: near byte"));
    REQUIRE_THAT(message_of([&] { read_archive(counting(5000, 3), "a.tar", everything); }), Contains("no tar archive"));
    REQUIRE_THAT(message_of([&] { read_archive(bytes{}, "a.tar", everything); }), Contains("empty file"));
    REQUIRE_THAT(message_of([&] { read_archive(folder.write("e.tar", ""), everything); }), Contains("empty file"));
    REQUIRE_THAT(message_of([&] { read_archive(good, "a.tar", everything, 5000); }), Contains("more than 5000 bytes"));
    REQUIRE_THAT(message_of([&] { read_archive("/nowhere/a.tar", everything); }), Contains("no such file"));
    const bytes linked = tar_file(members, "", "top/b.bin");
    REQUIRE_THAT(message_of([&] { read_archive(linked, "a.tar", everything); }),
                 Contains("top/b.bin is a link") && Contains("--hard-dereference"));
    REQUIRE(read_archive(linked, "a.tar", [](const std::string& name) { return name == "top/a.bin"; }).size() == 1);
    // A header that claims 2^36 bytes costs no memory, only an error.
    bad = good;
    const char* huge = "77777777777";
    std::copy(huge, huge + 11, bad.begin() + 124);
    std::fill(bad.begin() + 148, bad.begin() + 156, ' ');
    unsigned sum = 0;
    for (int i = 0; i < 512; ++i) sum += bad[static_cast<std::size_t>(i)];
    char checksum[8];
    std::snprintf(checksum, sizeof checksum, "%06o", sum);
    std::copy(checksum, checksum + 7, bad.begin() + 148);
    REQUIRE_THAT(message_of([&] { read_archive(bad, "a.tar", everything); }), Contains("top/a.bin"));
}

}  // namespace cairn::test
