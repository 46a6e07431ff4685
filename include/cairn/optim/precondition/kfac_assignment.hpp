#pragma once
// Assignment of K-FAC's work to P ranks (KAISA; Pauloski et al., SC 2021), as plain data. Ranks form a grid of m rows
// and n = P / m columns, rank = row · n + column, m = P · grad_worker_fraction:
//
//   column   the gradient workers of a layer: they get its decompositions, and precondition its gradient
//   row      n ranks, one in each column: the gradient worker of a layer in it sends the others the result
//
//   fraction 1     COMM-OPT    every rank preconditions everything: nothing is sent after the decompositions
//   fraction 1/P   MEM-OPT     one rank for each layer: decompositions are not sent at all, gradients to all ranks
//   between        HYBRID
//
// Layers go to columns, and factors to the ranks of a column, the largest first, each to the one with the least load
// (Graham's longest processing time first: within 4/3 of the best makespan). Ties go to the lower rank, equal layers in
// their order: every rank computes the same table. Tested as literal tables in tests/optim/kfac_assignment_test.cpp.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace cairn {

/// Sizes of the factors of one layer.
struct factor_sizes {
    index_t a = 0, g = 0;
    index_t groups = 1;  // of a convolution: so many pairs
};

enum class kfac_assignment_strategy { time, memory };  // n³ of a decomposition, n² of what is kept

struct kfac_assignment_config {
    double grad_worker_fraction = 1;
    kfac_assignment_strategy strategy = kfac_assignment_strategy::time;
    bool colocate_factors = true;  // A and G of a layer are decomposed by one rank; else each goes where there is room
};

/// Whose rows a factor's average is of, and where it is: all ranks', on every rank; all ranks', on the rank that
/// decomposes it; that rank's alone (parallel/kfac_ranks.hpp).
enum class kfac_statistics { all, sharded, local };

/// Where a layer is.
struct layer_place {
    int column = 0;
    int a_worker = 0, g_worker = 0;  // ranks that decompose

    bool operator==(const layer_place&) const = default;
};

class kfac_assignment {
public:
    /// Throws if P · fraction is not a whole number that divides P, naming the nearest fraction that fits.
    kfac_assignment(int ranks, const std::vector<factor_sizes>& layers, kfac_assignment_config c = {}) : ranks_(ranks) {
        require(ranks >= 1, "K-FAC assignment: ", ranks, " ranks");
        require(c.grad_worker_fraction > 0 && c.grad_worker_fraction <= 1, "K-FAC assignment: grad_worker_fraction ",
                c.grad_worker_fraction, "; it must be in (0, 1]");
        const double workers = ranks * c.grad_worker_fraction;
        int nearest = 1;
        for (int m = 1; m <= ranks; ++m)
            if (ranks % m == 0 && std::abs(m - workers) < std::abs(nearest - workers)) nearest = m;
        require(std::abs(nearest - workers) < 1e-6 * ranks, "K-FAC assignment: grad_worker_fraction ",
                c.grad_worker_fraction, " of ", ranks, " ranks is ", workers,
                " gradient workers, which must be a divisor of the ranks; the nearest is ", nearest, '/', ranks, " = ",
                static_cast<double>(nearest) / ranks);
        rows_ = nearest;
        assign(layers, c);
    }

    int ranks() const { return ranks_; }
    int rows() const { return rows_; }
    int columns() const { return ranks_ / rows_; }
    int row_of(int rank) const { return rank / columns(); }
    int column_of(int rank) const { return rank % columns(); }

    const std::vector<layer_place>& layers() const { return layers_; }
    /// The rank that decomposes the layer's factor of this side, 'a' or 'g'.
    int worker(std::size_t layer, char side) const {
        return side == 'a' ? layers_[layer].a_worker : layers_[layer].g_worker;
    }
    /// Whether a rank preconditions the layer's gradient.
    bool is_gradient_worker(std::size_t layer, int rank) const { return column_of(rank) == layers_[layer].column; }
    /// The rank that gives `rank` the layer's preconditioned gradient; itself if it is a gradient worker.
    int source(std::size_t layer, int rank) const { return row_of(rank) * columns() + layers_[layer].column; }
    /// Ranks of a column, ascending.
    std::vector<int> gradient_workers(std::size_t layer) const {
        std::vector<int> all;
        for (int row = 0; row < rows_; ++row) all.push_back(row * columns() + layers_[layer].column);
        return all;
    }
    /// Balanced quantity of each rank: n³ or n² summed over the factors that it decomposes.
    const std::vector<double>& loads() const { return loads_; }

private:
    void assign(const std::vector<factor_sizes>& sizes, const kfac_assignment_config& c) {
        const double power = c.strategy == kfac_assignment_strategy::time ? 3 : 2;
        const auto cost = [&](index_t n) { return std::pow(static_cast<double>(n), power); };
        std::vector<std::size_t> order(sizes.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto groups = [&](std::size_t l) { return static_cast<double>(sizes[l].groups); };
        const auto of_layer = [&](std::size_t l) { return groups(l) * (cost(sizes[l].a) + cost(sizes[l].g)); };
        std::ranges::stable_sort(order, [&](std::size_t x, std::size_t y) { return of_layer(x) > of_layer(y); });
        std::vector<double> columns_load(static_cast<std::size_t>(columns()));
        loads_.assign(static_cast<std::size_t>(ranks_), 0);
        layers_.resize(sizes.size());
        for (const std::size_t l : order) {
            layer_place& place = layers_[l];
            place.column = static_cast<int>(std::ranges::min_element(columns_load) - columns_load.begin());
            columns_load[static_cast<std::size_t>(place.column)] += of_layer(l);
            const auto take = [&](double load) {  // by the rank of the column that has least
                int best = place.column;
                for (int r = place.column; r < ranks_; r += columns())
                    if (loads_[static_cast<std::size_t>(r)] < loads_[static_cast<std::size_t>(best)]) best = r;
                loads_[static_cast<std::size_t>(best)] += load;
                return best;
            };
            if (c.colocate_factors) {
                place.a_worker = place.g_worker = take(of_layer(l));
            } else if (sizes[l].a >= sizes[l].g) {
                place.a_worker = take(groups(l) * cost(sizes[l].a));
                place.g_worker = take(groups(l) * cost(sizes[l].g));
            } else {
                place.g_worker = take(groups(l) * cost(sizes[l].g));
                place.a_worker = take(groups(l) * cost(sizes[l].a));
            }
        }
    }

    int ranks_, rows_ = 1;
    std::vector<layer_place> layers_;
    std::vector<double> loads_;
};

}  // namespace cairn
