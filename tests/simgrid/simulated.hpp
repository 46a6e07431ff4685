#pragma once
// Simulations in tests: each in a child process, since a process has one.

#include "catch.hpp"
#include "messages.hpp"
#include "sanitized.hpp"

#include <cairn/comm/simgrid.hpp>
#include <cairn/core/child_process.hpp>
#include <cairn/core/interval.hpp>

#include <string>
#include <utility>

namespace cairn::test {

/// Hosts on one switch, by α, β and γ; kernels at 10 GB/s otherwise.
inline machine_description star(int hosts, double alpha = 1e-5, double beta = 1e-9, double gamma = 3e-10) {
    machine_description m;
    m.name = "star";
    m.hosts = hosts;
    m.between = link_model(alpha, beta, gamma);
    m.kernels[{"reduce", "any"}] = {.bandwidth = 3 / gamma};  // two reads and one write of γ seconds a byte
    return m;
}

/// Sanitizers do not know stacks that change hands.
inline const char* const contexts = sanitized ? "thread" : "raw";

/// What `tell` makes of the simulation, a text.
template <class Body, class Tell>
std::string simulated(const machine_description& m, int ranks, Body body, Tell tell, const std::string& on = contexts) {
    return in_child_process([&]() -> std::string {
        phantom_range::reserve(false);  // who touches an element dies there
        return tell(run_simulated(m, ranks, body, {.contexts = on}));
    });
}

/// Seconds of the simulation.
template <class Body>
double simulated_seconds(const machine_description& m, int ranks, Body body) {
    return std::stod(simulated(m, ranks, body, [](const simulation& s) { return text_of(s.seconds); }));
}

/// The error that ends it; "" where none does.
template <class Body>
std::string simulated_error(const machine_description& m, int ranks, Body body) {
    return message_of([&] { simulated_seconds(m, ranks, body); });
}

}  // namespace cairn::test
