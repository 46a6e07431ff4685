// Distances of surfaces against all pairs of voxels, and figures of scipy's distance_transform_edt.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/random.hpp>
#include <cairn/core/surface_distance.hpp>

namespace cairn::surface_tests {

using voxels = std::vector<std::uint8_t>;

std::vector<index_t> position(index_t i, const shape& grid) {
    std::vector<index_t> at(static_cast<std::size_t>(grid.rank()));
    for (int a = grid.rank(); a-- > 0; i /= grid[a]) at[static_cast<std::size_t>(a)] = i % grid[a];
    return at;
}

// Voxels of a set with a neighbour that is not.
std::vector<std::vector<index_t>> surface_of(const voxels& set, const shape& grid) {
    std::vector<std::vector<index_t>> all;
    for (index_t i = 0; i < grid.size(); ++i) {
        if (!set[static_cast<std::size_t>(i)]) continue;
        const auto at = position(i, grid);
        index_t stride = grid.size();
        bool outer = false;
        for (int a = 0; a < grid.rank(); ++a) {
            stride /= grid[a];
            const index_t p = at[static_cast<std::size_t>(a)];
            outer |= p == 0 || p + 1 == grid[a] || !set[static_cast<std::size_t>(i - stride)] ||
                     !set[static_cast<std::size_t>(i + stride)];
        }
        if (outer) all.push_back(at);
    }
    return all;
}

double by_pairs(const voxels& a, const voxels& b, const shape& grid, const std::vector<double>& spacing) {
    double worst = 0;
    for (const bool back : {false, true}) {
        const auto from = surface_of(back ? b : a, grid), to = surface_of(back ? a : b, grid);
        std::vector<double> distances;
        for (const auto& p : from) {
            double nearest = 1e300;
            for (const auto& q : to) {
                double squares = 0;
                for (std::size_t k = 0; k < p.size(); ++k)
                    squares += std::pow((spacing.empty() ? 1 : spacing[k]) * static_cast<double>(p[k] - q[k]), 2);
                nearest = std::min(nearest, std::sqrt(squares));
            }
            distances.push_back(nearest);
        }
        std::sort(distances.begin(), distances.end());
        const double rank = 0.95 * static_cast<double>(distances.size() - 1), below = std::floor(rank);
        const auto at = static_cast<std::size_t>(below);
        const double next = distances[std::min(at + 1, distances.size() - 1)];
        worst = std::max(worst, distances[at] + (rank - below) * (next - distances[at]));
    }
    return worst;
}

TEST_CASE("surface distance: by all pairs of voxels", "[figures]") {
    for (std::uint32_t round = 0; round < 500; ++round) {
        const random_stream random{7, 8, round};
        shape grid;
        std::vector<double> spacing;
        for (std::uint64_t a = 0; a <= random.below(3, 0); ++a) {
            grid.push_back(1 + static_cast<index_t>(random.below(6, 1 + a)));
            if (round % 2) spacing.push_back(0.25 + static_cast<double>(random.uniform(20 + a)));
        }
        voxels a, b;
        const float share = random.uniform(30);  // of voxels in a set
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(grid.size()); ++i) {
            a.push_back(random.uniform(100 + 2 * i) < share);
            b.push_back(random.uniform(101 + 2 * i) < 0.5f);
        }
        const bool empty = std::count(a.begin(), a.end(), 1) == 0 || std::count(b.begin(), b.end(), 1) == 0;
        const auto found = surface_distance(a, b, grid, spacing);
        REQUIRE(found.has_value() == !empty);
        if (found) REQUIRE(*found == Approx(by_pairs(a, b, grid, spacing)).margin(1e-12));
    }
    CHECK_THROWS_WITH(surface_distance(voxels(6), voxels(6), {2, 2}), Catch::Contains("6 and 6 voxels"));
}

TEST_CASE("surface distance: as scipy has it", "[figures]") {
    // Two boxes of 12 x 10 x 8 voxels of 1 x 1.5 x 2 mm; binary_erosion, distance_transform_edt, numpy.percentile.
    const shape grid{12, 10, 8};
    voxels a, b;
    for (index_t i = 0; i < grid.size(); ++i) {
        const auto at = position(i, grid);
        const auto inside = [&](index_t from, index_t to) {
            return std::ranges::all_of(at, [&](index_t p) { return p >= from && p < to; });
        };
        a.push_back(inside(1, 6));
        b.push_back(inside(3, 8) && (at[0] + at[1]) % 5 != 0);
    }
    CHECK(*surface_distance(a, b, grid, {1, 1.5, 2}) == Approx(4.759441981124054).epsilon(1e-12));
}

}  // namespace cairn::surface_tests
