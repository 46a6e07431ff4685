#pragma once
// The optimizers as plain loops in double, written from the papers: the definition that the library is tested against.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

/// One parameter during training.
struct trained {
    std::vector<double> theta;
    bool decay = true;
    std::vector<double> first = std::vector<double>(theta.size(), 0.0);   // velocity, or m
    std::vector<double> second = std::vector<double>(theta.size(), 0.0);  // v
};
using gradient = std::vector<double>;

inline double norm(const std::vector<double>& x) {
    double sum = 0;
    for (double value : x) sum += value * value;
    return std::sqrt(sum);
}

inline void sgd(trained& p, const gradient& g, double lr, double momentum, double decay, bool nesterov,
                bool decoupled) {
    if (!p.decay) decay = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
        const double old = p.theta[i];
        const double penalised = decoupled ? g[i] : g[i] + decay * old;
        p.first[i] = momentum * p.first[i] + penalised;
        const double direction = nesterov ? penalised + momentum * p.first[i] : p.first[i];
        p.theta[i] = old - lr * direction;
        if (decoupled) p.theta[i] -= lr * decay * old;
    }
}

inline void adam(trained& p, const gradient& g, double lr, int t, double beta1, double beta2, double eps, double decay,
                 bool decoupled) {
    if (!p.decay) decay = 0;
    const double bias1 = 1 - std::pow(beta1, t), bias2 = 1 - std::pow(beta2, t);
    for (std::size_t i = 0; i < g.size(); ++i) {
        const double old = p.theta[i];
        const double penalised = decoupled ? g[i] : g[i] + decay * old;
        p.first[i] = beta1 * p.first[i] + (1 - beta1) * penalised;
        p.second[i] = beta2 * p.second[i] + (1 - beta2) * penalised * penalised;
        const double mean = p.first[i] / bias1, square = p.second[i] / bias2;
        p.theta[i] = old - lr * mean / (std::sqrt(square) + eps);
        if (decoupled) p.theta[i] -= lr * decay * old;
    }
}

inline void lars(trained& p, const gradient& g, double lr, double momentum, double decay, double trust, double eps,
                 bool clip) {
    double ratio = 1;
    const double w = norm(p.theta), n = norm(g);
    if (!p.decay) decay = 0;
    if (p.decay && w > 0 && n > 0) {
        ratio = trust * w / (n + decay * w + eps);
        if (clip) ratio = std::min(ratio / lr, 1.0);
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
        p.first[i] = momentum * p.first[i] + ratio * (g[i] + decay * p.theta[i]);
        p.theta[i] -= lr * p.first[i];
    }
}

inline void lamb(trained& p, const gradient& g, double lr, int t, double beta1, double beta2, double eps,
                 double decay) {
    if (!p.decay) decay = 0;
    const double bias1 = 1 - std::pow(beta1, t), bias2 = 1 - std::pow(beta2, t);
    std::vector<double> u(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
        p.first[i] = beta1 * p.first[i] + (1 - beta1) * g[i];
        p.second[i] = beta2 * p.second[i] + (1 - beta2) * g[i] * g[i];
        u[i] = p.first[i] / bias1 / (std::sqrt(p.second[i] / bias2) + eps) + decay * p.theta[i];
    }
    const double w = norm(p.theta), n = norm(u);
    const double ratio = p.decay && w > 0 && n > 0 ? w / n : 1;
    for (std::size_t i = 0; i < g.size(); ++i) p.theta[i] -= lr * ratio * u[i];
}

/// Scales all gradients of a model so that their common norm is at most `most`.
inline void clip_norm(std::vector<gradient>& all, double most) {
    double sum = 0;
    for (const gradient& g : all) sum += norm(g) * norm(g);
    if (std::sqrt(sum) <= most) return;
    for (gradient& g : all)
        for (double& value : g) value *= most / std::sqrt(sum);
}

inline void clip_value(std::vector<gradient>& all, double most) {
    for (gradient& g : all)
        for (double& value : g) value = std::clamp(value, -most, most);
}

}  // namespace oracle
