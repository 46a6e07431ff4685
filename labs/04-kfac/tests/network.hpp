#pragma once
// A small network that the tests train: linear layers with tanh between them, squared error. Plain loops in double.

#include "oracle.hpp"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace lab {

struct network {
    std::vector<matrix> weights;  // (out, in + 1)

    network(const std::vector<std::size_t>& sizes, std::uint32_t stream) {
        for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
            matrix w(sizes[l + 1], sizes[l] + 1);
            const auto start = normals(w.values.size(), stream + static_cast<std::uint32_t>(l));
            for (std::size_t r = 0; r < w.rows; ++r)
                for (std::size_t c = 0; c < sizes[l]; ++c)
                    w(r, column_of_input(c)) = start[r * w.cols + c] / std::sqrt(static_cast<double>(sizes[l]));
            weights.push_back(std::move(w));
        }
    }

    /// Inputs of every layer, and the output last.
    std::vector<matrix> forward(const matrix& x) const {
        std::vector<matrix> all{x};
        for (std::size_t l = 0; l < weights.size(); ++l) {
            const matrix &in = all.back(), &w = weights[l];
            matrix y(in.rows, w.rows);
            for (std::size_t i = 0; i < in.rows; ++i)
                for (std::size_t o = 0; o < w.rows; ++o) {
                    double sum = w(o, column_of_bias(in.cols));
                    for (std::size_t c = 0; c < in.cols; ++c) sum += w(o, column_of_input(c)) * in(i, c);
                    y(i, o) = l + 1 < weights.size() ? std::tanh(sum) : sum;
                }
            all.push_back(std::move(y));
        }
        return all;
    }
    /// Rows of every layer for a gradient over the output.
    std::vector<curvature_samples> backward(const std::vector<matrix>& values, matrix dy) const {
        std::vector<curvature_samples> rows(weights.size());
        for (std::size_t l = weights.size(); l-- > 0;) {
            const matrix &in = values[l], &w = weights[l];
            matrix dx(in.rows, in.cols);
            for (std::size_t i = 0; i < in.rows && l > 0; ++i)
                for (std::size_t c = 0; c < in.cols; ++c) {
                    double sum = 0;
                    for (std::size_t o = 0; o < w.rows; ++o) sum += w(o, column_of_input(c)) * dy(i, o);
                    dx(i, c) = sum * (1 - in(i, c) * in(i, c));
                }
            rows[l] = {in, std::move(dy)};
            dy = std::move(dx);
        }
        return rows;
    }
};

/// Half the squared error, mean over the examples.
inline double loss_of(const matrix& y, const matrix& targets) {
    double sum = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i)
        sum += (y.values[i] - targets.values[i]) * (y.values[i] - targets.values[i]);
    return sum / (2 * static_cast<double>(y.rows));
}
inline matrix loss_gradient(const matrix& y, const matrix& targets) {
    matrix dy = y;
    for (std::size_t i = 0; i < y.values.size(); ++i)
        dy.values[i] = (y.values[i] - targets.values[i]) / static_cast<double>(y.rows);
    return dy;
}
/// The same where targets are drawn from the network: y plus a normal number, which is what squared error takes them to
/// be.
inline matrix sampled_gradient(const matrix& y, std::uint32_t stream, std::uint32_t step) {
    matrix dy = y;
    const auto noise = normals(y.values.size(), stream, step);
    for (std::size_t i = 0; i < y.values.size(); ++i) dy.values[i] = -noise[i] / static_cast<double>(y.rows);
    return dy;
}

}  // namespace lab
