#pragma once
// Walks a program's actions in a possible order of execution: each after those before it in its rank's list and after
// its dependencies. If such an order exists, ranks cannot deadlock: sends do not block, receives block in list order,
// and sends are waited for at the end of the step only, under rendezvous too.

#include <cairn/parallel/pipeline/action_index.hpp>

#include <set>
#include <vector>

namespace cairn {

namespace detail {

/// Description of the circular wait of a program that is stuck at `next`.
[[noreturn]] inline void fail_deadlocked(const pipeline_program& program, const action_index& index,
                                         const std::vector<int>& next) {
    const auto done = [&](const action_place& at) { return at.position < next[static_cast<std::size_t>(at.rank)]; };
    const auto finished = [&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        return next[r] >= static_cast<int>(program.actions[r].size());
    };
    const auto missing = [&](int rank) {  // what the next action of this rank waits for
        const auto r = static_cast<std::size_t>(rank);
        action_place first;
        index.for_each_need(program.actions[r][static_cast<std::size_t>(next[r])], [&](const action_place& need) {
            if (!done(need) && (first.rank < 0 || need.rank == rank)) first = need;
        });
        return first;
    };
    for (int rank = 0; rank < program.ranks; ++rank) {
        if (finished(rank)) continue;
        if (const action_place need = missing(rank); need.rank == rank)
            fail(place_text(program, {rank, next[static_cast<std::size_t>(rank)]}), ": runs before action ",
                 need.position, ", ",
                 program.actions[static_cast<std::size_t>(rank)][static_cast<std::size_t>(need.position)],
                 ", which it needs");
    }
    int rank = 0;
    while (finished(rank)) ++rank;
    std::set<int> seen;  // following the waits leads into a circle
    while (seen.insert(rank).second) rank = missing(rank).rank;
    std::string circle;
    const int first = rank;
    do {
        const action_place need = missing(rank);
        circle += concat(circle.empty() ? "" : "; ", place_text(program, {rank, next[static_cast<std::size_t>(rank)]}),
                         ", waits for ", place_text(program, need));
        rank = need.rank;
    } while (rank != first);
    fail("deadlock: ", circle);
}

}  // namespace detail

/// Calls visit(place, action) for each action in such an order. Throws, naming rank, action and reason, if none exists.
template <class Visit>
void for_each_in_dependency_order(const pipeline_program& program, const action_index& index, Visit&& visit) {
    std::vector<int> next(static_cast<std::size_t>(program.ranks), 0);
    bool moved = true, all_done = false;
    while (moved && !all_done) {
        moved = false;
        all_done = true;
        for (int rank = 0; rank < program.ranks; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            const action_list& list = program.actions[r];
            for (; next[r] < static_cast<int>(list.size()); ++next[r], moved = true) {
                const action& a = list[static_cast<std::size_t>(next[r])];
                bool ready = true;
                index.for_each_need(a, [&](const action_place& need) {
                    ready = ready && need.position < next[static_cast<std::size_t>(need.rank)];
                });
                if (!ready) break;
                visit(action_place{rank, next[r]}, a);
            }
            all_done = all_done && next[r] == static_cast<int>(list.size());
        }
    }
    if (!all_done) detail::fail_deadlocked(program, index, next);
}

}  // namespace cairn
