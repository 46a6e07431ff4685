#pragma once
// Input of the compression autotuner (compression_autotuner.hpp): the ways in which a bucket may be reduced with their
// modelled costs, and the measured times of a step.

#include <cairn/compress/timeline.hpp>
#include <cairn/core/error.hpp>

#include <string>
#include <vector>

namespace cairn {

/// One way to reduce a bucket, with what it should cost.
struct reduction_option {
    std::string compressor;  // "" for dense
    std::string algorithm;
    double communication = 0, encode = 0, decode = 0;  // seconds for this bucket

    bool dense() const { return compressor.empty(); }
};

/// Measured times of one step.
struct step_measurement {
    double seconds = 0;      // of the whole step
    double compute_end = 0;  // when backward ended
    std::vector<bucket_times> buckets;

    /// All numbers in a row, for a reduction by maximum over ranks, and back.
    std::vector<double> flat() const {
        std::vector<double> all{seconds, compute_end};
        for (const bucket_times& b : buckets) all.insert(all.end(), {b.ready, b.encode, b.communication, b.decode});
        return all;
    }
    static step_measurement from_flat(const std::vector<double>& all) {
        require(all.size() >= 2 && all.size() % 4 == 2, "compression autotuner: a measurement of ", all.size(),
                " numbers");
        step_measurement m{all[0], all[1], {}};
        for (std::size_t i = 2; i < all.size(); i += 4)
            m.buckets.push_back({all[i], all[i + 1], all[i + 2], all[i + 3]});
        return m;
    }
};

}  // namespace cairn
