// The reader of RAPL's counters, on a folder of files.

#include "catch.hpp"

#include "state/temporary_folder.hpp"

#include <cairn/perf/rapl.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace cairn {

namespace {

/// What Linux shows of two packages, their parts, the whole machine, and a second view of the first package.
struct powercap {
    temporary_folder folder;

    explicit powercap(std::uint64_t range = 262'143'328'850) {
        domain("intel-rapl:0", "package-0", 1'000'000, range);
        domain("intel-rapl:0:0", "core", 900'000, range);
        domain("intel-rapl:0:1", "dram", 100'000, range);
        domain("intel-rapl:1", "package-1", 5'000'000, range);
        domain("intel-rapl:2", "psys", 9'000'000, range);
        domain("intel-rapl-mmio:0", "package-0", 1'000'000, range);
    }
    void domain(const std::string& name, const std::string& what, std::uint64_t microjoules, std::uint64_t range) {
        std::filesystem::create_directories(folder.path / name);
        write(name + "/name", what);
        write(name + "/energy_uj", std::to_string(microjoules));
        write(name + "/max_energy_range_uj", std::to_string(range));
    }
    void write(const std::string& file, const std::string& text) const {
        std::ofstream(folder.path / file) << text << '\n';
    }
    void count(int package, std::uint64_t microjoules) const {
        write("intel-rapl:" + std::to_string(package) + "/energy_uj", std::to_string(microjoules));
    }
};

}  // namespace

TEST_CASE("RAPL: packages are added up, parts of them are not counted twice", "[perf]") {
    const powercap machine;
    perf::rapl counters(machine.folder.path);
    REQUIRE(counters.measures());
    CHECK(counters.joules() == 0);
    machine.count(0, 3'500'000);
    machine.count(1, 6'000'000);
    machine.write("intel-rapl:0:0/energy_uj", "2000000");
    machine.write("intel-rapl:2/energy_uj", "99000000");
    machine.write("intel-rapl-mmio:0/energy_uj", "3500000");
    CHECK(counters.joules() == Approx(3.5));
}

TEST_CASE("RAPL: counters wrap around at their range", "[perf]") {
    const powercap machine(10'000'000);
    perf::rapl counters(machine.folder.path);
    double expected = 0;
    std::uint64_t at = 1'000'000;
    for (int i = 0; i < 20; ++i) {
        at = (at + 3'700'000) % 10'000'000;
        machine.count(0, at);
        expected += 3.7;
        CHECK(counters.joules() == Approx(expected));
    }
}

TEST_CASE("RAPL: a machine without it, or without the right to read it, says so", "[perf]") {
    const temporary_folder nothing;
    perf::rapl none(nothing.path), missing(nothing.path / "powercap");
    CHECK(!none.measures());
    CHECK(!none.joules());
    CHECK(none.why_not() == "no RAPL under " + nothing.path.string());
    CHECK(missing.why_not() == "no RAPL under " + (nothing.path / "powercap").string());

    const powercap machine;
    perf::rapl counters(machine.folder.path);
    const auto file = machine.folder.path / "intel-rapl:1/energy_uj";
    if (geteuid() == 0) {  // who may read anything: a folder has no text
        std::filesystem::remove(file);
        std::filesystem::create_directory(file);
    } else {
        std::filesystem::permissions(file, std::filesystem::perms::none);
    }
    perf::rapl forbidden(machine.folder.path);
    CHECK(!forbidden.measures());
    CHECK(!forbidden.joules());
    CHECK(forbidden.why_not() == file.string() + " cannot be read (root may)");
    CHECK(!counters.joules());  // it could, before
    CHECK(counters.why_not() == file.string() + " can no longer be read");
}

}  // namespace cairn
