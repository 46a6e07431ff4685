#pragma once
// A problem to train on: least squares over four ranks whose data differ.
//
// Rank r has m examples a_i with targets b_i = ⟨a_i, w_r⟩, where the w_r differ from rank to rank: in each coordinate
// one rank is 3 above and the other three 1 below what is best for all. f(x) = 1/(2 · 4m) Σ (⟨a_i, x⟩ − b_i)² over all
// examples.

#include "ranks.hpp"

namespace lab {

struct regression {
    static constexpr int ranks = 4;
    static constexpr std::size_t unknowns = 32, examples = 128;  // examples of a rank
    std::vector<std::vector<double>> a, b;  // [rank][example · unknowns + unknown], [rank][example]

    explicit regression(std::uint32_t stream) {
        const std::vector<double> centre = numbers<double>(unknowns, stream);
        for (int r = 0; r < ranks; ++r) {
            a.push_back(numbers<double>(examples * unknowns, stream + 1 + static_cast<std::uint32_t>(r)));
            std::vector<double> targets(examples);
            for (std::size_t i = 0; i < examples; ++i)
                for (std::size_t j = 0; j < unknowns; ++j) {
                    const int above = number(0, ranks - 1, stream + 10 + static_cast<std::uint32_t>(j));
                    targets[i] += a.back()[i * unknowns + j] * (2 * centre[j] + (above == r ? 3.0 : -1.0));
                }
            b.push_back(std::move(targets));
        }
    }

    double miss(std::size_t rank, std::size_t example, const std::vector<float>& x) const {
        double sum = -b[rank][example];
        for (std::size_t j = 0; j < unknowns; ++j) sum += a[rank][example * unknowns + j] * static_cast<double>(x[j]);
        return sum;
    }
    double loss(const std::vector<float>& x) const {
        double sum = 0;
        for (std::size_t r = 0; r < a.size(); ++r)
            for (std::size_t i = 0; i < examples; ++i) sum += miss(r, i, x) * miss(r, i, x);
        return sum / static_cast<double>(2 * a.size() * examples);
    }
    /// Of the examples of one rank; the gradient of f is the mean over the ranks.
    std::vector<float> gradient(std::size_t rank, const std::vector<float>& x) const {
        std::vector<double> sum(unknowns);
        for (std::size_t i = 0; i < examples; ++i) {
            const double e = miss(rank, i, x);
            for (std::size_t j = 0; j < unknowns; ++j) sum[j] += a[rank][i * unknowns + j] * e;
        }
        std::vector<float> g(unknowns);
        for (std::size_t j = 0; j < unknowns; ++j) g[j] = static_cast<float>(sum[j] / examples);
        return g;
    }
};

/// The loss after gradient descent from 0. reduce(gradients of all ranks) gives the mean that each rank has. Throws a
/// fault where ranks disagree.
template <class Reduce>
double loss_after(const regression& problem, int steps, float rate, Reduce&& reduce) {
    arrays x(regression::ranks, std::vector<float>(regression::unknowns)), gradients = x;
    for (int step = 0; step < steps; ++step) {
        for (std::size_t r = 0; r < x.size(); ++r) gradients[r] = problem.gradient(r, x[r]);
        const arrays means = reduce(gradients);
        if (const std::string why = disagreement(means); !why.empty())
            throw fault("step " + std::to_string(step + 1) + ", the means: " + why);
        if (means[0].size() != regression::unknowns)
            throw fault("a mean has " + std::to_string(means[0].size()) + " elements, expected " +
                        std::to_string(regression::unknowns));
        for (std::size_t r = 0; r < x.size(); ++r)
            for (std::size_t j = 0; j < x[r].size(); ++j) x[r][j] -= rate * means[r][j];
    }
    return problem.loss(x[0]);
}

/// The same with exact means, without ranks.
inline double dense_loss_after(const regression& problem, int steps, float rate) {
    std::vector<float> x(regression::unknowns);
    for (int step = 0; step < steps; ++step) {
        std::vector<double> mean(regression::unknowns);
        for (std::size_t r = 0; r < regression::ranks; ++r) {
            const std::vector<float> g = problem.gradient(r, x);
            for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += static_cast<double>(g[j]) / regression::ranks;
        }
        for (std::size_t j = 0; j < mean.size(); ++j) x[j] -= rate * static_cast<float>(mean[j]);
    }
    return problem.loss(x);
}

}  // namespace lab
