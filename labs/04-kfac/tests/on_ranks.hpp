#pragma once
// The factors of a batch that lies on several ranks, and those of the whole batch.

#include "oracle.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lab {

/// What sum_over_ranks left on each rank, what it sent, and what should have come of it.
struct summed {
    std::vector<std::vector<factor_sums>> after;  // [rank][layer]
    std::vector<lab::sent> counts;
    std::vector<expected> a, g;  // [layer]
    double examples = 0;
    std::int64_t triangles = 0;  // numbers

    /// Empty, or the first rank and layer whose sums are wrong and how.
    std::string fault() const {
        for (std::size_t r = 0; r < after.size(); ++r) {
            if (after[r].size() != a.size())
                return "rank " + std::to_string(r) + " has " + std::to_string(after[r].size()) + " layers, expected " +
                       std::to_string(a.size());
            for (std::size_t l = 0; l < a.size(); ++l) {
                const factor_sums& sums = after[r][l];
                const std::string where = "rank " + std::to_string(r) + ", layer " + std::to_string(l) + ", ";
                if (const std::string why = lab::fault(sums.a, a[l]); !why.empty()) return where + "A: " + why;
                if (const std::string why = lab::fault(sums.g, g[l]); !why.empty()) return where + "G: " + why;
                if (sums.examples != examples)
                    return where + "there are " + text(sums.examples) + " examples, expected " + text(examples);
            }
        }
        return {};
    }
    /// Empty, or where a rank differs from rank 0.
    std::string disagreement() const {
        for (std::size_t l = 0; l < a.size(); ++l) {
            std::vector<std::vector<double>> of_a, of_g;
            for (const auto& one : after) of_a.push_back(one[l].a.values), of_g.push_back(one[l].g.values);
            for (const auto& [name, all] : {std::pair("A", of_a), std::pair("G", of_g)})
                if (const std::string why = lab::disagreement(all); !why.empty())
                    return std::string(name) + " of layer " + std::to_string(l) + ": " + why;
        }
        return {};
    }
    std::int64_t bytes() const {
        std::int64_t sum = 0;
        for (const auto& c : counts) sum += c.bytes;
        return sum;
    }
};

/// Runs sum_over_ranks on ranks with examples[rank] rows each, for layers of these factors.
inline summed sum_on_ranks(const std::vector<std::size_t>& examples, const std::vector<layer_sizes>& layers,
                           std::uint32_t stream) {
    summed all;
    const std::size_t p = examples.size();
    std::vector<std::vector<factor_sums>> before(p);
    for (const std::size_t n : examples) all.examples += static_cast<double>(n);
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const auto in = static_cast<std::size_t>(layers[l].a - 1), out = static_cast<std::size_t>(layers[l].g);
        all.triangles += (layers[l].a * (layers[l].a + 1) + layers[l].g * (layers[l].g + 1)) / 2;
        expected a(in + 1, in + 1), g(out, out);
        for (std::size_t r = 0; r < p; ++r) {
            const layer_oracle part(
                random_rows(examples[r], in, out, stream + static_cast<std::uint32_t>(2 * (l * p + r))));
            before[r].push_back(part.sums());
            const auto add = [&](expected& whole, const expected& some) {
                for (std::size_t i = 0; i < some.values.size(); ++i) {
                    whole.values[i] += some.values[i];
                    whole.bound[i] += rounding_bound<double>(2 * p, std::abs(some.values[i]));
                }
            };
            add(a, part.a);
            add(g, part.g);
        }
        all.a.push_back(a);
        all.g.push_back(g);
    }
    doing(text(p, "rank"));
    auto done = on_ranks<std::vector<factor_sums>>(
        static_cast<int>(p), "sum_over_ranks", [&](int r) { return std::tuple(before[static_cast<std::size_t>(r)]); });
    all.after = std::move(done.results), all.counts = std::move(done.sent);
    return all;
}

}  // namespace lab
