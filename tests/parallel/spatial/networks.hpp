#pragma once
// Networks whose layers are cut over ranks, beside the same on one rank: tests on threads and under mpirun.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/parallel/replicas.hpp>
#include <cairn/parallel/spatial/parts.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace spatial_networks {

using namespace cairn;
using cairn::index_t;

// Results of two steps of a network: losses, gradients of both steps, buffers at the end.
struct outcome {
    std::vector<double> losses, gradients, buffers;
};

inline tensor<double> normals(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream random{9, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
    return t;
}

// The parts of the network below on one rank.
struct whole_parts : cosmoflow_parts<double> {
    any_layer<double> average_pool(const cairn::average_pool<double>::config& c) {
        return cairn::average_pool<double>(c);
    }
    any_layer<double> global_average_pool() { return cairn::global_average_pool<double>(); }
};

// Every layer that CosmoFlow does not have: dropout between cut tensors, padded averages, a mean over all rows.
template <class Parts>
sequential<double> averaging_network(Parts&& parts) {
    sequential<double> net;
    net.add("conv1", parts.conv({.in = 2, .out = 5, .kernel = {3, 5, 3}, .pad = {1, 2, 0}, .dims = 3}));
    net.add("dropout", parts.dropout(0.3));
    net.add("pool",
            parts.average_pool({.kernel = 3, .stride = per_axis(2), .pad = 1, .count_include_pad = false, .dims = 3}));
    net.add("bn", parts.norm({.channels = 5, .act = activation::relu}));
    net.add("conv2", parts.conv({.in = 5, .out = 6, .kernel = 2, .dims = 3}));
    net.add("mean", parts.global_average_pool());
    net.add("output", linear<double>({.in = 6, .out = 3}));
    return net;
}

// Two steps of `net` on rows x; combine(values) adds up over ranks.
template <class Combine>
outcome two_steps(sequential<double>& net, const tensor<double>& x, const tensor<double>& targets, sample_share share,
                  index_t samples, batch_group* group, Combine&& combine) {
    arena<double> weights(net.parameters(), 4);
    saved_tensors<double> saved;
    outcome o;
    for (std::uint32_t step = 0; step < 2; ++step) {
        weights.zero_grad();
        const pass_context pass{.random = {.seed = 6, .step = step, .first_sample = 3, .samples = samples},
                                .input_gradient = false,
                                .group = group};
        tensor<double> y = net.forward(x.clone(), saved, pass);
        require(y.extent(0) == share.samples.count, "samples");
        auto [loss, dy] =
            mean_squared{}(std::move(y), targets.slice(share.samples.begin * 3, {share.samples.count, 3}).clone());
        for_each(functors::times<double>{share.weight}, dy);
        net.backward(std::move(dy), saved, pass);
        require(saved.empty(), "saved tensors are left");
        double sum = loss * share.weight;
        combine(std::span(&sum, 1));
        combine(weights.grads().span());
        o.losses.push_back(sum);
        const auto g = weights.grads().span();
        o.gradients.insert(o.gradients.end(), g.begin(), g.end());
        for_each([](double& w, double d) { w -= 0.05 * d; }, weights.values(), weights.grads());
    }
    for (const auto& [name, t] : net.buffers()) o.buffers.insert(o.buffers.end(), t->data(), t->data() + t->size());
    return o;
}

inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
    require(a.size() == b.size(), a.size(), " and ", b.size(), " numbers");
    double most = 0, scale = 1e-300;
    for (std::size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return b.empty() ? 0 : most / scale;
}

// Two steps of make(whole parts) on one rank.
template <class Make>
outcome on_one_rank(Make&& make, const shape& input) {
    auto net = make(whole_parts{});
    return two_steps(net, normals(input, 1), normals({input[0], 3}, 2), {{0, input[0]}, 1}, input[0], nullptr,
                     [](std::span<double>) {});
}

// Collective: throws unless make(parts) over the ranks of c leaves what `alone` is.
template <Communicator C, class Make>
void check_on(C& c, const rank_grid& grid, Make&& make, const shape& input, const outcome& alone) {
    channel<C> over(c);
    group_over<C> group(c.split(0, c.rank()));
    spatial_parts<C, double> parts(over, grid, {input[1], input[2], input[3]});
    const spatial_partition cut = parts.cut();
    auto mine = make(parts);
    tensor<double> x = normals(input, 1);
    const outcome here = two_steps(mine, own_rows(x, cut, grid, c.rank()), normals({input[0], 3}, 2),
                                   share_of_samples(input[0], c.size(), c.rank()), input[0], &group,
                                   [&](std::span<double> values) { all_reduce(c, values); });
    const std::string what = concat("grid ", grid.text(), ", input ", input, ": ");
    require(difference(here.losses, alone.losses) < 1e-12, what, "losses");
    require(difference(here.gradients, alone.gradients) < 1e-12, what, "gradients differ by ",
            difference(here.gradients, alone.gradients));
    require(difference(here.buffers, alone.buffers) < 1e-12, what, "running statistics");
}

}  // namespace spatial_networks
