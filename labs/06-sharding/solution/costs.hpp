#pragma once
// Lab 6, task 2: what each stage of ZeRO keeps and sends, known before anything runs. Numbers are floats of 4 bytes.
// Stage 0 is plain data parallelism: everything on every rank, gradients by a ring all-reduce.

#include "rank_state.hpp"

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace student {

/// Bytes that a rank keeps between steps.
struct bytes_kept {
    std::int64_t parameters = 0, gradients = 0, optimizer = 0;  // optimizer: m and v

    bool operator==(const bytes_kept&) const = default;
};

/// Of stage 0, 1, 2 or 3, on this rank of p. layers[l] is the number of parameters of layer l. Stages 1 and 2 cut the
/// array of all layers; stage 3 cuts each layer by itself.
inline bytes_kept kept(int stage, const std::vector<std::int64_t>& layers, int p, int rank) {
    //! solution
    const auto part = [&](std::int64_t n) {
        return parts_of(static_cast<std::size_t>(n), p)[static_cast<std::size_t>(rank)].count;
    };
    const std::int64_t all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    std::int64_t mine = part(all);
    if (stage == 3) {
        mine = 0;
        for (const std::int64_t n : layers) mine += part(n);
    }
    return {4 * (stage >= 3 ? mine : all), 4 * (stage >= 2 ? mine : all), 8 * (stage >= 1 ? mine : all)};
    //! starter
    // (void)stage, (void)layers, (void)p, (void)rank;
    // throw std::logic_error("task 2: kept is not written yet");
    //! end
}

/// Bytes that all p ranks together send for one step of `micro_batches` micro-batches.
inline std::int64_t sent(int stage, const std::vector<std::int64_t>& layers, int p, int micro_batches) {
    //! solution
    const std::int64_t all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    const std::int64_t last = layers.empty() ? 0 : layers.back(), k = micro_batches;
    const std::int64_t numbers = stage <= 1 ? 2 * all : stage == 2 ? (k + 1) * all : k * (3 * all - last);
    return 4 * (p - 1) * numbers;
    //! starter
    // (void)stage, (void)layers, (void)p, (void)micro_batches;
    // throw std::logic_error("task 2: sent is not written yet");
    //! end
}

}  // namespace student
