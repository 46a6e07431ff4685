#pragma once
// The updates of whole tensors that dlADMM and pdADMM share. All of them work on the residual of a layer
//   r = c(a) − target,   target = z, and z + u/ρ where the layer has a dual
// which each of them keeps up to date, so that the next one needs no product to begin:
//   descend_bias      b −= mean of r over samples and positions: the exact minimiser
//   descend_weight    min over W of ½‖r‖² + λ/2 ‖W‖²          g = rᵀa + λW
//   descend_input     min over a of ½‖r‖² + κ/2 ‖a − v‖²      g = Wᵀr + κ (a − v)
// A step goes along d = g, or d = H⁻¹ g with H = aᵀa + λI or WᵀW + κI (solver = exact), by the length of the exact line
// search t = <g, d> / (‖A d‖² + λ‖d‖²): one product, which also gives the new r = r − t A d. Along H⁻¹ g that is 1 to
// rounding, and what rounding spoils in H⁻¹ it cannot turn into a rise. On a quadratic, the largest step that a
// backtracking search over θ admits is this one: no loop that doubles θ is needed.
// H⁻¹ by Cholesky in double, with a jitter of 1e-6 of the mean diagonal: inputs have constant columns.

#include <cairn/admm/split_layer.hpp>
#include <cairn/admm/subproblems.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/linalg.hpp>

#include <optional>

namespace cairn::admm {

/// (G + shift I)⁻¹ of a Gram matrix (n, n).
template <class T>
tensor<T> inverse_of_gram(const tensor<T>& gram, double shift) {
    constexpr double jitter = 1e-6, most_jitter = 1e-1;
    const index_t n = gram.extent(0);
    const double mean = diagonal_sum(cpu{}, n, n + 1, gram.data()) / static_cast<double>(n);
    require(std::isfinite(mean), "its least-squares matrix ", gram.shape(), " has elements that are not finite");
    for (double part = jitter;; part *= 10) {
        tensor<double> h({n, n}, memory_category::workspace);
        for_each([](double& to, const T& from) { to = static_cast<double>(from); }, h, gram);
        add_to_diagonal(cpu{}, n, n + 1, shift + part * mean + std::numeric_limits<double>::min(), h.data());
        try {
            const tensor<double> inverse = inverse_of_positive(cpu{}, h);
            tensor<T> rounded({n, n});
            for_each([](T& to, const double& from) { to = static_cast<T>(from); }, rounded, inverse);
            return rounded;
        } catch (const error&) {
            if (part >= most_jitter) throw;
        }
    }
}

/// x (rows, n) times a symmetric matrix (n, n).
template <class T>
tensor<T> times_symmetric(const tensor<T>& x, const tensor<T>& m) {
    const index_t n = m.extent(0);
    tensor<T> y(x.shape());
    gemm(cpu{}, false, false, x.size() / n, n, n, T{1}, x.data(), n, m.data(), n, T{}, y.data(), n);
    return y;
}

template <class T>
double norm2(const tensor<T>& x) {
    return sum_of_squares(cpu{}, x.size(), x.data());
}
template <class T>
double inner(const tensor<T>& x, const tensor<T>& y) {
    return dot(cpu{}, x.size(), x.data(), y.data());
}
/// x += t y
template <class T>
void add_times(tensor<T>& x, double t, const tensor<T>& y) {
    for_each(functors::add_scaled<T>{static_cast<T>(t)}, x, y);
}

/// Does nothing for a layer without bias.
template <class T>
void descend_bias(split_layer<T>& layer, tensor<T>& r) {
    if (layer.bias.empty()) return;
    const index_t channels = layer.channels(), rows = r.size() / channels;
    tensor<T> mean({channels}, memory_category::workspace);
    column_sums(cpu{}, rows, channels, r.data(), mean.data(), false);
    for (index_t k = 0; k < channels; ++k) {
        mean[k] /= static_cast<T>(rows);
        layer.bias[k] -= mean[k];
    }
    parallel_for(rows, std::max<index_t>(1, 16384 / channels), [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            for (index_t k = 0; k < channels; ++k) r[i * channels + k] -= mean[k];
    });
}

/// See the top of the file; `inverse`: (aᵀa + λI)⁻¹, or null for a gradient step.
template <class T>
void descend_weight(split_layer<T>& layer, const tensor<T>& a, tensor<T>& r, double lambda, const tensor<T>* inverse) {
    tensor<T> g = layer.to_weight(a, r);
    add_times(g, lambda, layer.weight);
    const tensor<T> d = inverse ? layer.precondition(g, *inverse) : g.share();
    const tensor<T> image = layer.image(a, d);
    const double t = line_search(inner(g, d), norm2(image) + lambda * norm2(d));
    add_times(layer.weight, -t, d);
    add_times(r, -t, image);
}

/// The same over a, from which v is κ/2 ‖a − v‖² away; `inverse`: (WᵀW + κI)⁻¹. The gradient over a of ½‖r‖² is given:
/// it holds what else depends on a.
template <class T>
void descend_input(const split_layer<T>& layer, tensor<T>& a, const tensor<T>& g, tensor<T>& r, double kappa,
                   const tensor<T>* inverse) {
    const tensor<T> d = inverse ? times_symmetric(g, *inverse) : g.share();
    const tensor<T> image = layer.image(d, layer.weight);
    const double t = line_search(inner(g, d), norm2(image) + kappa * norm2(d));
    add_times(a, -t, d);
    add_times(r, -t, image);
}

/// r = c − z
template <class T>
tensor<T> residual(tensor<T> c, const tensor<T>& z) {
    for_each([](T& r, const T& of_z) { r -= of_z; }, c, z);
    return c;
}

/// How W, a and p take their steps.
enum class block_solver { exact, gradient };

/// H⁻¹ of a layer's weights, or nothing where a gradient step is taken: asked for, or no Gram matrix describes the
/// problem (pooling behind the weights, groups).
template <class T>
std::optional<tensor<T>> weight_inverse(const split_layer<T>& layer, const tensor<T>& a, double lambda,
                                        block_solver how) {
    if (how == block_solver::gradient || !layer.has_weight_gram()) return std::nullopt;
    return with_context("weights of layer " + layer.name,
                        [&] { return inverse_of_gram(layer.weight_gram(a), lambda); });
}

/// The same of its input: a linear layer's alone.
template <class T>
std::optional<tensor<T>> input_inverse(const split_layer<T>& layer, double kappa, block_solver how) {
    if (how == block_solver::gradient || !layer.has_input_gram()) return std::nullopt;
    return with_context("input of layer " + layer.name, [&] { return inverse_of_gram(layer.input_gram(), kappa); });
}

/// The inverse in a form that may be missing.
template <class T>
const T* pointer_to(const std::optional<T>& value) {
    return value ? &*value : nullptr;
}

}  // namespace cairn::admm
