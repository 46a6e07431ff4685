// Versions on the disks of hosts: what is lost is rebuilt or named, and goes to the run's directory as it was.

#include "catch.hpp"
#include "messages.hpp"
#include "state/small_version.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/random.hpp>
#include <cairn/state/local_tier.hpp>
#include <cairn/state/saved_state.hpp>

#include <string>
#include <vector>

namespace cairn {
namespace {

using Catch::Contains;

constexpr index_t tier_elements = 50'003;

/// What rank r of `ranks` has of a tensor, sealed in an image at a multiple of 4096.
struct sealed_part {
    tensor<float> values;
    pack_layout layout;
    test::aligned_image image;

    static state_view view_of(tensor<float>& t, int r, int ranks) {
        const range part = shard_of(tier_elements, ranks, r);
        t = tensor<float>({part.count}, memory_category::workspace);
        for (index_t i = 0; i < part.count; ++i) t[i] = static_cast<float>(part.begin + i);
        state_view v;
        v.add("t", t, {.where = piece{{tier_elements}, {}, {tier_elements}, part.begin, part.count}, .share = {}});
        return v;
    }
    sealed_part(const version_id& version, int r, int ranks)
        : layout({version, r, ranks}, view_of(values, r, ranks)), image(layout.bytes()) {
        layout.fill(image.data.get());
        layout.seal(image.data.get());
    }
    std::span<const std::byte> bytes() const { return {image.data.get(), layout.bytes()}; }
};

struct hosts_of_test {
    temporary_folder folder;
    std::filesystem::path of(int r) const { return folder / concat("host", r); }
    std::filesystem::path states() const { return folder / "states"; }

