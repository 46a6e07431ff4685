#pragma once
// Lab 5, task 4: interleaved 1F1B. Each rank holds v stages, called its chunks: chunk c of rank r is stage c p + r.

#include "actions.hpp"

#include <algorithm>
#include <stdexcept>

namespace student {

/// p ≥ 1 ranks, m ≥ 1 micro-batches, v ≥ 1 chunks a rank, so p v stages; p divides m, else throws
/// std::invalid_argument. Backwards are whole ones, B. On each stage forwards by ascending micro-batch, backwards too.
inline schedule interleaved(int p, int m, int v) {
    //! solution
    if (m % p != 0) throw std::invalid_argument("interleaved: the micro-batches do not divide by the ranks");
    schedule all{p, p * v, m, {}};
    for (int r = 0; r < p; ++r) {
        std::vector<action> list;
        const auto add = [&](kind what, int number, int chunk) {
            list.push_back({what, chunk * p + r, number / (v * p) * p + number % p});
        };
        const auto chunk_of = [&](int number) { return number % (v * p) / p; };
        int forwards = 0;
        const auto forward = [&] {
            if (forwards == m * v) return;
            add(kind::forward, forwards, chunk_of(forwards));
            ++forwards;
        };
        for (int i = 0; i < (v - 1) * p + 2 * (p - 1 - r); ++i) forward();
        for (int k = 0; k < m * v; ++k) {
            forward();
            add(kind::backward, k, v - 1 - chunk_of(k));
        }
        all.lists.push_back(list);
    }
    return all;
    //! starter
    // (void)p, (void)m, (void)v;
    // throw std::logic_error("task 4: interleaved is not written yet");
    //! end
}

}  // namespace student
