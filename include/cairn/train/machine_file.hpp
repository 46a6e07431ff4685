#pragma once
// Reads a machine_description (perf/machine_description.hpp) from TOML. All numbers are in seconds, bytes, operations a
// second and bytes a second:
//
//   name = "a cluster"
//   calibrated = false                # whether benchmarks/calibrate wrote it on the machine itself
//   [hosts]
//   count = 1024
//   ranks = 2                         # on each host, in the order of their numbers
//   cores = 64                        # of a host's processor
//   threads = 32                      # cores that a rank's kernels keep busy
//   share_processor = 1               # hosts that share one processor
//   memory = 256_000_000_000          # of a host; left out: no limit
//   gap = 1e-6                        # of a rank between two kernels, in none of them
//   polling = 0.3                     # share of a core that a rank takes while it waits for a message; matters where
//                                     #   more ranks than cores share a processor
//   [hosts.watts]                     # left out: no joules are told (perf/energy.hpp)
//   idle = 110                        # of a host without a running rank
//   waiting = 200                     # of one whose ranks all wait for messages, polling
//   busy = [[1, 470], [0.8, 295]]     # p-states, falling: frequency of the highest one, and watts with all cores busy
//   p_state = 0                       # that kernels run in, counted from 0
//   [network]
//   between = [[0, 1.5e-6], [1_000_000, 85e-6]]   # bytes and seconds of a message between neighbouring hosts, one way
//   inside = [[0, 4e-7], [1_000_000, 1e-4]]       # between ranks of one host
//   topology = "star"                 # each host on one switch; or "torus", "fat tree"
//   dimensions = [8, 8, 16]           # of a torus
//   down = [16, 64]                   # of a fat tree: hosts below a leaf switch, leaf switches below a spine switch,
//   up = [1, 16]                      #   switches above a host and above a leaf switch,
//   cables = [1, 1]                   #   cables to each of them
//   hop = 1e-7                        # of each cable beyond those between neighbours
//   eager = 8192                      # shorter messages do not wait for their receiver
//   message = 3e-7                    # of the processor, to send or to receive one
//   copy = 1e-10                      # and for each of its bytes, while it is waited for
//   [network.watts]                   # of a cable with both its ends
//   idle = 4
//   busy = 5                          # both ways at full rate
//   [storage.shared]                  # the file system of all hosts (perf/storage.hpp); left out: nothing can be read
//   bytes = 1e11                      # a second, of all hosts together
//   client = 5e9                      # and of one host; left out: as much
//   latency = 5e-4                    # of a request
//   [storage.local]                   # the disk, or burst buffer, of each host
//   read = 2e9                        # bytes a second
//   write = 1e9
//   latency = 1e-4
//   capacity = 1_600_000_000_000      # bytes; left out: no limit
//   [kernels."convolution forward".float]           # kind and format, "any" for the formats not named
//   start = 2e-6                      # seconds = start + operations / flops + bytes / bytes a second
//   flops = 1e12
//   bytes = 5e10
//   points = [[256, 256, 256, 3.4e7, 7.9e5, 4.1e-5]]  # as measured: a shape, its operations, bytes and seconds; for
//                                     #   other shapes, the formula times how far off it is at those nearest to them
//   [kernels.other]                   # any kind that is not named; without it, such a kernel is an error
//   …

#include <cairn/perf/machine_description.hpp>
#include <cairn/train/settings.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

inline kernel_rate rate_in(configuration& c, const std::string& section) {
    kernel_rate rate;
    const auto number = [&](const char* key, double& field, const interval& allowed) {
        if (c.has(section + '.' + key)) field = c.get(section + '.' + key, field, allowed);
    };
    number("start", rate.start, at_least(0));
    number("flops", rate.flops, above(0));
    number("bytes", rate.bandwidth, above(0));
    require(c.has(section + ".flops") || c.has(section + ".bytes"), section,
            ": needs flops or bytes; no kernel takes no time");
    for (const std::vector<double>& point : c.get(section + ".points", std::vector<std::vector<double>>{})) {
        constexpr std::size_t numbers = 3;  // behind the shape
        kernel_work work;
        require(point.size() >= numbers && point.size() <= numbers + work.shape.size() && point.back() > 0, section,
                ".points: each is a shape, then operations, bytes and seconds: [m, n, k, operations, bytes, seconds]");
        work.extents = static_cast<int>(point.size() - numbers);
        for (int i = 0; i < work.extents; ++i)
            work.shape[static_cast<std::size_t>(i)] = static_cast<index_t>(point[static_cast<std::size_t>(i)]);
        work.flops = point[point.size() - 3], work.bytes = point[point.size() - 2];
        rate.add_measured(work, point.back());
    }
    return rate;
}

