#pragma once
// Batch and layer normalisation by plain loops: the definitions that the kernels are compared with. Everything in
// double.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

using numbers = std::vector<double>;

/// Mean and biased variance of the elements start, start + step, … (count of them).
struct moments {
    double mean = 0, var = 0;
};
inline moments moments_of(const numbers& x, std::size_t start, std::size_t step, std::size_t count) {
    long double sum = 0, squares = 0;
    for (std::size_t i = 0; i < count; ++i) sum += x[start + i * step];
    const long double mean = sum / static_cast<long double>(count);
    for (std::size_t i = 0; i < count; ++i) squares += (x[start + i * step] - mean) * (x[start + i * step] - mean);
    return {double(mean), double(squares / static_cast<long double>(count))};
}

/// y = act(gamma (x - mean) / sqrt(var + eps) + beta + skip), act(v) = v for v > 0 and slope v otherwise; slope 1 is
/// none.
struct batch_norm_result {
    numbers mean, var, y;
    numbers dx, dskip, dgamma, dbeta;  // of the loss Σ dy y
};
inline batch_norm_result batch_norm(std::size_t rows, std::size_t channels, const numbers& x, const numbers& skip,
                                    const numbers& gamma, const numbers& beta, double eps, double slope,
                                    const numbers& dy) {
    batch_norm_result r{numbers(channels), numbers(channels), numbers(x.size()), numbers(x.size()),
                        numbers(x.size()), numbers(channels), numbers(channels)};
    const double n = double(rows);
    for (std::size_t c = 0; c < channels; ++c) {
        const auto [mean, var] = moments_of(x, c, channels, rows);
        const double invstd = 1 / std::sqrt(var + eps);
        r.mean[c] = mean;
        r.var[c] = var;
        for (std::size_t i = c; i < x.size(); i += channels) {
            const double xhat = (x[i] - mean) * invstd, v = gamma[c] * xhat + beta[c] + skip[i];
            r.y[i] = v > 0 ? v : slope * v;
            r.dskip[i] = v > 0 ? dy[i] : slope * dy[i];
            r.dgamma[c] += r.dskip[i] * xhat;
            r.dbeta[c] += r.dskip[i];
        }
        for (std::size_t i = c; i < x.size(); i += channels) {
            const double xhat = (x[i] - mean) * invstd;
            r.dx[i] = gamma[c] * invstd * (r.dskip[i] - r.dbeta[c] / n - xhat * r.dgamma[c] / n);
        }
    }
    return r;
}

/// y = gamma (x - mean) / sqrt(var + eps) + beta, mean and var of each row.
struct layer_norm_result {
    numbers y, dx, dgamma, dbeta;
};
inline layer_norm_result layer_norm(std::size_t rows, std::size_t features, const numbers& x, const numbers& gamma,
                                    const numbers& beta, double eps, const numbers& dy) {
    layer_norm_result r{numbers(x.size()), numbers(x.size()), numbers(features), numbers(features)};
    for (std::size_t row = 0; row < rows; ++row) {
        const auto [mean, var] = moments_of(x, row * features, 1, features);
        const double invstd = 1 / std::sqrt(var + eps);
        double sum = 0, product = 0;
        for (std::size_t f = 0; f < features; ++f) {
            const std::size_t i = row * features + f;
            const double xhat = (x[i] - mean) * invstd;
            r.y[i] = gamma[f] * xhat + beta[f];
            r.dgamma[f] += dy[i] * xhat;
            r.dbeta[f] += dy[i];
            sum += gamma[f] * dy[i];
            product += gamma[f] * dy[i] * xhat;
        }
        for (std::size_t f = 0; f < features; ++f) {
            const std::size_t i = row * features + f;
            const double xhat = (x[i] - mean) * invstd;
            r.dx[i] = invstd * (gamma[f] * dy[i] - sum / double(features) - xhat * product / double(features));
        }
    }
    return r;
}

}  // namespace oracle
