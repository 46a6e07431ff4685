#pragma once
// Lab 4, task 5: K-FAC on P ranks. Who does what is a table, which every rank computes for itself; then the one message
// that all ranks share.
//
// Ranks form a grid of m rows and n = P / m columns, rank = row · n + column. A layer lives in one column: the m ranks
// of it are its gradient workers. One of them, `worker`, decomposes both factors and sends the others the result. Every
// gradient worker preconditions the gradient, and sends the direction to the n − 1 other ranks of its row.

#include "factors.hpp"

#include <cairn/comm/collectives/ring.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// Rows of a layer's factors.
struct layer_sizes {
    std::int64_t a = 0, g = 0;  // in + 1, out
};

struct layer_place {
    int column = 0;
    int worker = 0;  // the rank that decomposes, of this column

    bool operator==(const layer_place&) const = default;
};

/// The whole assignment of work to ranks, as data.
struct kfac_assignment {
    int ranks = 1;
    int rows = 1;                     // m, gradient workers of a layer
    std::vector<layer_place> layers;  // in the network's order

    int columns() const { return ranks / rows; }
};

/// The number m of gradient workers: of the divisors of `ranks`, the one that is nearest to ranks · fraction, and of
/// two that are equally near the smaller one. 0 < fraction ≤ 1.
inline int gradient_workers(int ranks, double fraction) {
    (void)ranks, (void)fraction;
    throw std::logic_error("task 5: gradient_workers is not written yet");
}

/// Layers one after another, the most expensive first (equal ones in the network's order): each to the column that has
/// least so far, and in it to the rank that has least so far; of equals always the lowest one. A layer costs a³ + g³.
/// `workers`: m.
inline kfac_assignment assign_layers(int ranks, int workers, const std::vector<layer_sizes>& layers) {
    (void)ranks, (void)workers, (void)layers;
    throw std::logic_error("task 5: assign_layers is not written yet");
}

/// The rank from which `rank` has the layer's direction: itself if it is a gradient worker of the layer.
inline int source(const kfac_assignment& p, std::size_t layer, int rank) {
    (void)p, (void)layer, (void)rank;
    throw std::logic_error("task 5: source is not written yet");
}

/// Numbers that all ranks together send, when each of these happens once.
///   factors          upper triangles of the sums of all factors, by a ring all-reduce over all ranks
///   decompositions   eigenvectors and eigenvalues of both factors of each layer, from its `worker` to its other
///                    gradient workers
///   directions       of each layer, from its gradient workers to the ranks that have it from them
struct traffic {
    std::int64_t factors = 0, decompositions = 0, directions = 0;

    bool operator==(const traffic&) const = default;
};

inline traffic traffic_of(const kfac_assignment& p, const std::vector<layer_sizes>& layers) {
    (void)p, (void)layers;
    throw std::logic_error("task 5: traffic_of is not written yet");
}

/// Numbers that a rank keeps between steps: the averages of all factors, as squares, and the eigenvectors and
/// eigenvalues of the layers that it preconditions.
inline std::int64_t kept_by(const kfac_assignment& p, const std::vector<layer_sizes>& layers, int rank) {
    (void)p, (void)layers, (void)rank;
    throw std::logic_error("task 5: kept_by is not written yet");
}

/// Before: every rank has the sums over its own examples; ranks may have different numbers of them, the layers of one
/// rank have the same. After: every rank has, for every layer, the sums over the examples of all ranks, whole matrices
/// again, and how many examples these are. One call of cairn::ring_all_reduce(c, std::span<double>), which adds, of no
/// more numbers than it takes: the upper triangles of all factors, and one number of examples.
template <class C>
void sum_over_ranks(C& c, std::vector<factor_sums>& layers) {
    (void)c, (void)layers;
    throw std::logic_error("task 5: sum_over_ranks is not written yet");
}

}  // namespace student
