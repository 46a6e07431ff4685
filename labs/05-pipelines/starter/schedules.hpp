#pragma once
// Lab 5, task 1: the two oldest schedules. One stage a rank: stages = ranks = p.

#include "actions.hpp"

#include <algorithm>
#include <stdexcept>

namespace student {

/// GPipe: every rank runs all forwards, then all backwards, both by ascending micro-batch. p ≥ 1 ranks, m ≥ 1
/// micro-batches.
inline schedule gpipe(int p, int m) {
    (void)p, (void)m;
    throw std::logic_error("task 1: gpipe is not written yet");
}

/// 1F1B: backwards (whole ones, B) begin as soon as they can, so that rank s never keeps more than min(p − s, m)
/// micro-batches. The bubble is that of GPipe. Forwards by ascending micro-batch, backwards too.
inline schedule one_f_one_b(int p, int m) {
    (void)p, (void)m;
    throw std::logic_error("task 1: one_f_one_b is not written yet");
}

}  // namespace student
