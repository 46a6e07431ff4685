#pragma once
// Which hosts make up for one another. Rank k of each host of a group forms a communicator with the k-th ranks of the
// others, so that no two ranks of it are lost with one host. Neighbouring hosts go to different groups: they tend to
// share a switch and a power supply.
//   8 hosts of 2 ranks, groups of 4:   hosts 0 2 4 6 and 1 3 5 7, two communicators of 4 ranks each

#include <cairn/comm/any.hpp>
#include <cairn/comm/require_equal.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Where a rank runs.
struct rank_host {
    std::string name;
    int node = 0;  // the same number for all ranks of one machine
};

/// A rank's place among those that make up for one another.
struct group_place {
    int group = 0;     // number of its communicator
    int position = 0;  // its rank there
    bool operator==(const group_place&) const = default;
};

/// The places of all ranks, for groups of at least `hosts_in_group` hosts (more in some, where it does not divide the
/// number of hosts). Throws where there are fewer hosts, where two have one name, or one has more ranks than another.
inline std::vector<group_place> group_hosts(std::span<const rank_host> ranks, int hosts_in_group) {
    require(hosts_in_group > 1, "redundancy: groups of ", hosts_in_group, " host(s); it takes two at least");
    std::vector<std::string> hosts;  // in the order of their first ranks
    std::map<std::string, std::vector<std::size_t>> ranks_of;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        std::vector<std::size_t>& here = ranks_of[ranks[r].name];
        if (here.empty()) hosts.push_back(ranks[r].name);
        require(here.empty() || ranks[here[0]].node == ranks[r].node, "redundancy: two hosts are called ",
                ranks[r].name, " (ranks ", here.empty() ? r : here[0], " and ", r,
                "); give each a name of its own, for they are told apart by it");
        here.push_back(r);
    }
    for (const std::string& host : hosts)
        require(ranks_of[host].size() == ranks_of[hosts[0]].size(), "redundancy: ", hosts[0], " runs ",
                ranks_of[hosts[0]].size(), " rank(s) and ", host, ' ', ranks_of[host].size(),
                "; start equally many on each host");
    const std::size_t groups = hosts.size() / static_cast<std::size_t>(hosts_in_group);
    require(groups > 0, "redundancy: groups of ", hosts_in_group, " hosts, and there are ", hosts.size(), " (",
            listed(hosts), "); make groups smaller or start more hosts");
    std::vector<group_place> places(ranks.size());
    for (std::size_t h = 0; h < hosts.size(); ++h)
        for (std::size_t k = 0; k < ranks_of[hosts[h]].size(); ++k)
            places[ranks_of[hosts[h]][k]] = {static_cast<int>(k * groups + h % groups), static_cast<int>(h / groups)};
    return places;
}

/// The ranks that make up for one another, one of each host.
struct host_group {
    any_communicator ranks;
    std::vector<std::string> hosts;  // names, by rank
};

/// Collective. This rank's group of at least `hosts_in_group` hosts. `name` is its host's, which no other host has.
/// Throws on all ranks where there are none, see group_hosts().
inline host_group form_host_group(any_communicator& all, std::string_view name, int hosts_in_group) {
    struct told {
        std::array<char, 256> name;
        int node;
    };
    any_communicator node = all.split_node();
    told mine{{}, values_of_ranks(node, all.rank())[0]};
    std::copy_n(name.begin(), std::min(name.size(), mine.name.size() - 1), mine.name.begin());
    std::vector<rank_host> ranks;
    for (const told& t : values_of_ranks(all, mine)) ranks.push_back({t.name.data(), t.node});
    const std::vector<group_place> places = group_hosts(ranks, hosts_in_group);
    const group_place here = places[static_cast<std::size_t>(all.rank())];
    host_group group{all.split(here.group, here.position), {}};
    group.hosts.resize(static_cast<std::size_t>(group.ranks.size()));
    for (std::size_t r = 0; r < places.size(); ++r)
        if (places[r].group == here.group) group.hosts[static_cast<std::size_t>(places[r].position)] = ranks[r].name;
    return group;
}

}  // namespace cairn
