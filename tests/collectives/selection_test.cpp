// The cost model's formulas, the table of measurements and what `automatic` makes of it.

#include "collectives/laws.hpp"

#include <cairn/comm/collectives/cost_model.hpp>
#include <cairn/comm/collectives/selection.hpp>
#include <cairn/comm/self.hpp>
#include <cairn/comm/threads.hpp>

#include "catch.hpp"

#include <filesystem>
#include <fstream>

namespace cairn {

namespace {

using enum all_reduce_algorithm;

// Puts the profiles that were in use back.
struct kept_profiles {
    ~kept_profiles() { use_collectives(*before); }
    std::shared_ptr<const collective_profiles> before = collective_profiles_in_use();
};

struct scratch_file {
    scratch_file() { std::filesystem::remove(path); }
    ~scratch_file() { std::filesystem::remove(path); }
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / concat("cairn_collectives_", getpid(), ".tsv");
};

collective_profile example() {
    collective_profile made;
    made.link = link_model({{64, 1e-6, 1e-7}, {1024, 2e-6, 3e-7}, {1 << 20, 3e-4, 1e-4}});
    made.all_reduce[1024] = {{ring, 9e-6}, {recursive_doubling, 3e-6}, {vendor, 2.95e-6}};
    made.all_reduce[1 << 20] = {{ring, 4e-4}, {recursive_doubling, 9e-4}, {vendor, 2e-4}, {hierarchical, 1e-4}};
    return made;
}

}  // namespace

TEST_CASE("cost model: the formulas of the algorithms", "[collectives]") {
    const double a = 3e-6, b = 2e-10, g = 5e-11, n = 4e6;
    const link_model link(a, b, g);
    for (const int p : {2, 3, 4, 6, 8, 16}) {
        const double lg = std::floor(std::log2(p)), share = (p - 1.0) / p;
        const bool power = std::exp2(lg) == p;
        CHECK(all_reduce_seconds(link, ring, n, p) ==
              Approx(2 * (p - 1) * a + 2 * share * n * b + share * n * g).epsilon(1e-12));
        if (power) {
            CHECK(all_reduce_seconds(link, recursive_doubling, n, p) == Approx(lg * (a + n * b + n * g)));
            CHECK(all_reduce_seconds(link, halving_doubling, n, p) ==
                  Approx(2 * lg * a + 2 * share * n * b + share * n * g));
        } else {
            const double core = (std::exp2(lg) - 1) / std::exp2(lg);
            CHECK(all_reduce_seconds(link, halving_doubling, n, p) ==
                  Approx((2 * lg + 2) * a + (2 * core + 2) * n * b + (1 + core) * n * g));
        }
    }
    CHECK(all_reduce_seconds(link, tree, 1e9, 2) == Approx(1e9 * (b + g)).epsilon(0.15));
    CHECK(all_reduce_seconds(link, ring, n, 1) == 0);
    CHECK(all_reduce_seconds(link, ring, 0, 4) == 0);
}

TEST_CASE("cost model: straight lines between measured points", "[collectives]") {
    const link_model link({{1000, 2e-6, 0}, {100, 1e-6, 0}, {2000, 4e-6, 1e-6}});
    CHECK(link.exchange(1) == Approx(1e-6));
    CHECK(link.exchange(550) == Approx(1.5e-6));
    CHECK(link.exchange(1500) == Approx(3e-6));
    CHECK(link.reduce(1500) == Approx(0.5e-6));
    CHECK(link.exchange(4000) == Approx(8e-6));
    CHECK(link_model{}.exchange(10) == 0);
}

TEST_CASE("selection: the fastest of what was measured, else the rule", "[collectives]") {
    const kept_profiles keep;
    use_collectives({{{"threads", 4}, example()}});
    const auto all = [](all_reduce_algorithm) { return true; };
    const auto own = [](all_reduce_algorithm a) { return a != vendor && a != hierarchical; };
    CHECK(choose_all_reduce("threads", 4, 1024, all) == recursive_doubling);  // native is not faster by 3 %
    CHECK(choose_all_reduce("threads", 4, 8, all) == recursive_doubling);
    CHECK(choose_all_reduce("threads", 4, 1 << 20, all) == hierarchical);
    CHECK(choose_all_reduce("threads", 4, 1 << 20, own) == ring);
    CHECK(choose_all_reduce("threads", 4, 1 << 28, own) == ring);
    CHECK(choose_all_reduce("threads", 4, 2048, own) == recursive_doubling);
    CHECK(choose_all_reduce("threads", 3, 1024, all) == default_all_reduce(1024, 3));
    CHECK(choose_all_reduce("mpi", 4, 1 << 20, all) == default_all_reduce(1 << 20, 4));
    self_communicator alone;
    CHECK(automatic_all_reduce<float>(alone, 100) == default_all_reduce(100, 1));
}

TEST_CASE("selection: the file keeps what it is given, by machine", "[collectives]") {
    const scratch_file file;
    CHECK(read_collectives(file.path, "a").empty());
    write_collectives(file.path, "a", {{{"mpi", 2}, example()}});
    write_collectives(file.path, "b", {{{"mpi", 2}, {}}, {{"mpi", 4}, example()}});
    write_collectives(file.path, "a", {{{"mpi", 4}, example()}});
    const collective_profiles got = read_collectives(file.path, "a");
    CHECK(got.size() == 2);
    const collective_profile& profile = got.at({"mpi", 2});
    CHECK(profile.link.points().size() == 3);
    CHECK(profile.link.exchange(1024) == Approx(2e-6));
    CHECK(profile.link.reduce(1 << 20) == Approx(1e-4));
    CHECK(profile.seconds(ring, 1024) == Approx(9e-6));
    CHECK(profile.seconds(tree, 1024) < 0);
    CHECK(read_collectives(file.path, "b").size() == 1);  // the empty one left no line
    CHECK_THROWS_WITH(write_collectives("/dev/null/all.tsv", "a", {}), Catch::Contains("cannot write"));
}

TEST_CASE("selection: a broken file is an error with its line, and no more than a message to a program",
          "[collectives]") {
    const kept_profiles keep;
    const scratch_file file;
    const auto holds = [&](const std::string& text) { std::ofstream(file.path) << text; };
    const auto reading = [&] { return read_collectives(file.path, "m"); };
    holds("ring\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("line 1 of") && Catch::Contains("--calibrate"));
    holds("@\tm\nall-reduce\tmpi\t2\t1024\tring=\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("line 2") && Catch::Contains("'' is no number"));
    holds("@\tm\nall-reduce\tmpi\t2\t-5\tring=1\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("'-5' is no number"));
    holds("@\tm\nall-reduce\tmpi\t2\t5\trung=1\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("no algorithm 'rung'"));
    holds("@\tm\nlink\tmpi\t2\t5\texchange=nan\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("'nan' is no number"));
    holds("@\tm\nlink\tmpi\t2\t5\tsending=1\n");
    CHECK_THROWS_WITH(reading(), Catch::Contains("no 'sending'"));
    self_communicator alone;
    CHECK_THAT(load_collectives(alone, "m", file.path), Catch::Contains("no 'sending'"));
    CHECK(collective_profiles_in_use()->empty());
}

TEST_CASE("selection: all ranks use the table of rank 0", "[collectives]") {
    const kept_profiles keep;
    run_ranks(4, [](threads_communicator& c) {
        share_collectives(c, c.rank() == 0 ? collective_profiles{{{"threads", 4}, example()}} : collective_profiles{});
        require(automatic_all_reduce<float>(c, 1024) == recursive_doubling, "rank ", c.rank());
        std::vector<float> data(300, 1.0f);
        all_reduce(c, std::span<float>(data));
        require(data[299] == 4.0f, "sum ", data[299]);
    });
    CHECK(collective_profiles_in_use()->at({"threads", 4}).seconds(ring, 1024) == Approx(9e-6));
}

}  // namespace cairn
