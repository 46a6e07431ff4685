#pragma once
// Cloud in cell from its definition: every particle against every cell, with the periodic distance, in double.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

/// Density on n³ cells of particles at (p[3 i], p[3 i + 1], p[3 i + 2]) in cells, each of mass 1.
inline std::vector<double> cloud_in_cell(const std::vector<double>& p, int n) {
    std::vector<double> density(static_cast<std::size_t>(n) * static_cast<std::size_t>(n) * static_cast<std::size_t>(n),
                                0.0);
    const auto share = [n](double position, int cell) {
        const double d = std::remainder(position - cell, n);
        return std::fmax(0.0, 1 - std::fabs(d));
    };
    for (std::size_t i = 0; i < p.size(); i += 3)
        for (int a = 0; a < n; ++a)
            for (int b = 0; b < n; ++b)
                for (int c = 0; c < n; ++c)
                    density[static_cast<std::size_t>((a * n + b) * n + c)] +=
                        share(p[i], a) * share(p[i + 1], b) * share(p[i + 2], c);
    return density;
}

}  // namespace oracle
