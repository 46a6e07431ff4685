#pragma once
// Ranks of a described machine in one process: SimGrid actors that run the very training code as phantom ranks
// (core/phantom.hpp). Messages take the time of the machine's network, kernels that of its kernel table.
//   const machine_description machine = read_machine("benchmarks/machines/cluster.toml");
//   const simulation result = run_simulated(machine, 1024, [](simgrid_communicator& c) { … });   c.rank() is 0 … 1023
//   result.seconds
// One simulation a process: others in child processes (core/child_process.hpp). The first rank that fails ends it, and
// run_simulated throws what it threw; where all wait, an error that names who waits for whom. The other ranks are then
// left where they stand, their memory included: print, and end the process.

#if CAIRN_HAS_SIMGRID  // defined by the CMake target cairn::simgrid; without SimGrid this header is empty

#include <cairn/comm/collectives/selection.hpp>
#include <cairn/comm/simgrid_communicator.hpp>
#include <cairn/core/phantom_rank.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct simulation_options {
    std::string contexts = "raw";  // what actors run on; "thread" for sanitizers and debuggers
};

struct simulation {
    double seconds = 0;                       // until the last rank was through
    double host_joules = 0, link_joules = 0;  // by SimGrid's count, where the machine has watts; of links: all together
    std::vector<simulated_rank> ranks;
};

namespace detail {

/// The first few ranks that wait, each with its collective, and for whom.
inline std::string who_waits(const simulation_state& state) {
    constexpr int most = 8;
    std::string text;
    int count = 0;
    for (const simulated_machine* m : state.machines) {
        if (!m->waits || count++ >= most) continue;
        const simulated_wait& w = *m->waits;
        text +=
            concat(text.empty() ? "" : "; ", "rank ", m->rank(), " waits in ",
                   w.who->calls.empty() ? "no collective" : text_of(w.who->calls.back()), " for its ",
                   text_of_transfer(w.sends, w.bytes, w.peer, w.tag),
                   w.who->size == static_cast<int>(state.ranks.size()) ? "" : concat(" (of ", w.who->size, " ranks)"));
    }
    return concat("all ranks wait: ", text.empty() ? "none for a message" : text,
                  count > most ? concat("; and ", count - most, " more") : "");
}

}  // namespace detail

/// Runs body(communicator) on `ranks` simulated ranks and returns when all are through. Throws where they do not fit
/// the machine; the error of the first rank that failed, with "rank R: " in front; an error that names who waits where
/// none can go on.
template <class Body>
simulation run_simulated(const machine_description& machine, int ranks, Body&& body,
                         const simulation_options& options = {}) {
    machine.check();
    machine.check_ranks(ranks);
    phantom_range::reserve();
    use_collectives({{{"simgrid", 0}, {.link = machine.between}}});  // `automatic` chooses by the machine's link
    // Kept for ever where a rank fails: actors that are left refer to it.
    auto state = std::make_unique<detail::simulation_state>(machine, ranks, options.contexts);
    std::vector<int> everyone;
    for (int r = 0; r < ranks; ++r) everyone.push_back(r);
    const auto world = std::make_shared<detail::simulated_group>(0, std::move(everyone));
    const auto run = [&state = *state, &machine, &body, world](int rank) {
        rank_locals of_another;  // which puts its own back
        try {
            trace events;  // of this rank and its helpers
            trace::of_rank() = &events;
            detail::simulated_machine here(state, rank);
            phantom_rank phantom(here,
                                 machine.memory > 0 ? machine.memory / machine.ranks_per_host : memory_pool::no_limit);
            simgrid_communicator c(state, world, rank);
            body(c);
            here.spend();
            here.numbers().end = here.now();
            here.numbers().peak = phantom.memory().total().peak;
            state.end_of(rank);
            trace::of_rank() = nullptr;
            return;
        } catch (...) {
            state.failure = detail::named_failure(rank, std::current_exception()).first;
        }
        state.stop(state.failure);
    };
    for (int r = 0; r < ranks; ++r)
        state->actors.push_back(
            detail::s4u::Actor::create(concat("rank ", r), state->platform.host(r), [&run, r] { run(r); }));
    detail::s4u::Engine::on_deadlock_cb([&state = *state] {
        state.failure = std::make_exception_ptr(error(detail::who_waits(state)));
        throw detail::simulation_state::stopped{};
    });
    {
        rank_locals mine;
        try {
            state->platform.engine().run();
        } catch (const detail::simulation_state::stopped&) {}
        mine.put_back(false);
    }
    if (state->failure) std::rethrow_exception(state.release()->failure);
    simulation result;
    for (const simulated_rank& r : state->ranks) result.seconds = std::max(result.seconds, r.end);
    result.host_joules = state->platform.host_joules();
    result.link_joules = state->platform.link_joules();
    state->share_joules(result.seconds);
    result.ranks = std::move(state->ranks);
    return result;
}

}  // namespace cairn

#endif
