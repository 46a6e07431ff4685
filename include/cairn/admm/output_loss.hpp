#pragma once
// The loss that the output z (N, K) of the last layer is fitted to, summed over samples:
//   cross entropy   −log softmax(z)[label]        squared   ½ ‖z − y‖²
// A row of label −1 has no loss: a node of a graph whose class is not known. Its z is c.
// And the z-step of the last layer: min over z of loss(z) + ρ/2 ‖z − c‖². After it ∇loss(z) + ρ (z − c) = 0: with
// c = Wa + b − u/ρ the dual u + ρ (z − Wa − b) is −∇loss(z), for classes Y − softmax(z). A free oracle.

#include <cairn/admm/subproblems.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <vector>

namespace cairn::admm {

/// See the top of the file. Labels for classes, or targets for values.
template <class T>
struct output_loss {
    tensor<std::int32_t> labels;  // (rows of z), or empty
    tensor<T> targets;            // (N, K), or empty

    index_t rows() const { return labels.empty() ? targets.extent(0) : labels.size(); }
    /// Those that have a loss.
    index_t counted() const {
        return labels.empty() ? targets.extent(0)
                              : std::ranges::count_if(labels.span(), [](std::int32_t label) { return label >= 0; });
    }

    /// Throws unless there is a label in [-1, classes) for each row of z, or a target for each of its numbers. `who` is
    /// the algorithm that asks.
    void check(const char* who, const shape& z) const {
        if (labels.empty())
            return require(targets.shape() == z, who, ": targets of shape ", targets.shape(),
                           " for an output of shape ", z, "; give a target for each number of the output, or labels");
        const index_t classes = z.back(), rows = z.size() / classes;
        require(labels.size() == rows, who, ": ", labels.size(), " labels ", labels.shape(), " for an output of shape ",
                z, "; give ", rows, " labels, -1 for a row that has none");
        for (index_t i = 0; i < rows; ++i)
            require(labels[i] >= -1 && labels[i] < classes, who, ": label ", labels[i], " of row ", i,
                    " is not in [0, ", classes, "), nor -1 for none; the output has shape ", z);
    }

    /// Sum over samples.
    double value(const tensor<T>& z) const {
        const index_t classes = z.shape().back();
        return sum_over(z.size() / classes, [&](index_t i) {
            double sum = 0;
            if (labels.empty()) {
                for (index_t k = 0; k < classes; ++k) {
                    const double d =
                        static_cast<double>(z[i * classes + k]) - static_cast<double>(targets[i * classes + k]);
                    sum += d * d / 2;
                }
                return sum;
            }
            if (labels[i] < 0) return 0.0;
            std::vector<double> row(z.data() + i * classes, z.data() + (i + 1) * classes), p(row.size());
            return softmax_of(row, p) - row[static_cast<std::size_t>(labels[i])];
        });
    }

    /// z = argmin loss(z) + ρ/2 ‖z − c‖²; z is the first guess of Newton's method.
    void minimise(const tensor<T>& c, double rho, tensor<T>& z) const {
        const index_t classes = z.shape().back();
        parallel_for(z.size() / classes, 64, [&](index_t begin, index_t end) {
            const auto width = static_cast<std::size_t>(classes);
            std::vector<double> around(width), row(width), work(2 * width);
            for (index_t i = begin; i < end; ++i) {
                const T* const from = c.data() + i * classes;
                T* const to = z.data() + i * classes;
                if (labels.empty()) {
                    for (index_t k = 0; k < classes; ++k)
                        to[k] = squared_z(from[k], targets[i * classes + k], static_cast<T>(rho));
                    continue;
                }
                if (labels[i] < 0) {
                    std::copy_n(from, classes, to);
                    continue;
                }
                around.assign(from, from + classes);
                row.assign(to, to + classes);
                output_z(around, labels[i], rho, row, work);
                for (std::size_t k = 0; k < width; ++k) to[k] = static_cast<T>(row[k]);
            }
        });
    }

private:
    template <class OfSample>
    static double sum_over(index_t n, OfSample&& of_sample) {
        return parallel_sum<double>(n, 256, [&](index_t begin, index_t end) {
            double sum = 0;
            for (index_t i = begin; i < end; ++i) sum += of_sample(i);
            return sum;
        });
    }
};

}  // namespace cairn::admm
