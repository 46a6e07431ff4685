#pragma once
// Splits a model into the layers of ADMM (split_layer.hpp):
//   [flatten, average pooling]* (linear | convolution) [flatten, average pooling]* relu      …, the last without relu
// A convolution may be one on a graph (nn/graph_conv.hpp).
// Maps in front of the first weights of a layer belong to it, those between its weights and its ReLU too; behind the
// last weights there may be no ReLU. A model that is no such chain is refused, naming the layer and saying why.
// Maximum pooling is refused: its subproblem over z is not separable (which input of a window is the largest depends on
// all of them), and average pooling does the same job with a linear map.

#include <cairn/admm/split_layer.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/graph_conv.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/sequential.hpp>

#include <algorithm>
#include <memory>

namespace cairn::admm {

namespace detail {

template <class T, class Pool>
fixed_map<T> averaging_map(const Pool& pool, const shape& in) {
    return {in,
            [pool](const tensor<T>& x) {
                tensor<T> y(pool.output_shape(x.shape()));
                average_pool_forward(cpu{}, pool.geometry(x.shape()), x.data(), y.data());
                return y;
            },
            [pool](const tensor<T>& dy, const shape& whole) {
                tensor<T> dx(whole);
                average_pool_backward(cpu{}, pool.geometry(whole), dy.data(), dx.data());
                return dx;
            }};
}

/// Â a, of each sample.
template <class T>
fixed_map<T> propagation_map(std::shared_ptr<const graph_operator> graph, const shape& in) {
    const auto along = [](const csr_view<T>& m, const tensor<T>& x) {
        tensor<T> y(x.shape());
        const index_t width = x.shape().back(), each = m.rows * width;
        for (index_t n = 0; n < x.extent(0); ++n)
            csr_times_dense(cpu{}, m, width, x.data() + n * each, y.data() + n * each);
        return y;
    };
    return {in, [=](const tensor<T>& x) { return along(graph->matrix<T>(), x); },
            [=](const tensor<T>& dy, const shape&) { return along(graph->transposed<T>(), dy); }};
}

/// The linear map without weights that a layer is, if it is one.
template <class T>
std::optional<fixed_map<T>> fixed_map_of(const any_layer<T>& layer, const shape& in) {
    if (layer.template as<flatten<T>>())
        return fixed_map<T>{in,
                            [](const tensor<T>& x) {
                                return x.reshaped({x.extent(0), x.size() / std::max<index_t>(x.extent(0), 1)});
                            },
                            [](const tensor<T>& dy, const shape& whole) { return dy.reshaped(whole); }, true};
    if (const auto* pool = layer.template as<average_pool<T>>()) return averaging_map<T>(*pool, in);
    if (const auto* pool = layer.template as<adaptive_average_pool<T>>()) return averaging_map<T>(*pool, in);
    if (layer.template as<global_average_pool<T>>())
        return fixed_map<T>{in,
                            [](const tensor<T>& x) {
                                tensor<T> y({x.extent(0), x.shape().back()});
                                global_average_forward(cpu{}, y.extent(0), x.size() / std::max<index_t>(y.size(), 1),
                                                       y.extent(1), x.data(), y.data());
                                return y;
                            },
                            [](const tensor<T>& dy, const shape& whole) {
                                tensor<T> dx(whole);
                                global_average_backward(cpu{}, dy.extent(0),
                                                        dx.size() / std::max<index_t>(dy.size(), 1), dy.extent(1),
                                                        dy.data(), dx.data());
                                return dx;
                            }};
    return std::nullopt;
}

/// Whether zeros around the input count in its averages: then the image of a bias is no constant.
template <class T>
bool averages_padding(const any_layer<T>& layer, const shape& in) {
    const auto* pool = layer.template as<average_pool<T>>();
    if (!pool) return false;
    const pool_geometry g = pool->geometry(in);
    return g.count_pad && std::ranges::any_of(g.axis, [](const pool_axis& a) { return a.pad > 0; });
}

template <class T>
bool is_weighted(const any_layer<T>& layer) {
    return layer.template as<linear<T>>() || layer.template as<conv<T>>() || layer.template as<graph_conv<T>>();
}

template <class T>
bool is_relu(const any_layer<T>& layer) {
    return layer.template as<activation_layer<T>>() && layer.describe() == "relu";
}

}  // namespace detail

/// Where a split layer begins in the chain: the layers [begin, end).
struct split_place {
    int begin, end;
    int weighted;  // its linear or convolution layer
    bool relu;
};

/// See the top of the file. `may_end_with_relu`: the chain is a part of a model, and another layer follows.
template <class T>
std::vector<split_place> split_places(const sequential<T>& chain, const std::string& algorithm,
                                      bool may_end_with_relu = false) {
    std::vector<split_place> all;
    split_place now{0, 0, -1, false};
    const auto refuse = [&](int i, const auto&... why) {
        fail(algorithm, ": layer ", chain.name(i), " (", chain[i].describe(), ") cannot be split: ", why...,
             "; train.algorithm = gradient trains any model");
    };
    for (int i = 0; i < chain.size(); ++i) {
        const any_layer<T>& layer = chain[i];
        if (detail::is_weighted(layer)) {
            if (now.weighted >= 0)
                refuse(i, "there is no ReLU between it and ", chain.name(now.weighted),
                       ", and the two linear maps would be one");
            now.weighted = i;
        } else if (detail::is_relu(layer)) {
            if (now.weighted < 0) refuse(i, "no linear or convolution layer comes before it");
            now.end = i + 1;
            now.relu = true;
            all.push_back(now);
            now = {i + 1, 0, -1, false};
        } else if (layer.template as<max_pool<T>>()) {
            refuse(i, "the subproblem of maximum pooling has no closed form; take average pooling (average_pool)");
        } else if (!layer.template as<flatten<T>>() && !layer.template as<average_pool<T>>() &&
                   !layer.template as<adaptive_average_pool<T>>() && !layer.template as<global_average_pool<T>>()) {
            refuse(i, "ADMM has subproblems for linear, conv, graph_conv, average pooling, flatten and relu",
                   layer.template as<dropout<T>>() ? "; leave dropout out (model.dropout = 0)" : "");
        }
    }
    if (now.weighted >= 0) {
        now.end = chain.size();
        all.push_back(now);
    } else if (now.begin < chain.size()) {
        refuse(now.begin, "no linear or convolution layer comes behind it");
    }
    require(!all.empty(), algorithm, ": the model has no linear or convolution layer");
    require(may_end_with_relu || !all.back().relu, algorithm,
            ": the model ends with a ReLU; the loss needs what comes "
            "before it");
    return all;
}

/// The split layers of a chain whose parameters have memory, for samples of shape `in` (1, …).
template <class T>
std::vector<split_layer<T>> split_chain(sequential<T>& chain, const shape& in, const std::string& algorithm,
                                        bool may_end_with_relu = false) {
    std::vector<split_layer<T>> all;
    shape s = in;
    for (const split_place& place : split_places(chain, algorithm, may_end_with_relu)) {
        split_layer<T> l;
        l.name = chain.name(place.weighted);
        l.in = s;
        l.relu = place.relu;
        for (int i = place.begin; i < place.end; ++i) {
            any_layer<T>& layer = chain[i];
            const shape before = s;
            s = layer.output_shape(s);
            if (i == place.weighted) {
                for (const auto& [name, p] : layer.parameters()) {
                    require(!p->value.empty() && p->layout.is_whole(), algorithm, ": parameter ", l.name, '/', name,
                            p->value.empty() ? " has no memory" : " is cut over ranks; ADMM needs whole layers");
                    (name == "weight" ? l.weight : l.bias) = p->value.share();
                }
                if (const auto* c = layer.template as<conv<T>>()) l.window = c->geometry(before);
                if (const auto* g = layer.template as<graph_conv<T>>()) {
                    l.inputs_first = true;
                    l.pre.push_back(detail::propagation_map<T>(g->graph(), before));
                }
                l.weighted_in = before;
                l.weighted_out = s;
            } else if (i > place.weighted && detail::averages_padding(layer, before)) {
                fail(algorithm, ": layer ", chain.name(i), " averages the zeros of its padding, so that the bias of ",
                     l.name, " has no closed form; set count_include_pad = false");
            } else if (auto map = detail::fixed_map_of<T>(layer, before)) {
                (i < place.weighted ? l.pre : l.post).push_back(std::move(*map));
            }
        }
        l.out = s;
        all.push_back(std::move(l));
    }
    return all;
}

}  // namespace cairn::admm
