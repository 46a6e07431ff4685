#pragma once
// Error bounds of packed activations, from the effect of the error on gradients.
// Error e, uniform in ±eb and independent of everything (bounded_codec.hpp), in the input a of a layer with weight W:
//   dW[o,i] = Σ_r δ[r,o] a[r,i]   ⇒   Var dW[o,i] = eb²/3 · Σ_r δ²[r,o] 1[a[r,i] ≠ 0]
//   added(W) = Σ_{o,i} Var        ≈   eb²/3 · R · fan_in · Σ_o ‖δ_o‖²         R: share of a that is not 0
// r: rows, of a convolution positions; fan_in then counts kernel points. Of a normalisation, in units of x̂, fan_in and
// R are 1 and δ is the gradient behind its activation.
// SGD's own variance V(W) of the same sum is ‖g_A − g_B‖²/2 with g_A and g_B the gradients of two batches of one size;
// both variances fall with the size, their ratio does not. Rules for eb:
//   variance   added = share · V                                     the default, 0.018: below 2 %
//   momentum   σ = √(eb²/3 · R · max_o ‖δ_o‖²) = f · mean|v|         f = 0.1; mean|v| ≈ 2.1 mean|g| at momentum 0.9
//   comet      eb = mean|v| f / (0.32 · mean|δ| · √(N R))            N: examples; COMET (Jin et al., VLDB 2022)
//   fixed      eb given, in units of the activation's root mean square
// An audit (activation_memory.hpp) measures added(W): eb is corrected by measured / predicted. An activation between
// layers without weights (attention, gelu) has no formula: its error ends up in the weight before it, whose measured
// excess it is adjusted by.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/column_sums.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace cairn {

/// Statistics of one weight for a rule, from one backward pass.
struct output_gradient_statistics {
    rows_kind kind = rows_kind::linear;
    double fan_in = 1;   // products in one element of the output, of a convolution those inside its input, on average
    double squares = 0;  // Σ_o ‖δ_o‖²
    double largest = 0;  // max_o ‖δ_o‖²
    double mean_magnitude = 0;
    double examples = 0;
};

/// The share of a kernel's points that lie inside the input, over all of its places.
inline double points_inside(const conv_geometry& g) {
    double share = 1;
    for (std::size_t a = 0; a < 3; ++a) {
        index_t inside = 0;
        for (index_t o = 0; o < g.out[a]; ++o)
            for (index_t t = 0; t < g.kernel[a]; ++t) {
                const index_t at = o * g.stride[a] + t * g.dilation[a] - g.pad[a];
                inside += at >= 0 && at < g.in[a];
            }
        share *= double(inside) / double(g.out[a] * g.kernel[a]);
    }
    return share;
}

/// Of the gradients of outputs (rows, width): Σ δ² of each column, and Σ |δ|.
struct column_squares {
    std::vector<double> squares;
    double magnitude = 0;
    column_squares& operator+=(const column_squares& other) {
        if (squares.empty()) return *this = other;
        for (std::size_t c = 0; c < squares.size(); ++c) squares[c] += other.squares[c];
        magnitude += other.magnitude;
        return *this;
    }
};

inline column_squares squares_of(cpu, index_t rows, index_t width, const float* dy) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    const kernel_call call("column squares and magnitudes", "f32", 3 * n, 4 * n, {rows, width});
    if (on_phantom_rank()) return {std::vector<double>(static_cast<std::size_t>(width)), 0};
    return parallel_sum<column_squares>(rows, std::max<index_t>(1, 16384 / width), [&](index_t begin, index_t end) {
        column_squares mine{std::vector<double>(static_cast<std::size_t>(width)), 0};
        for (index_t r = begin; r < end; ++r)
            for (index_t c = 0; c < width; ++c) {
                const auto d = static_cast<double>(dy[r * width + c]);
                mine.squares[static_cast<std::size_t>(c)] += d * d;
                mine.magnitude += std::abs(d);
            }
        return mine;
    });
}

