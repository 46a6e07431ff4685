#pragma once
// One layer of a chain as ADMM splits it:
//   z = c(a) = post(A(W) pre(a) + b),   a_next = relu(z), or the output where it is the last
// A(W) is the weighted linear map of a linear or convolution layer; pre and post are linear maps without weights:
// flatten, average pooling, and the sum over neighbours of a graph convolution, whose Â (a W) is (Â a) W: Â is in pre.
// ADMM needs c, the adjoint over a, and that over W:
//   output(a)             c(a)                                   (N, …)
//   image(a, V)           post(A(V) pre(a)): c is linear in W    (N, …)    for line searches
//   to_input(r)           preᵀ A(W)ᵀ postᵀ r                     shape of a
//   to_weight(a, r)       Σ over samples                         shape of W
// and, where solver = exact, the matrices of the two least-squares problems:
//   weight_gram(a)        Σ x xᵀ over samples and positions      (F, F), F numbers that an output is summed of
//   input_gram()          Wᵀ W                                   (in, in), of a linear layer without pooling
// The adjoints are tested as such: <c, r> = <a, cᵀ r> to rounding, and with finite differences (tests/admm).

#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/symmetric.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cairn::admm {

/// A linear map without weights, and its adjoint for inputs of shape `in`.
template <class T>
struct fixed_map {
    shape in;  // of one sample, (1, …)
    std::function<tensor<T>(const tensor<T>&)> forward;
    std::function<tensor<T>(const tensor<T>&, const shape& in)> adjoint;
    bool only_reshapes = false;  // flatten
};

/// See the top of the file. Holds handles to the model's weights: what is trained here is the model's own.
template <class T>
class split_layer {
public:
    std::string name;                     // path of the weighted layer, for errors and records
    shape in, out;                        // of a and z, one sample
    bool relu = false;                    // whether a ReLU follows
    std::optional<conv_geometry> window;  // of a convolution; else the map is dense
    tensor<T> weight, bias;               // (out, in) or (K, kernel…, C); (out), or empty
    bool inputs_first = false;            // the weight is (in, out), as a graph convolution has it
    std::vector<fixed_map<T>> pre, post;

    tensor<T> output(const tensor<T>& a) const { return through(post, product(through(pre, a), weight, &bias)); }
    tensor<T> image(const tensor<T>& a, const tensor<T>& v) const {
        return through(post, product(through(pre, a), v, nullptr));
    }

    tensor<T> to_input(const tensor<T>& r) const {
        const tensor<T> dy = back(post, r);
        const index_t n = r.extent(0);
        tensor<T> dx(weighted_in.with(0, n));
        if (window)
            conv_backward_input(cpu{}, with_images(n), dy.data(), weight.data(), dx.data());
        else
            gemm(cpu{}, false, inputs_first, dy.size() / channels(), fan_in(), channels(), T{1}, dy.data(), channels(),
                 weight.data(), weight.extent(-1), T{}, dx.data(), fan_in());
        return back(pre, dx);
    }

    tensor<T> to_weight(const tensor<T>& a, const tensor<T>& r) const {
        const tensor<T> x = through(pre, a), dy = back(post, r);
        tensor<T> g = tensor<T>::zeros(weight.shape());
        if (window)
            conv_backward_weight(cpu{}, with_images(a.extent(0)), x.data(), dy.data(), g.data(),
                                 static_cast<T*>(nullptr));
        else if (inputs_first)
            gemm(cpu{}, true, false, fan_in(), channels(), dy.size() / channels(), T{1}, x.data(), fan_in(), dy.data(),
                 channels(), T{}, g.data(), channels());
        else
            gemm(cpu{}, true, false, channels(), fan_in(), dy.size() / channels(), T{1}, dy.data(), channels(),
                 x.data(), fan_in(), T{}, g.data(), fan_in());
        return g;
    }

    /// The direction H⁻¹ g over W, for the inverse (F, F) of weight_gram plus a shift.
    tensor<T> precondition(const tensor<T>& g, const tensor<T>& inverse) const {
        tensor<T> d(g.shape());
        const index_t n = fan_in(), k = channels();
        if (inputs_first)
            gemm(cpu{}, false, false, n, k, n, T{1}, inverse.data(), n, g.data(), k, T{}, d.data(), k);
        else
            gemm(cpu{}, false, false, k, n, n, T{1}, g.data(), n, inverse.data(), n, T{}, d.data(), n);
        return d;
    }

    index_t channels() const { return inputs_first ? weight.extent(-1) : weight.extent(0); }
    index_t fan_in() const { return weight.size() / channels(); }

    /// Whether weight_gram is the matrix of the problem over W, and input_gram that over a.
    bool has_weight_gram() const { return post.empty() && (!window || window->groups == 1); }
    bool has_input_gram() const {
        return !window && !inputs_first && post.empty() && std::ranges::all_of(pre, &fixed_map<T>::only_reshapes);
    }

    tensor<T> weight_gram(const tensor<T>& a) const {
        const tensor<T> x = through(pre, a);
        const index_t width = fan_in();
        tensor<T> gram = tensor<T>::zeros({width, width});
        if (!window) {
            add_symmetric_product(cpu{}, x.size() / width, width, T{1}, x.data(), width, gram.data(), width);
            return gram;
        }
        const conv_geometry g = with_images(a.extent(0));
        const index_t points = g.n * g.out_points(), block = std::max<index_t>(1, (index_t{1} << 20) / width);
        tensor<T> patches({std::min(block, points), width}, memory_category::workspace);
        for (index_t begin = 0; begin < points; begin += block) {
            const index_t end = std::min(points, begin + block);
            parallel_for(end - begin, 256, [&](index_t first, index_t last) {
                im2col::gather(g, x.data(), begin + first, begin + last, patches.data() + first * width);
            });
            add_symmetric_product(cpu{}, end - begin, width, T{1}, patches.data(), width, gram.data(), width);
        }
        return gram;
    }

    tensor<T> input_gram() const {
        tensor<T> gram = tensor<T>::zeros({fan_in(), fan_in()});
        add_symmetric_product(cpu{}, channels(), fan_in(), T{1}, weight.data(), fan_in(), gram.data(), fan_in());
        return gram;
    }

    shape weighted_in, weighted_out;  // of A(W), one sample

private:
    static tensor<T> through(const std::vector<fixed_map<T>>& maps, const tensor<T>& x) {
        tensor<T> y = x.share();
        for (const fixed_map<T>& m : maps) y = m.forward(y);
        return y;
    }
    static tensor<T> back(const std::vector<fixed_map<T>>& maps, const tensor<T>& dy) {
        tensor<T> dx = dy.share();
        for (auto m = maps.rbegin(); m != maps.rend(); ++m) dx = m->adjoint(dx, m->in.with(0, dy.extent(0)));
        return dx;
    }
    conv_geometry with_images(index_t n) const {
        conv_geometry g = *window;
        g.n = n;
        return g;
    }

    // A(v) x, and b where it is given and there.
    tensor<T> product(const tensor<T>& x, const tensor<T>& v, const tensor<T>* b) const {
        const index_t n = x.extent(0);
        const T* const add = b && !b->empty() ? b->data() : nullptr;
        tensor<T> y(weighted_out.with(0, n));
        if (window)
            conv_forward(cpu{}, with_images(n), x.data(), v.data(), add, y.data());
        else
            gemm_bias(cpu{}, false, !inputs_first, y.size() / channels(), channels(), fan_in(), T{1}, x.data(),
                      fan_in(), v.data(), v.extent(-1), y.data(), channels(), add);
        return y;
    }
};

}  // namespace cairn::admm
