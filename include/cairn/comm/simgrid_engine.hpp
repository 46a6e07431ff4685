#pragma once
// SimGrid (S4U 3.32) as a library: the only file that includes it. Its settings, and the platform of a machine.
// By itself it models TCP on a wide network (LV08: latency times 13, flows capped by their window); with the settings
// here a message of m bytes takes what the machine's points say, and longer only where it shares a cable. A flow over
// twice the cables gets half the share of one that it meets.
// Where the machine has watts, SimGrid's plugins integrate them (perf/energy.hpp), which takes a third more time.
// A process has one engine, whose clock begins at 0 once: one simulation a process.

#if CAIRN_HAS_SIMGRID  // defined by the CMake target cairn::simgrid; without SimGrid this header is empty

#include <cairn/core/error.hpp>
#include <cairn/core/interval.hpp>
#include <cairn/perf/machine_description.hpp>

#include <simgrid/plugins/energy.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cairn::detail {

namespace s4u = simgrid::s4u;

/// What a link does to a message of some size: seconds before its first byte, and bytes a second.
struct link_speed {
    double latency, bandwidth;
};

/// For messages of `bytes` on cables of `widest` bytes a second, by the line of the model that they lie on.
inline link_speed speed_of(const link_model& link, double bytes, double widest) {
    constexpr double least = 1e-12;  // SimGrid takes no latency for no weight
    const link_model::line line = link.line_at(bytes);
    if (line.each <= 0) return {std::max(least, line.start - bytes / widest), widest};  // below the first point
    if (line.start > 0) return {line.start, 1 / line.each};
    return {least, bytes / link.exchange(bytes)};
}

/// The highest bandwidth that messages of any size see.
inline double widest(const link_model& link) {
    double most = 0;
    for (const link_point& p : link.points()) {
        most = std::max(most, p.bytes / p.exchange);
        if (const auto line = link.line_at(p.bytes); line.each > 0 && line.start > 0)
            most = std::max(most, 1 / line.each);
    }
    return most;
}

/// The engine and the hosts of a machine. `contexts`: what actors run on, "raw" (all on one thread) or "thread" (one
/// each, for sanitizers and debuggers, ten times slower).
class simulated_platform {
public:
    simulated_platform(const machine_description& machine, int ranks, const std::string& contexts)
        : machine_(machine),
          ranks_(ranks),
          between_(widest(machine.between)),
          inside_(machine.inside.empty() ? 1e12 : widest(machine.inside)) {
        start_engine(contexts);
        s4u::NetZone* const all = s4u::create_full_zone("machine");
        s4u::NetZone* const network = create_network(all);
        if (machine.hosts_per_processor > 1)
            for (int h = 0; h < machine.hosts; h += machine.hosts_per_processor)
                processors_.push_back(create_host(all, "processor " + std::to_string(h / machine.hosts_per_processor)));
        if (machine.file_system || machine.disk) create_storage(all);
        network->seal();
        all->seal();
        if (machine.cable_power) give_watts_to_cables();
        using links = std::vector<s4u::Link*>;
        using zones = std::unordered_set<s4u::NetZone*>;
        auto* const model = all->get_network_model();
        model->set_lat_factor_cb(
            [this](double bytes, const s4u::Host* from, const s4u::Host* to, const links& way, const zones&) {
                double nominal = 0, further = 0;
                for (const s4u::Link* link : way) nominal += link->get_latency();
                if (is_storage(from, to)) return std::max(1e-12, machine_.file_system->latency) / nominal;
                if (from != to)
                    further = machine_.topology.hop * (static_cast<double>(way.size()) - machine_.topology.nearest());
                return (speed(bytes, from == to).latency + std::max(0.0, further)) / nominal;
            });
        model->set_bw_factor_cb(
            [this](double bytes, const s4u::Host* from, const s4u::Host* to, const links&, const zones&) {
                if (is_storage(from, to)) return 1.0;
                return speed(bytes, from == to).bandwidth / (from == to ? inside_ : between_);
            });
    }
    simulated_platform(const simulated_platform&) = delete;
    simulated_platform& operator=(const simulated_platform&) = delete;

