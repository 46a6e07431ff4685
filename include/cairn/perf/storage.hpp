#pragma once
// Where a machine keeps files: a file system that all hosts share, such as Lustre's, and a disk of each host, which is
// its burst buffer, too. A request of n bytes takes latency + n / share, where
//   the requests of one moment share the file system's bandwidth evenly, of which a host gets `client` at most;
//   the requests of one host share its disk.
// No seeks and no cache: a page cache is a disk of the memory's speed.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <limits>
#include <string>

namespace cairn {

namespace detail {

/// Throws unless bytes a second and seconds of a request can be meant so.
inline void check_storage(const std::string& where, double bandwidth, double latency) {
    require(bandwidth >= 1e6, where, ": ", bandwidth, " bytes a second: were they MB/s or GB/s?");
    require(latency >= 0 && latency < 1, where, ": latency = ", latency, " seconds of a request: were they ms or µs?");
}

}  // namespace detail

/// A file system of all hosts.
struct shared_storage {
    double bandwidth = 0;                                     // bytes a second, of all hosts together
    double client = std::numeric_limits<double>::infinity();  // and of one host
    double latency = 0;                                       // seconds of a request

    void check(const std::string& machine) const {
        detail::check_storage(machine + ": storage.shared.bytes", bandwidth, latency);
        detail::check_storage(machine + ": storage.shared.client", client, latency);
    }
};

/// The disk of a host.
struct local_storage {
    double read = 0, write = 0;  // bytes a second
    double latency = 0;          // seconds of a request
    index_t capacity = 0;        // bytes; 0: no limit

    void check(const std::string& machine) const {
        detail::check_storage(machine + ": storage.local.read", read, latency);
        detail::check_storage(machine + ": storage.local.write", write, latency);
        require(capacity == 0 || capacity >= 1'000'000, machine, ": storage.local.capacity = ", capacity,
                " bytes of a disk: were they GB or TB?");
    }
};

}  // namespace cairn
