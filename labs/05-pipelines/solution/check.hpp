#pragma once
// Lab 5, task 2: is a schedule right? Proved from the lists, before anything runs.

#include "actions.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace student {

enum class fault { none, wrong_place, repeated, missing, deadlock };

/// What is wrong, on which rank, and at which place of its list (from 0; −1 where nothing stands).
struct verdict {
    fault what = fault::none;
    int rank = -1, position = -1;

    bool operator==(const verdict&) const = default;
};

/// The first of these that holds. `all.lists` has a list for each rank; a list may be empty.
///   wrong_place  an action's stage is not one of 0 … stages − 1, its micro-batch not one of 0 … micro_batches − 1, or
///                its stage lives on another rank. The first such action of the lowest such rank.
///   repeated     something is done a second time: the forward of a micro-batch on a stage, the gradient of its input
///                (by I or B), or the gradients of its weights (by W or B). The first action, of the lowest rank, that
///                does again what an earlier one of the list has done.
///   missing      some micro-batch lacks one of these three on some stage. The lowest rank that lacks anything;
///                position −1.
///   deadlock     no rank can go on, and some are not at their end. Ranks run their lists in order, each as far as it
///                can; an action runs when all that it needs is done ("What needs what" in the hand-out).
///                The lowest rank that does not reach its end, and the action at which it stands in the end.
///   none         {fault::none, −1, −1}
inline verdict check(const schedule& all) {
    //! solution
    const auto at = [&](int stage, int micro_batch) {
        return static_cast<std::size_t>(stage) * static_cast<std::size_t>(all.micro_batches) +
               static_cast<std::size_t>(micro_batch);
    };
    const auto inside = [](int i, int n) { return i >= 0 && i < n; };
    const auto size = [&](int rank) { return static_cast<int>(all.lists[static_cast<std::size_t>(rank)].size()); };
    const auto get = [&](int rank, int i) {
        return all.lists[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
    };
    // Forward, gradient of the input, gradients of the weights.
    const auto does = [](kind what) -> std::array<bool, 3> {
        return {what == kind::forward, what == kind::backward || what == kind::backward_input,
                what == kind::backward || what == kind::backward_weight};
    };

    for (int r = 0; r < all.ranks; ++r)
        for (int i = 0; i < size(r); ++i) {
            const action a = get(r, i);
            if (!inside(a.stage, all.stages) || !inside(a.micro_batch, all.micro_batches) || all.rank_of(a.stage) != r)
                return {fault::wrong_place, r, i};
        }
    std::vector<std::array<bool, 3>> done(at(all.stages, 0));
    for (int r = 0; r < all.ranks; ++r)
        for (int i = 0; i < size(r); ++i) {
            const action a = get(r, i);
            for (std::size_t k = 0; k < 3; ++k) {
                if (!does(a.what)[k]) continue;
                if (done[at(a.stage, a.micro_batch)][k]) return {fault::repeated, r, i};
                done[at(a.stage, a.micro_batch)][k] = true;
            }
        }
    for (int r = 0; r < all.ranks; ++r)
        for (int s = r; s < all.stages; s += all.ranks)
            for (int m = 0; m < all.micro_batches; ++m)
                if (done[at(s, m)] != std::array{true, true, true}) return {fault::missing, r, -1};

    done.assign(done.size(), {});
    const auto ready = [&](const action& a) {
        const auto& here = done[at(a.stage, a.micro_batch)];
        if (a.what == kind::forward) return a.stage == 0 || done[at(a.stage - 1, a.micro_batch)][0];
        if (a.what == kind::backward_weight) return here[1];
        return here[0] && (a.stage + 1 == all.stages || done[at(a.stage + 1, a.micro_batch)][1]);
    };
    std::vector<int> next(static_cast<std::size_t>(all.ranks));
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < all.ranks; ++r)
            for (int& i = next[static_cast<std::size_t>(r)]; i < size(r) && ready(get(r, i)); ++i, moved = true) {
                const action a = get(r, i);
                for (std::size_t k = 0; k < 3; ++k)
                    if (does(a.what)[k]) done[at(a.stage, a.micro_batch)][k] = true;
            }
    }
    for (int r = 0; r < all.ranks; ++r)
        if (const int i = next[static_cast<std::size_t>(r)]; i < size(r)) return {fault::deadlock, r, i};
    return {};
    //! starter
    // (void)all;
    // throw std::logic_error("task 2: check is not written yet");
    //! end
}

}  // namespace student