    s4u::Engine& engine() const { return *engine_; }
    /// Where the messages of a rank begin and end.
    s4u::Host* host(int rank) const { return hosts_[static_cast<std::size_t>(machine_.host_of(rank))]; }
    /// Where it computes.
    s4u::Host* processor(int rank) const {
        if (processors_.empty()) return host(rank);
        return processors_[static_cast<std::size_t>(machine_.host_of(rank) / machine_.hosts_per_processor)];
    }
    /// The calling actor waits while its rank reads or writes so many bytes, in one request.
    void transfer(int rank, storage where, double bytes, bool writes) const {
        const bool shared = where == storage::shared;
        require(shared ? machine_.file_system.has_value() : machine_.disk.has_value(), "machine ", machine_.name,
                ": rank ", rank, writes ? " writes to " : " reads from ",
                shared ? "the file system" : "its host's disk", ", but the machine file has no [storage.",
                shared ? "shared" : "local", "]");
        s4u::Host* const client = clients_[static_cast<std::size_t>(machine_.host_of(rank))];
        const auto whole = static_cast<sg_size_t>(bytes);
        if (shared) return s4u::Comm::sendto(writes ? client : file_system_, writes ? file_system_ : client, whole);
        s4u::this_actor::sleep_for(machine_.disk->latency);
        s4u::Disk* const disk = client->get_disks().front();
        writes ? disk->write(whole) : disk->read(whole);
    }
    /// Joules so far of the processors that ranks run on; 0 where the machine has no watts.
    double host_joules() const {
        double all = 0;
        if (machine_.power)
            for (int r = 0; r < ranks_; r += ranks_per_processor()) all += sg_host_get_consumed_energy(processor(r));
        return all;
    }
    /// Of the network: all that its traffic draws, and of idle cables the share of the hosts that are used.
    double link_joules() const {
        double all = 0;
        for (const s4u::Link* one_way : cables_) all += sg_link_get_consumed_energy(one_way);
        if (cables_.empty()) return 0;
        const double idle = machine_.cable_power->idle / 2 * static_cast<double>(cables_.size()) * engine_->get_clock();
        const int used = (ranks_ + machine_.ranks_per_host - 1) / machine_.ranks_per_host;
        return all - idle * (1 - static_cast<double>(used) / machine_.hosts);
    }
    int ranks_per_processor() const { return machine_.ranks_per_host * machine_.hosts_per_processor; }
    /// A p-state of the machine's, or `idle`. Only where the machine has watts.
    void set_power_state(int rank, std::size_t k) const { processor(rank)->set_pstate(static_cast<unsigned long>(k)); }
    std::size_t idle() const { return machine_.power->states.size(); }

    /// Work of a processor that takes a rank alone one second: SimGrid drops what is below 1e-5 of its unit.
    static constexpr double second = 1e9;

private:
    void start_engine(const std::string& contexts) {
        require(!s4u::Engine::has_instance(),
                "a second simulation in this process: SimGrid has one engine, whose clock "
                "begins once; run each in a process of its own (core/child_process.hpp)");
        std::vector<std::string> arguments{"cairn",
                                           "--log=xbt_cfg.thresh:warning",
                                           "--log=ker_engine.app:file:/dev/null",  // deadlocks are told by us
                                           "--log=host_energy.thresh:warning",     // and joules
                                           "--log=link_energy.thresh:warning",
                                           "--cfg=network/model:CM02",
                                           "--cfg=network/crosstraffic:0",
                                           "--cfg=network/TCP-gamma:1e15",
                                           "--cfg=network/weight-S:0",
                                           "--cfg=contexts/factory:" + contexts};
        std::vector<char*> pointers;
        for (std::string& argument : arguments) pointers.push_back(argument.data());
        pointers.push_back(nullptr);
        int count = static_cast<int>(arguments.size());
        engine_ = new s4u::Engine(&count, pointers.data());  // never deleted: it would end actors that we have left
        if (machine_.power) sg_host_energy_plugin_init();
        if (machine_.cable_power) sg_link_energy_plugin_init();
    }

    s4u::Host* create_host(s4u::NetZone* zone, const std::string& name) const {
        if (!machine_.power) return zone->create_host(name, second)->set_core_count(machine_.places())->seal();
        // All p-states have one speed: a kernel's work is its seconds in its rank's p-state.
        const host_power& power = *machine_.power;
        const auto watts_of = [](double no_core, double all_cores) {  // without load, with the least, with all
            return concat(cairn::text_of(no_core), ':', cairn::text_of(no_core), ':', cairn::text_of(all_cores));
        };
        std::string watts;
        for (const power_state& state : power.states) watts += watts_of(power.waiting, state.busy) + ',';
        watts += watts_of(power.idle, power.idle);
        return zone->create_host(name, std::vector<double>(power.states.size() + 1, second))
            ->set_core_count(machine_.places())
            ->set_property("wattage_per_state", watts)
            ->seal()
            ->set_pstate(static_cast<unsigned long>(power.state));
    }

