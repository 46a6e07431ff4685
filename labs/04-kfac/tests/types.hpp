#pragma once
// The lab's structs as the tests have them; they travel member by member (adapter.cpp has the same list).

#include "judge.hpp"

#include <cstdint>
#include <ostream>
#include <vector>

namespace lab {

/// Row-major: m(r, c) is m.values[r * m.cols + c].
struct matrix {
    std::size_t rows = 0, cols = 0;
    std::vector<double> values;

    matrix() = default;
    matrix(std::size_t r, std::size_t c) : rows(r), cols(c), values(r * c) {}  // of zeros
    double& operator()(std::size_t r, std::size_t c) { return values[r * cols + c]; }
    double operator()(std::size_t r, std::size_t c) const { return values[r * cols + c]; }
};
struct curvature_samples {
    matrix x, dy;  // (n, in), (n, out)
};
struct factor_sums {
    matrix a, g;
    double examples = 0;
};
struct layer_sizes {
    std::int64_t a = 0, g = 0;
};
struct layer_place {
    int column = 0, worker = 0;
    bool operator==(const layer_place&) const = default;
};
struct kfac_assignment {
    int ranks = 1, rows = 1;
    std::vector<layer_place> layers;
};
struct traffic {
    std::int64_t factors = 0, decompositions = 0, directions = 0;
    bool operator==(const traffic&) const = default;
};
struct kfac_settings {
    double lr = 1, damping = 1e-2, clip = 0, decay = 0.95;
    std::size_t factor_update_interval = 1, inverse_update_interval = 1;
};

inline std::ostream& operator<<(std::ostream& out, const layer_place& p) {
    return out << "{column " << p.column << ", worker " << p.worker << '}';
}
inline std::ostream& operator<<(std::ostream& out, const traffic& t) {
    return out << "{factors " << t.factors << ", decompositions " << t.decompositions << ", directions " << t.directions
               << '}';
}

template <>
struct members<matrix> {
    static auto of(auto& s) { return std::tie(s.rows, s.cols, s.values); }
};
template <>
struct members<curvature_samples> {
    static auto of(auto& s) { return std::tie(s.x, s.dy); }
};
template <>
struct members<factor_sums> {
    static auto of(auto& s) { return std::tie(s.a, s.g, s.examples); }
};
template <>
struct members<layer_sizes> {
    static auto of(auto& s) { return std::tie(s.a, s.g); }
};
template <>
struct members<layer_place> {
    static auto of(auto& s) { return std::tie(s.column, s.worker); }
};
template <>
struct members<kfac_assignment> {
    static auto of(auto& s) { return std::tie(s.ranks, s.rows, s.layers); }
};
template <>
struct members<traffic> {
    static auto of(auto& s) { return std::tie(s.factors, s.decompositions, s.directions); }
};
template <>
struct members<kfac_settings> {
    static auto of(auto& s) {
        return std::tie(s.lr, s.damping, s.clip, s.decay, s.factor_update_interval, s.inverse_update_interval);
    }
};

/// A student's K-FAC in the worker, one for each number.
class remote_kfac {
public:
    explicit remote_kfac(const kfac_settings& settings, int which = 1) : which_(which) {
        call<void>("kfac", which_, settings);
    }
    void step(std::vector<matrix>& weights, const std::vector<curvature_samples>& gradients,
              const std::vector<curvature_samples>& curvature) const {
        const std::size_t layers = weights.size();
        weights = call<std::vector<matrix>>("kfac::step", which_, weights, gradients, curvature);
        if (weights.size() != layers)
            throw fault("kfac::step leaves " + std::to_string(weights.size()) + " layers of " + std::to_string(layers));
    }

private:
    int which_;
};

}  // namespace lab