inline link_model link_in(configuration& c, const std::string& key) {
    std::vector<link_point> points;
    for (const std::vector<double>& point : c.get(key, std::vector<std::vector<double>>{})) {
        require(point.size() == 2 && point[0] >= 0 && point[1] > 0, key,
                ": each point is [bytes, seconds], bytes from 0 and seconds above 0");
        points.push_back({point[0], point[1], 0});
    }
    return link_model(std::move(points));
}

inline double watts_in(configuration& c, const std::string& key) {
    require(c.has(key), key, " is missing: watts are given whole, idle, busy, and of hosts waiting");
    return c.get(key, 0.0, at_least(0));
}

inline std::optional<host_power> host_power_in(configuration& c) {
    if (c.names_in("hosts.watts").empty()) return std::nullopt;
    host_power power{watts_in(c, "hosts.watts.idle"), watts_in(c, "hosts.watts.waiting"), {}};
    for (const std::vector<double>& state : c.get("hosts.watts.busy", std::vector<std::vector<double>>{})) {
        require(state.size() == 2 && state[0] > 0 && state[1] > 0,
                "hosts.watts.busy: each p-state is [frequency, watts], both above 0");
        power.states.push_back({state[0], state[1]});
    }
    power.state = c.get("hosts.watts.p_state", power.state, at_least(0));
    return power;
}

inline std::optional<link_power> link_power_in(configuration& c) {
    if (c.names_in("network.watts").empty()) return std::nullopt;
    return link_power{watts_in(c, "network.watts.idle"), watts_in(c, "network.watts.busy")};
}

inline double bytes_a_second_in(configuration& c, const std::string& key) {
    require(c.has(key), key, " is missing: bytes a second");
    return c.get(key, 0.0, above(0));
}

inline std::optional<shared_storage> shared_storage_in(configuration& c) {
    if (c.names_in("storage.shared").empty()) return std::nullopt;
    shared_storage s{.bandwidth = bytes_a_second_in(c, "storage.shared.bytes")};
    if (c.has("storage.shared.client")) s.client = bytes_a_second_in(c, "storage.shared.client");
    s.latency = c.get("storage.shared.latency", s.latency, at_least(0));
    return s;
}

inline std::optional<local_storage> local_storage_in(configuration& c) {
    if (c.names_in("storage.local").empty()) return std::nullopt;
    local_storage s{.read = bytes_a_second_in(c, "storage.local.read"),
                    .write = bytes_a_second_in(c, "storage.local.write")};
    s.latency = c.get("storage.local.latency", s.latency, at_least(0));
    s.capacity = c.get("storage.local.capacity", s.capacity, at_least(0));
    return s;
}

}  // namespace detail

/// Throws naming entries that are missing, unknown or impossible.
inline machine_description machine_in(configuration c) {
    machine_description m;
    m.name = c.need<std::string>("name");
    m.calibrated = c.get("calibrated", false);
    settings_table hosts(c, "hosts"), network(c, "network");
    const interval counted = at_least(1);
    hosts("count", m.hosts, counted);
    hosts("ranks", m.ranks_per_host, counted);
    hosts("cores", m.cores, counted);
    m.threads = m.cores / m.ranks_per_host > 0 ? m.cores / m.ranks_per_host : 1;
    hosts("threads", m.threads, counted);
    hosts("share_processor", m.hosts_per_processor, counted);
    hosts("memory", m.memory, at_least(0));
    hosts("gap", m.gap, at_least(0));
    hosts("polling", m.polling, from_to(0, 1));
    using topology = network_topology::kind;
    network("topology", m.topology.joined,
            {{"star", topology::star}, {"torus", topology::torus}, {"fat tree", topology::fat_tree}});
    if (m.topology.joined == topology::torus) network("dimensions", m.topology.dimensions, counted);
    if (m.topology.joined == topology::fat_tree) {
        network("down", m.topology.down, counted);
        network("up", m.topology.up, counted);
        network("cables", m.topology.cables, counted);
    }
    network("hop", m.topology.hop, at_least(0));
    network("eager", m.eager, at_least(0));
    network("message", m.message, at_least(0));
    network("copy", m.copy, at_least(0));
    m.between = detail::link_in(c, "network.between");
    m.inside = detail::link_in(c, "network.inside");
    m.file_system = detail::shared_storage_in(c);
    m.disk = detail::local_storage_in(c);
    m.power = detail::host_power_in(c);
    m.cable_power = detail::link_power_in(c);
    for (const std::string& kind : c.names_in("kernels")) {
        const std::string section = "kernels." + kind;
        if (kind == "other")
            m.other = detail::rate_in(c, section);
        else
            for (const std::string& format : c.names_in(section))
                m.kernels[{kind, format}] = detail::rate_in(c, section + '.' + format);
    }
    c.check_all_used();
    m.check();
    return m;
}

inline machine_description read_machine(const std::filesystem::path& file) {
    return machine_in(configuration::from_file(file));
}

}  // namespace cairn
