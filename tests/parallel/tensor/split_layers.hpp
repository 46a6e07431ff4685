#pragma once
// Runs a layer on one rank and its split form on several, threads, and compares: outputs, input gradients and parameter
// gradients, all in double.

#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/nn/any_layer.hpp>
#include <cairn/parallel/global_parameter.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace cairn::split_layers {

using ranks_axis = tensor_axis<threads_communicator>;

inline tensor<double> normal(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream random{31, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
    return t;
}

/// How a rank's tensor comes from that of one rank.
enum class cut { whole, features, positions };

inline tensor<double> part(ranks_axis& axis, const tensor<double>& x, cut how) {
    if (how == cut::whole) return x.clone();
    return axis.cut(x, how == cut::features ? x.rank() - 1 : 1).clone();
}
inline tensor<double> joined(ranks_axis& axis, const tensor<double>& x, const shape& whole, cut how) {
    if (x.empty()) return {};
    if (how == cut::whole) return x.clone();
    const int at = how == cut::features ? whole.rank() - 1 : 1;
    return axis.gather(x, at, whole[at], "test").clone();
}

/// Results of a pass.
struct result {
    tensor<double> y, dx;
    std::map<std::string, tensor<double>> values, gradients;  // whole ones
};

enum class halves { joint, split };

inline tensor<double> backward_of(any_layer<double>& layer, tensor<double> dy, saved_tensors<double>& saved,
                                  const pass_context& p, halves how) {
    if (how == halves::joint) return layer.backward(std::move(dy), saved, p);
    tensor<double> dx = layer.backward_input(std::move(dy), saved, p);
    layer.backward_weight(saved, p);
    require(saved.empty(), "saved tensors are left");
    return dx;
}

/// Values off their symmetric starts, by path and position in the whole: biases are not 0.
inline void disturb(arena<double>& weights) {
    for (const auto& [name, p] : weights.parameters()) {
        const random_stream random = stream_of_path(3, path_hash(name), "disturbance");
        for (index_t i = 0; i < p->value.size(); ++i)
            p->value[i] += 0.2 * random.normal(static_cast<std::uint64_t>(p->layout.global_index(p->shape, i)));
    }
}

inline pass_context pass() { return {.random = {.seed = 4, .step = 2, .first_sample = 6}}; }

/// Two micro-batches, the gradients of both added.
inline result on_one(any_layer<double> layer, const tensor<double>& x, const pass_context& p = pass()) {
    arena<double> weights(layer.parameters(), 9);
    disturb(weights);
    result r;
    const tensor<double> dy = normal(layer.output_shape(x.shape()), 2);
    for (int m = 0; m < 2; ++m) {
        saved_tensors<double> saved;
        r.y = layer.forward(x.clone(), saved, p);
        r.dx = layer.backward(dy.clone(), saved, p);
    }
    for (const auto& [name, q] : weights.parameters()) {
        r.values.emplace(name, q->value.clone());
        r.gradients.emplace(name, q->grad.clone());
    }
    return r;
}

inline double difference(const tensor<double>& a, const tensor<double>& b) {
    if (a.empty() && b.empty()) return 0;
    if (a.shape() != b.shape()) return 1e300;
    double most = 0, scale = 1e-300;
    for (index_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return most / scale;
}

/// The largest difference of anything, relative to the largest number of its tensor; values must be equal in bits.
inline double difference(const result& a, const result& b) {
    double most = std::max(difference(a.y, b.y), difference(a.dx, b.dx));
    if (a.values.size() != b.values.size()) return 1e300;
    for (const auto& [name, t] : b.gradients) {
        if (!a.gradients.count(name)) return 1e300;
        if (difference(a.values.at(name), b.values.at(name)) != 0) return 1e300;
        most = std::max(most, difference(a.gradients.at(name), t));
    }
    return most;
}

inline bool same_bits(const tensor<double>& a, const tensor<double>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0);
}

/// Throws unless ranks hold the same bits.
template <Communicator C>
void require_equal_bits(tensor_axis<C>& axis, const tensor<double>& x, const std::string& what) {
    tensor<double> low = x.clone(), high = x.clone();
    axis.sum(low, "test", reduction::min);
    axis.sum(high, "test", reduction::max);
    require(same_bits(low, high) && same_bits(low, x), what, " differs between ranks");
}

using make_split = std::function<any_layer<double>(ranks_axis&)>;

/// The same on p ranks; what rank 0 put together.
inline result on_ranks(int p, const make_split& make, const tensor<double>& x, const shape& out, cut x_cut, cut y_cut,
                       halves how = halves::joint, bool overlap = true, const pass_context& context = pass()) {
    result all;
    run_ranks(p, [&](threads_communicator& c) {
        channel<threads_communicator> over(c);
        ranks_axis axis(over, {.overlap = overlap});
        any_layer<double> layer = make(axis);
        arena<double> weights(layer.parameters(), 9);
        disturb(weights);
        const tensor<double> dy = part(axis, normal(out, 2), y_cut);
        tensor<double> y, dx;
        for (int m = 0; m < 2; ++m) {
            saved_tensors<double> saved;
            tensor<double> x_here = part(axis, x, x_cut);
            require(layer.output_shape(x_here.shape()) == dy.shape(),
                    "output_shape: ", layer.output_shape(x_here.shape()), " is not ", dy.shape());
            y = layer.forward(std::move(x_here), saved, context);
            dx = backward_of(layer, dy.clone(), saved, context, how);
        }
        tensor<double> whole_y = joined(axis, y, out, y_cut), whole_dx = joined(axis, dx, x.shape(), x_cut);
        if (y_cut == cut::whole) require_equal_bits(axis, y, "y");
        if (x_cut == cut::whole && !dx.empty()) require_equal_bits(axis, dx, "dx");
        result mine;
        for (const auto& [name, q] : weights.parameters()) {
            if (q->layout.is_whole()) {
                require(!q->layout.replicated_over.empty(), name, " is on each rank, but not declared so");
                require_equal_bits(axis, q->grad, "gradient of " + name);
            }
            mine.values.emplace(name, gather_global(c, q->value, q->layout, 0, name));
            mine.gradients.emplace(name, gather_global(c, q->grad, q->layout, 0, name));
        }
        if (c.rank() != 0) return;
        mine.y = std::move(whole_y);
        mine.dx = std::move(whole_dx);
        all = std::move(mine);
    });
    return all;
}

}  // namespace cairn::split_layers
