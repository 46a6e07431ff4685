#pragma once
// A machine as numbers, for predictions (comm/simgrid.hpp): hosts and their processors, seconds of kernels, and the
// network. Read from benchmarks/machines/*.toml by train/machine_file.hpp, where the entries are explained. Seconds,
// bytes, operations a second and bytes a second throughout.

#include <cairn/core/error.hpp>
#include <cairn/core/link_model.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/perf/energy.hpp>
#include <cairn/perf/storage.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Seconds of a kernel: as measured where its shape was, else start + operations / flops + bytes / bandwidth, times how
/// far off that is at the measured shapes most like it: no formula has all that efficiency depends on.
struct kernel_rate {
    double start = 0;
    double flops = std::numeric_limits<double>::infinity(), bandwidth = std::numeric_limits<double>::infinity();
    struct measurement {
        double seconds, off;  // off: the logarithm of them over the formula
    };
    std::map<std::vector<index_t>, measurement> measured = {};      // by shape
    mutable std::map<std::vector<index_t>, double> estimated = {};  // seconds of other shapes, once they were asked for

    void add_measured(const kernel_work& work, double seconds) {
        const double formula = fit(work);
        measured[shape_of(work)] = {seconds, formula > 0 ? std::log(seconds / formula) : 0};
    }

    double seconds(const kernel_work& work) const {
        if (measured.empty()) return fit(work);
        std::vector<index_t> shape = shape_of(work);
        if (const auto known = measured.find(shape); known != measured.end()) return known->second.seconds;
        double& found = estimated[std::move(shape)];
        if (found == 0) found = fit(work) * std::exp(off_near(work));
        return found;
    }

    static std::vector<index_t> shape_of(const kernel_work& work) {
        return {work.shape.begin(), work.shape.begin() + work.extents};
    }
    double fit(const kernel_work& work) const { return start + work.flops / flops + work.bytes / bandwidth; }

    /// How far off the fit is at the shapes near this one: their mean, weighed by 1 / distance⁴ (Shepard 1968), where a
    /// distance is one of logarithms of extents. Along the first, which counts samples or rows, kernels are most alike.
    double off_near(const kernel_work& work) const {
        constexpr double along_first = 0.2, least = 0.01;
        double weights = 0, sum = 0;
        for (const auto& [shape, found] : measured) {
            if (static_cast<int>(shape.size()) != work.extents) continue;
            double distance2 = least;
            for (std::size_t i = 0; i < shape.size(); ++i) {
                const double apart = std::log((1.0 + double(work.shape[i])) / (1.0 + double(shape[i])));
                distance2 += (i == 0 ? along_first : 1) * apart * apart;
            }
            const double weight = 1 / (distance2 * distance2);
            weights += weight, sum += weight * found.off;
        }
        return weights > 0 ? sum / weights : 0;
    }
    /// Where the clock runs at `frequency` of its highest (perf/energy.hpp).
    double seconds(const kernel_work& work, double frequency) const {
        const double all = fit(work);
        return seconds_at_frequency(seconds(work), all > 0 ? work.bytes / bandwidth / all : 0, frequency);
    }
};

/// How hosts are joined. A cable carries `network.between`'s bytes both ways at once.
struct network_topology {
    enum class kind { star, torus, fat_tree };

    kind joined = kind::star;
    std::vector<int> dimensions;        // of a torus: hosts along each
    std::vector<int> down, up, cables;  // of a fat tree, by level from the hosts on: SimGrid's numbers, which are
                                        // those of XGFTs (Öhring et al. 1995)
    double hop = 0;                     // seconds of each cable that a message takes beyond those of the nearest host

    /// Cables between two hosts that are nearest to each other.
    int nearest() const { return joined == kind::torus ? 1 : 2; }
};

/// See the top of the file.
struct machine_description {
    std::string name;
    bool calibrated = false;  // by measurements on it
    int hosts = 1;
    int ranks_per_host = 1;
    int cores = 1;                // of a processor
    int threads = 1;              // cores that a rank's kernels keep busy; the rates below are theirs
    int hosts_per_processor = 1;  // more than 1: hosts that share its cores, as network namespaces of one machine do
    index_t memory = 0;           // bytes of a host; 0: no limit
    double gap = 0;               // seconds of a rank between two kernels, in none of them
    double polling = 0;           // share of a core that a rank takes while it waits for a message
    std::map<std::pair<std::string, std::string>, kernel_rate> kernels;  // by kind and format; "any": of all others
    std::optional<kernel_rate> other;                                    // of kinds that are not in the table
    link_model between, inside;  // one way, between neighbouring hosts and between ranks of one host
    network_topology topology;
    index_t eager = 0;                          // shorter messages leave before their receiver asks for them
    double message = 0;                         // seconds that the processor spends to send or to receive one
    double copy = 0;                            // and for each of its bytes, while it is waited for
    std::optional<shared_storage> file_system;  // of all hosts together
    std::optional<local_storage> disk;          // of each host
    std::optional<host_power> power;            // none: no joules are told
    std::optional<link_power> cable_power;      // of a cable between two hosts, or to a switch

