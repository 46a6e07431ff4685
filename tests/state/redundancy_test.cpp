// Copies and parities among hosts, on threads: every set of lost hosts that a kind survives, bit for bit; one more is
// refused with the names of the hosts.

#include "catch.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/random.hpp>
#include <cairn/state/redundancy.hpp>

#include <bit>

namespace cairn {

namespace {

using bytes_of_rank = std::vector<std::byte>;

const redundancy by_partner{redundancy::partner};
redundancy by_parity(std::uint32_t parities) { return {redundancy::parity, parities}; }

version_identity version_number(int number) {
    version_identity v{};
    v[3] = static_cast<std::byte>(number);
    return v;
}

bytes_of_rank data_of(int rank, std::size_t bytes) {
    const random_stream numbers{11, static_cast<std::uint32_t>(rank)};
    bytes_of_rank all(bytes);
    for (std::size_t i = 0; i < bytes; i += 16) {
        const auto bits = numbers.bits4(i / 16);
        std::memcpy(all.data() + i, bits.data(), std::min<std::size_t>(16, bytes - i));
    }
    return all;
}

std::string host_of(int rank) { return "host" + std::to_string(rank); }

/// A group of all ranks of c, each on a host of its own.
template <class C>
host_group group_of(C& c) {
    host_group group{c.split(0, c.rank()), {}};
    for (int r = 0; r < c.size(); ++r) group.hosts.push_back(host_of(r));
    return group;
}

bool survives(const redundancy& kind, int n, unsigned lost) {
    if (kind.how == redundancy::parity) return std::popcount(lost) <= static_cast<int>(kind.parities);
    for (int r = 0; r < n; ++r)
        if ((lost >> r & 1) && (lost >> (r + 1) % n & 1)) return false;
    return true;
}

/// What rebuild() throws; "" where it does not.
std::string refusal(host_group& group, const version_identity& version, const rank_parts& parts) {
    try {
        static_cast<void>(rebuild(group, version, parts));
    } catch (const error& e) {
        return e.what();
    }
    return "";
}

/// All sets of lost ranks, with data of `sizes[rank]` bytes.
void check_all_losses(int n, const redundancy& kind, const std::vector<std::size_t>& sizes, index_t mailbox_bytes) {
    run_ranks(n, {.mailbox_bytes = mailbox_bytes, .time_limit = 20}, [&](threads_communicator& c) {
        host_group group = group_of(c);
        const bytes_of_rank data = data_of(c.rank(), sizes[static_cast<std::size_t>(c.rank())]);
        const bytes_of_rank kept = encode(group, kind, version_number(1), data);
        for (unsigned lost = 0; lost < 1u << n; ++lost) {
            const bool mine_lost = lost >> c.rank() & 1;
            rank_parts parts;
            if (!mine_lost) parts = {data, kept};
            if (survives(kind, n, lost)) {
                const auto rebuilt = rebuild(group, version_number(1), parts);
                require(rebuilt.has_value() == mine_lost && (!mine_lost || *rebuilt == data), kind, ", ", n,
                        " ranks, lost ", lost, ": not what it was");
            } else {
                const std::string why = refusal(group, version_number(1), parts);
                for (int r = 0; r < n; ++r)
                    require((why.find(host_of(r) + " (lost)") != why.npos) == bool(lost >> r & 1), kind, ", ", n,
                            " ranks, lost ", lost, ": refused with ", why);
            }
        }
    });
}

}  // namespace

TEST_CASE("redundancy: all sets of lost hosts", "[redundancy]") {
    for (const int n : {4, 5, 6, 8}) {
        std::vector<std::size_t> sizes;  // different ones, one of them none
        for (int r = 0; r < n; ++r) sizes.push_back(static_cast<std::size_t>(r == 2 ? 0 : 700 + 131 * r));
        check_all_losses(n, by_partner, sizes, 1 << 20);
        for (std::uint32_t m = 1; m <= 3; ++m) check_all_losses(n, by_parity(m), sizes, n == 5 ? 0 : 1 << 20);
    }
    for (const int n : {2, 3}) {
        check_all_losses(n, by_partner, {300, 5, 70}, 1 << 20);
        for (std::uint32_t m = 1; m < static_cast<std::uint32_t>(n); ++m)
            check_all_losses(n, by_parity(m), {300, 5, 70}, 0);
    }
    check_all_losses(4, by_parity(2), {0, 0, 0, 0}, 0);
}

TEST_CASE("redundancy: several pieces, all sends wait for their receivers", "[redundancy]") {
    const std::size_t piece = detail::redundancy_piece;
    check_all_losses(4, by_partner, {2 * piece, 3 * piece + 5, 1, piece}, 0);
    check_all_losses(4, by_parity(1), {7 * piece, 9 * piece + 5, 1, piece}, 0);
    check_all_losses(4, by_parity(2), {7 * piece, 5 * piece + 5, 1, piece}, 0);
}

TEST_CASE("redundancy: bytes sent and kept are those of the formulas", "[redundancy]") {
    for (const int n : {4, 6}) {
        run_ranks(n, [&](threads_communicator& c) {
            counting_communicator<threads_communicator> counted(c.split(0, c.rank()));
            host_group group = group_of(counted);
            const auto measured = [&](const redundancy& kind, const bytes_of_rank& data) {
                const std::int64_t before = counted.counts().bytes;
                const std::size_t kept = encode(group, kind, version_number(1), data).size();
                return std::pair(static_cast<std::size_t>(counted.counts().bytes - before), kept);
            };
            const std::size_t bytes = 64 * 60 * 7;  // every n - m divides it
            const bytes_of_rank data = data_of(c.rank(), bytes);
            const auto check = [&](const redundancy& kind, std::size_t sent, std::size_t kept) {
                const auto [sent_all, kept_all] = measured(kind, data);
                const auto [sent_least, kept_least] = measured(kind, {});  // what the ranks tell each other, the header
                require(sent_all - sent_least == sent && kept_all - kept_least == kept, kind, ": sent ",
                        sent_all - sent_least, ", kept ", kept_all - kept_least, " of ", bytes);
            };
            check(by_partner, bytes, bytes);
            for (std::size_t m = 1; m <= 3; ++m)
                check(by_parity(static_cast<std::uint32_t>(m)), m * bytes,
                      m * bytes / (static_cast<std::size_t>(n) - m));
        });
    }
}

TEST_CASE("redundancy: data, copies and parities that are lost apart from each other, or of no use", "[redundancy]") {
    for (const redundancy kind : {by_partner, by_parity(1), by_parity(2)})
        run_ranks(4, [&](threads_communicator& c) {
            host_group group = group_of(c);
            const int me = c.rank();
            const bytes_of_rank data = data_of(me, 500 + static_cast<std::size_t>(me));
            const bytes_of_rank kept = encode(group, kind, version_number(1), data);
            const rank_parts all{data, kept}, no_data{std::nullopt, kept}, nothing{};
            const auto comes_back = [&](int rank, const rank_parts& parts) {
                const auto rebuilt = rebuild(group, version_number(1), me == rank ? parts : all);
                require(rebuilt.has_value() == (me == rank) && (me != rank || *rebuilt == data), kind,
                        ": not what it was");
            };
            comes_back(1, no_data);
            const std::span<const std::byte> shorter = std::span(data).first(100);
            comes_back(2, {shorter, kept});  // of another size
            // The right neighbour's kept bytes are of no use; of no matter to two parities.
            bytes_of_rank damaged = kept;
            damaged.back() ^= std::byte{4};
            const bytes_of_rank other = encode(group, kind, version_number(2), data);
            for (const bytes_of_rank* bad : {&std::as_const(damaged), &other}) {
                const rank_parts parts = me == 1 ? nothing : me == 2 ? rank_parts{data, *bad} : all;
                const std::string why = kind.parities == 2 ? "" : refusal(group, version_number(1), parts);
                if (kind.parities == 2) {
                    const auto rebuilt = rebuild(group, version_number(1), parts);
                    require(rebuilt.has_value() == (me == 1) && (me != 1 || *rebuilt == data), "not what it was");
                } else {
                    require(why.find("Data missing: host1 (lost); copies or parities missing: host1 (lost), host2 (") !=
                                    why.npos &&
                                why.find(bad == &damaged ? "damaged" : "of another version") != why.npos &&
                                why.find("host0, host1, host2, host3") != why.npos,
                            "refused with ", why);
                }
            }
            if (kind.parities == 1) {  // a part of another group, here another rank's
                bytes_of_rank swapped(kept.size());
                if (me < 2) sendrecv(c, std::span(kept), 1 - me, std::span(swapped), 1 - me, 0);
                const rank_parts parts = me == 3 ? nothing : me < 2 ? rank_parts{data, swapped} : all;
                const std::string why = refusal(group, version_number(1), parts);
                require(why.find("host0 (of another group), host1 (of another group), host3 (lost)") != why.npos, why);
            }
            require(!rebuild(group, version_number(9), {data, std::nullopt}), "nothing is lost");
            require(refusal(group, version_number(1), me ? rank_parts{data, std::nullopt} : nothing)
                            .find("host0 (lost), host1 (lost), host2 (lost)") != std::string::npos,
                    "no kept bytes at all");
        });
}

TEST_CASE("redundancy: every byte of what is kept is checked, and every length", "[redundancy]") {
    bytes_of_rank kept;
    run_ranks(3, [&](threads_communicator& c) {
        host_group group = group_of(c);
        bytes_of_rank mine = encode(group, by_parity(1), version_number(1), data_of(c.rank(), 150));
        if (c.rank() == 1) kept = std::move(mine);
    });
    CHECK(read_kept_part(kept).header.sizes == std::vector<std::uint64_t>(3, 150));
    for (std::size_t i = 0; i < kept.size(); ++i) {
        kept[i] ^= std::byte{16};
        REQUIRE_THROWS_WITH(read_kept_part(kept), Catch::Contains("kept for other hosts: "));
        kept[i] ^= std::byte{16};
        REQUIRE_THROWS_WITH(read_kept_part(std::span(kept).first(i)), Catch::Contains("kept for other hosts: "));
    }
    kept.push_back({});
    CHECK_THROWS_WITH(read_kept_part(kept), Catch::Contains("bytes, the header says 128"));
}

TEST_CASE("redundancy: ranks that do not agree, and groups that cannot be", "[redundancy]") {
    const auto failing = [](int n, const auto& kind_of, const auto& version_of) {
        std::string why;
        try {
            run_ranks(n, [&](threads_communicator& c) {
                host_group group = group_of(c);
                static_cast<void>(encode(group, kind_of(c.rank()), version_number(version_of(c.rank())), {}));
            });
        } catch (const error& e) {
            why = e.what();
        }
        return why;
    };
    const auto same = [](int) { return 1; };
    CHECK_THAT(failing(
                   3, [](int r) { return by_parity(r == 1 ? 2 : 1); }, same),
               Catch::Contains("rs with 2 parities"));
    CHECK_THAT(failing(
                   3, [](int) { return by_partner; }, [](int r) { return r; }),
               Catch::Contains("another version"));
    CHECK_THAT(failing(
                   1, [](int) { return by_partner; }, same),
               Catch::Contains("a group of one host"));
    CHECK_THAT(failing(
                   3, [](int) { return by_parity(3); }, same),
               Catch::Contains("3 parities in a group of 3 hosts"));
    CHECK_THAT(failing(
                   3, [](int) { return by_parity(0); }, same),
               Catch::Contains("0 parities"));
}

TEST_CASE("redundancy: groups of hosts", "[redundancy]") {
    const auto hosts = [](std::vector<std::string> names) {
        std::vector<rank_host> all;
        for (std::string& name : names) all.push_back({name, name[0]});
        return all;
    };
    // Four hosts of two ranks in pairs: hosts a and c, hosts b and d; ranks of one host in different groups.
    CHECK(group_hosts(hosts({"a", "a", "b", "b", "c", "c", "d", "d"}), 2) ==
          std::vector<group_place>{{0, 0}, {2, 0}, {1, 0}, {3, 0}, {0, 1}, {2, 1}, {1, 1}, {3, 1}});
    CHECK(group_hosts(hosts({"a", "b", "c", "d", "e"}), 4) ==
          std::vector<group_place>{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}});  // one group of five
    CHECK(group_hosts(hosts({"a", "b", "a", "b"}), 2) == std::vector<group_place>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
    CHECK_THROWS_WITH(group_hosts(hosts({"a", "b"}), 1), Catch::Contains("groups of 1 host"));
    CHECK_THROWS_WITH(group_hosts(hosts({"a", "b", "c"}), 4), Catch::Contains("there are 3 (a, b, c)"));
    CHECK_THROWS_WITH(group_hosts(hosts({"a", "a", "b"}), 2), Catch::Contains("a runs 2 rank(s) and b 1"));
    CHECK_THROWS_WITH(group_hosts(std::vector<rank_host>{{"node", 0}, {"b", 1}, {"node", 2}, {"c", 3}}, 2),
                      Catch::Contains("two hosts are called node (ranks 0 and 2)"));

    run_ranks(8, {.ranks_per_node = 2}, [](threads_communicator& threads) {
        any_communicator c(threads.split(0, threads.rank()));
        const std::string mine = host_of(c.rank() / 2);
        host_group group = form_host_group(c, mine, 2);
        require(group.ranks.size() == 2 && group.hosts[static_cast<std::size_t>(group.ranks.rank())] == mine &&
                    group.hosts[0] != group.hosts[1],
                "not one rank of each of two hosts");
        const bytes_of_rank data = data_of(c.rank(), 100);
        const bytes_of_rank kept = encode(group, by_partner, version_number(1), data);
        const auto rebuilt = rebuild(group, version_number(1), mine == "host2" ? rank_parts{} : rank_parts{data, kept});
        require(rebuilt.has_value() == (mine == "host2") && (!rebuilt || *rebuilt == data), "not what it was");
        std::string why;
        try {
            static_cast<void>(form_host_group(c, "localhost", 2));
        } catch (const error& e) {
            why = e.what();
        }
        require(why.find("two hosts are called localhost (ranks 0 and 2)") != why.npos, why);
    });
}

}  // namespace cairn
