#pragma once
// What of a split of fields makes figures of the test part better than they will be: samples that follow each other in
// a file, such as years, and resemble each other more than others do, one of them trained and the next one tested on.

#include <cairn/data/audit.hpp>
#include <cairn/data/fields/field_samples.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cairn {

namespace detail {

/// Correlation of two fields over the pixels that both have.
inline double correlation_of_fields(const float* a, const float* b, index_t cells) {
    double n = 0, sum_a = 0, sum_b = 0, aa = 0, bb = 0, ab = 0;
    for (index_t p = 0; p < cells; ++p) {
        const auto x = static_cast<double>(a[p]), y = static_cast<double>(b[p]);
        if (std::isnan(x) || std::isnan(y)) continue;
        ++n, sum_a += x, sum_b += y, aa += x * x, bb += y * y, ab += x * y;
    }
    const double in_both = (n * aa - sum_a * sum_a) * (n * bb - sum_b * sum_b);
    return in_both > 0 ? (n * ab - sum_a * sum_b) / std::sqrt(in_both) : 0;
}

}  // namespace detail

/// Of samples `train` and `test` of the same files. Fields are compared less the mean of each pixel, and each tested
/// one with the training samples next to it and with one that is drawn.
inline std::vector<audit_finding> audit_fields(const field_files& files, const std::string& target,
                                               const std::vector<index_t>& train, const std::vector<index_t>& test) {
    constexpr double most_more = 0.15;
    field_array fields = files.at(target);
    const index_t cells = fields.cells() * fields.axes[1], samples = fields.axes[0];
    for (index_t p = 0; p < cells; ++p) {
        double sum = 0, n = 0;
        for (index_t i = 0; i < samples; ++i)
            if (const float v = fields.field(i, 0)[p]; !std::isnan(v)) sum += static_cast<double>(v), ++n;
        for (index_t i = 0; i < samples; ++i)
            fields.values[static_cast<std::size_t>(i * cells + p)] -= static_cast<float>(sum / std::max(n, 1.0));
    }
    std::vector<bool> trains(static_cast<std::size_t>(samples));
    for (const index_t i : train) trains[static_cast<std::size_t>(i)] = true;
    double next = 0, nexts = 0, drawn = 0;
    const random_stream random{0, stream_of("audit"), 0};
    for (const index_t i : test) {
        const auto with = [&](index_t k) {
            return detail::correlation_of_fields(fields.field(i, 0), fields.field(k, 0), cells);
        };
        for (const index_t k : {i - 1, i + 1})
            if (k >= 0 && k < samples && trains[static_cast<std::size_t>(k)] &&
                files.file_of[static_cast<std::size_t>(k)] == files.file_of[static_cast<std::size_t>(i)])
                next += with(k), ++nexts;
        drawn += with(train[static_cast<std::size_t>(random.below(train.size(), static_cast<std::uint64_t>(i)))]);
    }
    const double of_next = next / std::max(nexts, 1.0), of_drawn = drawn / static_cast<double>(test.size());
    if (nexts == 0 || of_next < of_drawn + most_more) return {};
    return {{true, concat("test samples correlate with the training samples next to them in a file by ",
                          std::round(100 * of_next) / 100, ", with others by ", std::round(100 * of_drawn) / 100,
                          ": set data.fields.split = files or leave_files_out")}};
}

}  // namespace cairn