    int most_ranks() const { return hosts * ranks_per_host; }
    int host_of(int rank) const { return rank / ranks_per_host; }
    /// Ranks whose kernels a processor runs side by side at full speed.
    int places() const { return std::max(1, cores / threads); }

    /// Of a kernel and the gap before it, where the clock runs at `frequency` of its highest. Throws naming a kernel
    /// without a rate.
    double seconds(const kernel_work& work, double frequency = 1) const {
        const auto with_gap = [&](const kernel_rate& rate) {
            return frequency == 1 ? gap + rate.seconds(work) : gap / frequency + rate.seconds(work, frequency);
        };
        for (const char* format : {work.format, "any"})
            if (const auto rate = kernels.find({work.kind, format}); rate != kernels.end())
                return with_gap(rate->second);
        require(other.has_value(), "machine ", name, ": no rate for the kernel '", work.kind, "' in format '",
                work.format, "'; measure it, or give [kernels.other] for all that is not in the table");
        return with_gap(*other);
    }

    /// Throws naming what cannot be, and what it may have been meant to be.
    void check() const {
        const auto wrong = [&](const auto&... why) { fail("machine ", name, ": ", why...); };
        if (between.empty()) wrong("[network] has no points: give seconds of messages between two hosts by size");
        if (inside.empty() && ranks_per_host > 1)
            wrong(ranks_per_host, " ranks on a host, but [network] says nothing of messages inside one");
        if (memory > 0 && memory < 1'000'000) wrong("memory = ", memory, " bytes of a host: were they MB or GB?");
        for (const auto& [kernel, rate] : kernels) check(concat(kernel.first, '.', kernel.second), rate);
        if (other) check("other", *other);
        check("between", between);
        check("inside", inside);
        if (gap >= too_slow) wrong("gap = ", gap, " seconds between kernels: were they ms or µs?");
        if (message >= too_slow) wrong("message = ", message, " seconds: were they ms or µs?");
        if (copy >= 1e-6) wrong("copy = ", copy, " seconds for a byte: less than 1 MB a second");
        if (topology.hop >= too_slow) wrong("hop = ", topology.hop, " seconds: were they ms or µs?");
        if (file_system) file_system->check(concat("machine ", name));
        if (disk) disk->check(concat("machine ", name));
        if (power) power->check(concat("machine ", name), cores);
        if (cable_power) cable_power->check(concat("machine ", name));
        check_topology();
    }

    /// Throws unless so many ranks fit.
    void check_ranks(int ranks) const {
        require(ranks >= 1, "a simulation needs at least 1 rank, not ", ranks);
        require(ranks <= most_ranks(), "machine ", name, ": ", ranks, " ranks asked for; ", hosts, " hosts of ",
                ranks_per_host, " have room for ", most_ranks());
    }

private:
    static constexpr double too_slow = 0.1;  // seconds of a message or of a kernel's start

    void check(const std::string& what, const kernel_rate& rate) const {
        require(rate.start < too_slow, "machine ", name, ": kernels.", what, ": start = ", rate.start,
                " seconds: were they ms or µs?");
        require(rate.flops >= 1e6 && rate.bandwidth >= 1e6, "machine ", name, ": kernels.", what, ": ", rate.flops,
                " operations and ", rate.bandwidth, " bytes a second: were they GFLOP/s or GB/s?");
    }
    void check(const std::string& what, const link_model& link) const {
        for (std::size_t i = 0; i < link.points().size(); ++i) {
            const link_point &p = link.points()[i], &shorter = link.points()[i > 0 ? i - 1 : 0];
            require(i > 0 || p.exchange < too_slow, "machine ", name, ": network.", what, ": a message of ", p.bytes,
                    " bytes takes ", p.exchange, " seconds: were they ms or µs?");
            require(i == 0 || p.bytes > shorter.bytes, "machine ", name, ": network.", what, ": ", p.bytes,
                    " bytes are there twice");
            require(i == 0 || p.exchange > shorter.exchange, "machine ", name, ": network.", what, ": a message of ",
                    p.bytes, " bytes takes no longer than one of ", shorter.bytes);
        }
        require(link.points().size() != 1, "machine ", name, ": network.", what,
                " has one point; at least two sizes tell latency from bandwidth");
    }
    void check_topology() const {
        const auto product = [](const std::vector<int>& of) {
            double all = 1;
            for (const int n : of) all *= n;
            return all;
        };
        const bool tree = topology.joined == network_topology::kind::fat_tree;
        if (topology.joined == network_topology::kind::torus)
            require(product(topology.dimensions) == hosts, "machine ", name, ": a torus of ",
                    product(topology.dimensions), " hosts by its dimensions, but hosts = ", hosts);
        if (!tree) return;
        require(topology.down.size() == topology.up.size() && topology.down.size() == topology.cables.size() &&
                    !topology.down.empty(),
                "machine ", name, ": a fat tree needs down, up and cables, one number a level in each; there are ",
                topology.down.size(), ", ", topology.up.size(), " and ", topology.cables.size());
        require(product(topology.down) == hosts, "machine ", name, ": a fat tree of ", product(topology.down),
                " hosts by 'down', but hosts = ", hosts);
    }
};

}  // namespace cairn