    /// On each of `ranks` ranks, as if each ran on a host of its own: f(world, its tier).
    template <class F>
    std::string run(int ranks, std::optional<redundancy> kind, F&& f) const {
        return test::message_of([&] {
            run_ranks(ranks, {.kernel_threads = 1, .time_limit = 20}, [&](threads_communicator& c) {
                any_communicator world(c.split(0, c.rank()));
                std::optional<host_redundancy> others;
                if (kind) {
                    others.emplace(host_redundancy{{any_communicator(world.split(0, world.rank())), {}}, *kind});
                    for (int r = 0; r < ranks; ++r) others->group.hosts.push_back(concat("host", r));
                }
                local_tier tier(of(c.rank()), c.rank(), concat("host", c.rank()), std::move(others));
                f(world, tier);
            });
        });
    }
    void store(int ranks, std::optional<redundancy> kind, const version_id& version) const {
        REQUIRE(run(ranks, kind, [&](any_communicator& world, local_tier& tier) {
                    const sealed_part part(version, world.rank(), ranks);
                    tier.store({version, world.rank(), ranks}, part.bytes(), world.rank() ? "" : "{}");
                }) == "");
    }
    /// The message of the error, or the report of rank 0.
    std::string publish(int ranks, std::optional<redundancy> kind, const version_id& version) const {
        std::string report;
        const std::string why = run(ranks, kind, [&](any_communicator& world, local_tier& tier) {
            const std::string told = tier.publish(world, version.name(), states());
            if (world.rank() == 0) report = told;
        });
        return why.empty() ? report : why;
    }
    bool is_published(const version_id& version) const {
        const auto all = list_versions(states());
        if (all.size() != 1 || all[0].name != version.name()) return false;
        verify_version(all[0].directory, true);
        const manifest m = read_manifest(all[0].directory);
        tensor<float> whole({tier_elements}, memory_category::workspace);
        state_view v;
        v.add("t", whole);
        saved_state::of_packs(all[0].directory, own_packs(m)).load(v);
        for (index_t i = 0; i < tier_elements; ++i)
            if (whole[i] != static_cast<float>(i)) return false;
        return true;
    }
};

const version_id tier_version{7, {0x1234567890abcdefu, 5}};

}  // namespace

TEST_CASE("local versions: any hosts that a kind survives are rebuilt, one more is named") {
    constexpr int ranks = 4;
    for (const auto& [kind, survives] : std::vector<std::pair<redundancy, int>>{
             {{redundancy::partner, 0}, 1}, {{redundancy::parity, 1}, 1}, {{redundancy::parity, 2}, 2}})
        for (int lost = 0; lost < 1 << ranks; ++lost) {
            if (std::popcount(static_cast<unsigned>(lost)) > survives + 1) continue;
            const hosts_of_test hosts;
            hosts.store(ranks, kind, tier_version);
            for (int r = 0; r < ranks; ++r)
                if (lost >> r & 1) std::filesystem::remove_all(hosts.of(r));
            const bool neighbours = lost & (lost << 1 | lost >> (ranks - 1));
            const bool should =
                kind.how == redundancy::partner ? !neighbours : std::popcount(static_cast<unsigned>(lost)) <= survives;
            const std::string told = hosts.publish(ranks, kind, tier_version);
            INFO(kind << ", lost " << lost << ": " << told);
            CHECK(hosts.is_published(tier_version) == should);
            for (int r = 0; r < ranks; ++r)
                if (lost >> r & 1)
                    CHECK_THAT(told,
                               Contains(should ? concat("rank ", r, " (host", r, "): rebuilt") : concat("host", r)));
        }
}

TEST_CASE("local versions: a damaged pack counts as lost") {
    const hosts_of_test hosts;
    const redundancy kind{redundancy::parity, 1};
    hosts.store(3, kind, tier_version);
    const auto file = hosts.of(1) / tier_version.name() / "rank-0001.pack";
    std::string bytes = test::text_of(file);
    bytes[bytes.size() - 5] ^= 1;
    std::ofstream(file, std::ios::binary) << bytes;
    CHECK_THAT(hosts.publish(3, kind, tier_version), Contains("rank 1 (host1): rebuilt from the other hosts"));
    CHECK(hosts.is_published(tier_version));
}

TEST_CASE("local versions: without redundancy a lost host is an error; another number of ranks brings all packs") {
    {
        const hosts_of_test hosts;
        hosts.store(3, {}, tier_version);
        std::filesystem::remove_all(hosts.of(2));
        CHECK_THAT(hosts.publish(3, {}, tier_version), Contains("the pack of rank 2 is lost on host2"));
        CHECK(list_versions(hosts.states()).empty());
    }
    for (const int ranks : {1, 2, 4}) {
        const hosts_of_test hosts;
        hosts.store(3, {}, tier_version);
        for (int r = ranks; r < 3; ++r)  // the same disks under fewer ranks
            std::filesystem::copy(
                hosts.of(r), hosts.of(0),
                std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
        CAPTURE(hosts.publish(ranks, {}, tier_version));
        CHECK(hosts.is_published(tier_version));
    }
}

TEST_CASE("local versions: the newest are listed by all, old ones go") {
    const hosts_of_test hosts;
    const version_id later{9, {7, 7}};
    hosts.store(2, {}, tier_version);
    hosts.store(2, {}, later);
    CHECK(hosts.run(2, {}, [&](any_communicator& world, local_tier& tier) {
        require(tier.versions(world, 0) == std::vector<std::string>{later.name(), tier_version.name()}, "two");
        require(tier.versions(world, 7) == std::vector<std::string>{later.name()}, "one is later");
        wait_for_all(world);
        if (world.rank() == 0) tier.keep_only(later.name());
        wait_for_all(world);
        require(tier.versions(world, 0).size() == 2, "rank 1 still has it");
        tier.keep_only(later.name());
        wait_for_all(world);
        require(tier.versions(world, 0) == std::vector<std::string>{later.name()}, "it is gone");
    }) == "");
    CHECK_FALSE(std::filesystem::exists(hosts.of(0) / tier_version.name()));
}

TEST_CASE("local tier: the version that another rank of the host begins to write is left alone") {
    const temporary_folder disk;
    const local_tier tier(disk / "run", 0, "host", {});
    const version_id kept{20, {0x3f2a9c41d07b5e66, 7}}, next{30, kept.attempt}, before{10, kept.attempt},
        of_another_start{30, {1, 1}};
    for (const version_id& id : {kept, next, before, of_another_start})
        std::filesystem::create_directory(disk / "run" / id.name());
    tier.keep_only(kept.name());
    CHECK(std::filesystem::exists(disk / "run" / kept.name()));
    CHECK(std::filesystem::exists(disk / "run" / next.name()));
    CHECK_FALSE(std::filesystem::exists(disk / "run" / before.name()));
    CHECK_FALSE(std::filesystem::exists(disk / "run" / of_another_start.name()));
}

}  // namespace cairn
