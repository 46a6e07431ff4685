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
    //! solution
    int nearest = 1;
    for (int m = 1; m <= ranks; ++m)
        if (ranks % m == 0 && std::abs(m - ranks * fraction) < std::abs(nearest - ranks * fraction)) nearest = m;
    return nearest;
    //! starter
    // (void)ranks, (void)fraction;
    // throw std::logic_error("task 5: gradient_workers is not written yet");
    //! end
}

/// Layers one after another, the most expensive first (equal ones in the network's order): each to the column that has
/// least so far, and in it to the rank that has least so far; of equals always the lowest one. A layer costs a³ + g³.
/// `workers`: m.
inline kfac_assignment assign_layers(int ranks, int workers, const std::vector<layer_sizes>& layers) {
    //! solution
    kfac_assignment p{ranks, workers, std::vector<layer_place>(layers.size())};
    const auto cost = [&](std::size_t l) {
        const auto cube = [](std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n * n); };
        return cube(layers[l].a) + cube(layers[l].g);
    };
    std::vector<std::size_t> order(layers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return cost(x) > cost(y); });
    std::vector<double> of_column(static_cast<std::size_t>(p.columns())), of_rank(static_cast<std::size_t>(ranks));
    for (const std::size_t l : order) {
        layer_place& at = p.layers[l];
        at.column = static_cast<int>(std::min_element(of_column.begin(), of_column.end()) - of_column.begin());
        of_column[static_cast<std::size_t>(at.column)] += cost(l);
        at.worker = at.column;
        for (int r = at.column; r < ranks; r += p.columns())
            if (of_rank[static_cast<std::size_t>(r)] < of_rank[static_cast<std::size_t>(at.worker)]) at.worker = r;
        of_rank[static_cast<std::size_t>(at.worker)] += cost(l);
    }
    return p;
    //! starter
    // (void)ranks, (void)workers, (void)layers;
    // throw std::logic_error("task 5: assign_layers is not written yet");
    //! end
}

/// The rank from which `rank` has the layer's direction: itself if it is a gradient worker of the layer.
inline int source(const kfac_assignment& p, std::size_t layer, int rank) {
    //! solution
    return rank / p.columns() * p.columns() + p.layers[layer].column;
    //! starter
    // (void)p, (void)layer, (void)rank;
    // throw std::logic_error("task 5: source is not written yet");
    //! end
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
    //! solution
    traffic t;
    const std::int64_t ranks = p.ranks, rows = p.rows;
    for (const layer_sizes& l : layers) {
        t.factors += 2 * (ranks - 1) * (l.a * (l.a + 1) / 2 + l.g * (l.g + 1) / 2);
        t.decompositions += (rows - 1) * (l.a * l.a + l.a + l.g * l.g + l.g);
        t.directions += rows * (p.columns() - 1) * l.a * l.g;
    }
    return t;
    //! starter
    // (void)p, (void)layers;
    // throw std::logic_error("task 5: traffic_of is not written yet");
    //! end
}

/// Numbers that a rank keeps between steps: the averages of all factors, as squares, and the eigenvectors and
/// eigenvalues of the layers that it preconditions.
inline std::int64_t kept_by(const kfac_assignment& p, const std::vector<layer_sizes>& layers, int rank) {
    //! solution
    std::int64_t kept = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const std::int64_t a = layers[l].a, g = layers[l].g;
        kept += a * a + g * g;
        if (source(p, l, rank) == rank) kept += a * a + a + g * g + g;
    }
    return kept;
    //! starter
    // (void)p, (void)layers, (void)rank;
    // throw std::logic_error("task 5: kept_by is not written yet");
    //! end
}

/// Before: every rank has the sums over its own examples; ranks may have different numbers of them, the layers of one
/// rank have the same. After: every rank has, for every layer, the sums over the examples of all ranks, whole matrices
/// again, and how many examples these are. One call of cairn::ring_all_reduce(c, std::span<double>), which adds, of no
/// more numbers than it takes: the upper triangles of all factors, and one number of examples.
template <class C>
void sum_over_ranks(C& c, std::vector<factor_sums>& layers) {
    //! solution
    std::vector<double> packed;
    const auto each = [&](auto&& visit) {
        for (factor_sums& sums : layers)
            for (matrix* m : {&sums.a, &sums.g})
                for (std::size_t r = 0; r < m->rows; ++r)
                    for (std::size_t col = r; col < m->cols; ++col) visit(*m, r, col);
    };
    each([&](matrix& m, std::size_t r, std::size_t col) { packed.push_back(m(r, col)); });
    packed.push_back(layers.empty() ? 0 : layers[0].examples);
    cairn::ring_all_reduce(c, std::span<double>(packed));
    std::size_t at = 0;
    each([&](matrix& m, std::size_t r, std::size_t col) { m(r, col) = m(col, r) = packed[at++]; });
    for (factor_sums& sums : layers) sums.examples = packed.back();
    //! starter
    // (void)c, (void)layers;
    // throw std::logic_error("task 5: sum_over_ranks is not written yet");
    //! end
}

}  // namespace student
