#pragma once
// Lab 5, task 1: the two oldest schedules. One stage a rank: stages = ranks = p.

#include "actions.hpp"

#include <algorithm>
#include <stdexcept>

namespace student {

/// GPipe: every rank runs all forwards, then all backwards, both by ascending micro-batch. p ≥ 1 ranks, m ≥ 1
/// micro-batches.
inline schedule gpipe(int p, int m) {
    //! solution
    schedule all{p, p, m, {}};
    for (int s = 0; s < p; ++s) {
        std::vector<action> list;
        for (int i = 0; i < m; ++i) list.push_back({kind::forward, s, i});
        for (int i = 0; i < m; ++i) list.push_back({kind::backward, s, i});
        all.lists.push_back(list);
    }
    return all;
    //! starter
    // (void)p, (void)m;
    // throw std::logic_error("task 1: gpipe is not written yet");
    //! end
}

/// 1F1B: backwards (whole ones, B) begin as soon as they can, so that rank s never keeps more than min(p − s, m)
/// micro-batches. The bubble is that of GPipe. Forwards by ascending micro-batch, backwards too.
inline schedule one_f_one_b(int p, int m) {
    //! solution
    schedule all{p, p, m, {}};
    for (int s = 0; s < p; ++s) {
        std::vector<action> list;
        int forwards = 0;
        while (forwards < std::min(p - 1 - s, m)) list.push_back({kind::forward, s, forwards++});
        for (int i = 0; i < m; ++i) {
            if (forwards < m) list.push_back({kind::forward, s, forwards++});
            list.push_back({kind::backward, s, i});
        }
        all.lists.push_back(list);
    }
    return all;
    //! starter
    // (void)p, (void)m;
    // throw std::logic_error("task 1: one_f_one_b is not written yet");
    //! end
}

}  // namespace student
