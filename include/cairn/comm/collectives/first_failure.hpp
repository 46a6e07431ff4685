#pragma once
// Work that each rank does for itself and that counts only where all succeed: reading and writing of files.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/wait_for.hpp>

#include <exception>
#include <string>
#include <utility>

namespace cairn {

/// Collective: calls action() on every rank. Returns, on all alike, the error of the first that failed; "" where none
/// did. Ranks wait for one another for longer than for a message: a disk may be slow.
template <class Action>
std::string first_failure(any_communicator& ranks, Action&& action) {
    std::string mine;
    try {
        std::forward<Action>(action)();
    } catch (const std::exception& e) {
        mine = e.what();
    }
    wait_for_all(ranks);
    for (const std::string& of_rank : all_gather_text(ranks, mine))
        if (!of_rank.empty()) return of_rank;
    return {};
}

}  // namespace cairn