template <GridDevice D>
column_squares squares_of(D d, index_t rows, index_t width, const float* dy) {
    column_squares all{std::vector<double>(static_cast<std::size_t>(width)), 0};
    tensor<double, D> squares({width}, memory_category::workspace);
    grid::strided_column_sums<true>(d, rows, width, width, dy, squares.data(), false);
    D::copy_to_host(all.squares.data(), squares.data(), squares.bytes());
    all.magnitude =
        grid::waited_for(d, [&](double* out) { grid::sum_into(d, out, rows * width, grid::term_magnitude{}, dy); });
    return all;
}

/// Listens to the gradients of outputs (device/curvature_samples.hpp).
template <Device D = cpu>
class output_gradients final : public curvature_listener {
public:
    std::map<int, output_gradient_statistics> of_weight;

    bool wants(int weight, rows_kind kind) const override {
        return weight >= 0 &&
               (kind == rows_kind::linear || kind == rows_kind::convolution || kind == rows_kind::norm_output);
    }
    bool needs_whole_layers() const override { return false; }
    using curvature_listener::take;
    void take(const curvature_samples<float>& s) override {
        if (!s.in_backward) return;
        const index_t groups = s.kind == rows_kind::convolution ? s.conv.groups : 1, width = s.out * groups,
                      rows = s.examples * s.positions;
        const column_squares all = squares_of(D{}, rows, width, s.dy);
        output_gradient_statistics& of = of_weight[s.weight];
        of.kind = s.kind;
        of.fan_in = static_cast<double>(s.in) * (s.kind == rows_kind::convolution ? points_inside(s.conv) : 1.0);
        of.squares = of.largest = 0;
        for (const double x : all.squares) {
            of.squares += x;
            of.largest = std::max(of.largest, x);
        }
        of.mean_magnitude = all.magnitude / std::max(1.0, double(rows) * double(width));
        of.examples = static_cast<double>(s.examples);
    }
};

/// Of the gradient of one weight.
struct gradient_noise {
    double own = 0;             // V: what SGD itself has
    double added = 0;           // measured, by packing; 0: not measured
    double mean_magnitude = 0;  // mean |g|
};

enum class bound_rule { variance, momentum, comet, fixed };

struct bound_config {
    bound_rule rule = bound_rule::variance;
    double share = 0.018;       // of variance: added / own
    double f = 0.1;             // of momentum and comet
    double fixed_bound = 0.05;  // of fixed
    double pointwise = 0.1;     // of activations without a weight: where they begin, × root mean square
    double masked_bound = 1;    // of a normalisation's input where the gradient is masked, in deviations
};

/// Sum over the elements of a weight's gradient that an error of at most `bound` adds, by the formula above.
inline double predicted_variance(const output_gradient_statistics& of, double bound, double non_zero) {
    return bound * bound / 3 * non_zero * of.fan_in * of.squares;
}

/// The bound for the input of a weight's layer. `correction`: measured / predicted variance so far.
inline double bound_of(const bound_config& c, const output_gradient_statistics& of, const gradient_noise& noise,
                       double non_zero, double correction) {
    constexpr double tiny = 1e-300;
    const double v = 2.1 * noise.mean_magnitude, r = std::max(non_zero, 1e-6);
    switch (c.rule) {
        case bound_rule::variance:
            return std::sqrt(3 * c.share * noise.own /
                             std::max(tiny, r * of.fan_in * of.squares * std::clamp(correction, 0.25, 100.0)));
        case bound_rule::momentum:
            return std::sqrt(3.0) * c.f * v / std::sqrt(std::max(tiny, r * of.largest));
        case bound_rule::comet:
            return c.f * v / std::max(tiny, 0.32 * of.mean_magnitude * std::sqrt(of.examples * r));
        case bound_rule::fixed:
            break;
    }
    return c.fixed_bound;
}

}  // namespace cairn
