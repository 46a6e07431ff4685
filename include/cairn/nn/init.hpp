#pragma once
// Initial values of weights. The variance of a weight follows from the number of terms in its sum, so that activations
// (fan in) or gradients (fan out) keep their scale from layer to layer:
//   variance = gain / fan,   fan = values read by one output (in), values written by one input (out), or their mean
//   xavier  (Glorot and Bengio 2010)   gain 1, mean fan      for tanh and sigmoid
//   lecun   (LeCun et al. 1998)        gain 1, fan in        for linear layers and SELU
//   kaiming (He et al. 2015)           gain 2, fan in        for ReLU; resnets use fan out, as torchvision does
// A uniform distribution of that variance has the half width sqrt(3 variance).

#include <cairn/core/parameter.hpp>

#include <cmath>

namespace cairn {

/// Initialisation of a layer's weights, independent of the layer's size.
struct init_rule {
    enum class fan { in, out, mean } over = fan::in;
    double gain = 1;  // variance × fan; 0: all zeros
    initializer::distribution kind = initializer::distribution::normal;

    /// The initializer of a tensor whose outputs sum `in` products and whose inputs feed `out` outputs.
    initializer operator()(index_t in, index_t out) const {
        const double n = over == fan::in ? double(in) : over == fan::out ? double(out) : 0.5 * double(in + out);
        const double variance = gain / std::max(n, 1.0);
        if (gain == 0) return {};
        return {kind, std::sqrt(kind == initializer::distribution::uniform ? 3 * variance : variance), 0};
    }

    /// The same rule with a variance `factor` times as large.
    constexpr init_rule scaled(double factor) const { return {over, gain * factor, kind}; }
};

namespace init {

using enum initializer::distribution;

inline constexpr init_rule zeros{init_rule::fan::in, 0, constant};
inline constexpr init_rule xavier_normal{init_rule::fan::mean, 1, normal};
inline constexpr init_rule xavier_uniform{init_rule::fan::mean, 1, uniform};
inline constexpr init_rule lecun_normal{init_rule::fan::in, 1, normal};
inline constexpr init_rule lecun_uniform{init_rule::fan::in, 1, uniform};
inline constexpr init_rule kaiming_normal{init_rule::fan::in, 2, normal};
inline constexpr init_rule kaiming_uniform{init_rule::fan::in, 2, uniform};
inline constexpr init_rule kaiming_normal_fan_out{init_rule::fan::out, 2, normal};
/// Uniform in ±1/sqrt(fan in), weights and biases alike: what PyTorch's linear and convolution layers do unasked.
inline constexpr init_rule pytorch{init_rule::fan::in, 1.0 / 3, uniform};

}  // namespace init

/// Makes the rows of `w`, taken as a matrix of extent(0) rows, orthonormal times `gain`; its columns, if there are
/// more rows than columns. Starts from normal numbers of `random`, then modified Gram–Schmidt, twice (Saxe et al.
/// 2014; Giraud et al. 2005).
template <class T>
void fill_orthogonal(tensor<T>& w, double gain, random_stream random) {
    if (on_phantom_rank()) return;
    const index_t rows = w.extent(0), cols = w.size() / std::max<index_t>(rows, 1);
    const bool wide = rows <= cols;
    const index_t vectors = wide ? rows : cols, length = wide ? cols : rows;
    std::vector<double> a(static_cast<std::size_t>(vectors * length));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = random.normal(i);
    const auto at = [&](index_t v) { return a.data() + v * length; };
    for (index_t v = 0; v < vectors; ++v) {
        for (int sweep = 0; sweep < 2; ++sweep)
            for (index_t u = 0; u < v; ++u) {
                double dot = 0;
                for (index_t i = 0; i < length; ++i) dot += at(u)[i] * at(v)[i];
                for (index_t i = 0; i < length; ++i) at(v)[i] -= dot * at(u)[i];
            }
        double square = 0;
        for (index_t i = 0; i < length; ++i) square += at(v)[i] * at(v)[i];
        for (index_t i = 0; i < length; ++i) at(v)[i] /= std::sqrt(square);
    }
    for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < cols; ++c) w[r * cols + c] = static_cast<T>(gain * (wide ? at(r)[c] : at(c)[r]));
}

}  // namespace cairn