    /// A cable's two ways are a link each.
    void give_watts_to_cables() {
        for (s4u::Link* link : engine_->get_all_links()) {
            if (link->get_name().starts_with("inside ") || link->get_name().starts_with("storage") ||
                link->get_name().starts_with("__"))
                continue;
            link->set_property("wattage_range", concat(cairn::text_of(machine_.cable_power->idle / 2), ':',
                                                       cairn::text_of(machine_.cable_power->busy / 2)));
            cables_.push_back(link);
        }
    }

    /// The file system is a host behind one link, which each host reaches by a link of its own, apart from the network;
    /// to that end a host has a second one, a client, which has its disk.
    void create_storage(s4u::NetZone* all) {
        s4u::NetZone* const star = s4u::create_star_zone("storage")->set_parent(all);
        const auto join = [&](s4u::Host* host, const std::string& name, double bandwidth) {
            auto* const link = star->create_link(name, std::min(bandwidth, 1e18))->set_latency(cable_latency)->seal();
            star->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {s4u::LinkInRoute(link)}, true);
        };
        const shared_storage shared = machine_.file_system.value_or(shared_storage{.bandwidth = 1e9});
        const auto create = [&](const std::string& name) {
            s4u::Host* const host = star->create_host(name, second);
            return machine_.power ? host->set_property("wattage_per_state", "0:0:0") : host;
        };
        file_system_ = create("file system")->seal();
        join(file_system_, "storage", shared.bandwidth);
        for (int h = 0; h < machine_.hosts; ++h) {
            const std::string id = std::to_string(h);
            s4u::Host* const client = create("client " + id);
            if (machine_.disk) client->create_disk("disk " + id, machine_.disk->read, machine_.disk->write)->seal();
            clients_.push_back(client->seal());
            join(client, "storage of host " + id, shared.client);
        }
        star->seal();
    }
    bool is_storage(const s4u::Host* from, const s4u::Host* to) const {
        return file_system_ && (from == file_system_ || to == file_system_);
    }

    s4u::NetZone* create_network(s4u::NetZone* all) {
        hosts_.resize(static_cast<std::size_t>(machine_.hosts));
        const auto host = [this](s4u::NetZone* zone, unsigned long id) {
            return hosts_[id] = create_host(zone, "host " + std::to_string(id));
        };
        const auto loop = [this](s4u::NetZone* zone, unsigned long id) {
            return zone->create_link("inside " + std::to_string(id), inside_)
                ->set_latency(cable_latency)
                ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)  // ranks copy side by side
                ->seal();
        };
        const auto count = [](const std::vector<int>& n) { return std::vector<unsigned>(n.begin(), n.end()); };
        s4u::ClusterCallbacks callbacks(
            [host](s4u::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
                return std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>(
                    host(zone, id)->get_netpoint(), nullptr);
            },
            [loop](s4u::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) { return loop(zone, id); },
            {});
        const network_topology& t = machine_.topology;
        const auto both_ways = s4u::Link::SharingPolicy::SPLITDUPLEX;
        switch (t.joined) {
            case network_topology::kind::torus:
                return s4u::create_torus_zone("torus", all, {t.dimensions.begin(), t.dimensions.end()}, callbacks,
                                              between_, cable_latency, both_ways);
            case network_topology::kind::fat_tree:
                return s4u::create_fatTree_zone(
                    "fat tree", all,
                    {static_cast<unsigned>(t.down.size()), count(t.down), count(t.up), count(t.cables)}, callbacks,
                    between_, cable_latency, both_ways);
            case network_topology::kind::star:
                break;
        }
        s4u::NetZone* const star = s4u::create_star_zone("star")->set_parent(all);
        for (unsigned long id = 0; id < hosts_.size(); ++id) {
            auto* const point = host(star, id)->get_netpoint();
            auto* const cable = star->create_split_duplex_link("cable " + std::to_string(id), between_);
            cable->set_latency(cable_latency)->seal();
            star->add_route(point, nullptr, nullptr, nullptr, {{cable, s4u::LinkInRoute::Direction::UP}}, true);
            star->add_route(point, point, nullptr, nullptr, {s4u::LinkInRoute(loop(star, id))}, false);
        }
        return star;
    }

    link_speed speed(double bytes, bool within) const {
        return within ? speed_of(machine_.inside, bytes, inside_) : speed_of(machine_.between, bytes, between_);
    }

    static constexpr double cable_latency = 1e-6;  // nominal: what it really is, the callbacks say

    const machine_description& machine_;
    int ranks_;
    double between_, inside_;  // bytes a second
    s4u::Engine* engine_ = nullptr;
    s4u::Host* file_system_ = nullptr;
    std::vector<s4u::Host*> hosts_, processors_, clients_;
    std::vector<s4u::Link*> cables_;  // with watts, a way each
};

}  // namespace cairn::detail

#endif
