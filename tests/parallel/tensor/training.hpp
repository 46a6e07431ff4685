#pragma once
// Trains a transformer on one rank, and with its tensors cut over the ranks of any communicator: what the tests on
// threads and on processes compare.

#include "parallel/tensor/split_layers.hpp"

#include <cairn/models/transformer.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/parallel/sharded.hpp>
#include <cairn/parallel/slice_sums.hpp>
#include <cairn/parallel/tensor/transformer_parts.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace cairn::split_layers {

/// Heads, hidden numbers and vocabulary are uneven on four ranks.
inline transformer_config network() {
    return {.vocab_size = 11,
            .max_length = 8,
            .embedding_dim = 10,
            .heads = 5,
            .blocks = 2,
            .ffn_dim = 14,
            .dropout = 0.2,
            .attention_dropout = 0.1};
}

struct batch {
    tensor<double> x{shape{3, 8}};
    tensor<std::int32_t> labels{shape{3, 8}};

    explicit batch(std::uint32_t step) {
        const random_stream random{8, 1, step};
        for (index_t i = 0; i < x.size(); ++i) {
            x[i] = static_cast<double>(random.below(11, static_cast<std::uint64_t>(i)));
            labels[i] = static_cast<std::int32_t>(random.below(11, static_cast<std::uint64_t>(i + 100)));
        }
    }
};

/// Losses and norms of the gradients of some steps, the gradients of the first, the values at the end; whole ones.
struct run {
    std::vector<double> losses, norms;
    std::map<std::string, tensor<double>> gradients, values;
};

/// Steps of any network on any loss, a micro-batch for each sample, so that gradients add up. `gradients_done(step,
/// loss)` is called before each update.
template <class Loss, class Optimizer, class Done>
void train(sequential<double>& net, arena<double>& weights, const Loss& loss, Optimizer& o, run& r,
           Done&& gradients_done, range samples = {0, 3}) {
    for (std::uint32_t step = 0; step < 4; ++step) {
        const batch b(step);
        weights.zero_grad();
        double sum = 0;
        for (index_t m = samples.begin; m < samples.end(); ++m) {
            saved_tensors<double> saved;
            const pass_context p{.random = {.seed = 2, .step = step, .first_sample = m}, .input_gradient = false};
            auto [value, dy] = loss(net.forward(b.x.slice(8 * m, {1, 8}), saved, p), b.labels.slice(8 * m, {1, 8}));
            for_each([](double& d) { d /= 3; }, dy);
            net.backward(std::move(dy), saved, p);
            sum += value / 3;
        }
        gradients_done(step, sum);
        r.losses.push_back(sum);
        r.norms.push_back(o.step(0.05));
    }
}

template <class O>
run train_alone(const O& rule) {
    sequential<double> net = transformer<double>(network());
    arena<double> weights(net.parameters(), 5);
    bound_optimizer o(rule, weights);
    run r;
    train(net, weights, cross_entropy{}, o, r, [&](std::uint32_t step, double&) {
        if (step == 0)
            for (const auto& [name, p] : weights.parameters()) r.gradients.emplace(name, p->grad.clone());
    });
    for (const auto& [name, p] : weights.parameters()) r.values.emplace(name, p->value.clone());
    return r;
}

/// Of a rank among those of c; the whole tensors are on rank 0.
template <class O, Communicator C>
run train_on(C& c, const O& rule, sequence_layout sequences) {
    channel<C> over(c);
    tensor_axis<C> axis(over);
    sequential<double> net = transformer<double, cpu>(network(), tensor_transformer_parts<double, C>{&axis, sequences});
    arena<double> weights(net.parameters(), 5);
    const slice_sums<C> slices(over, weights, "tensor");
    bound_optimizer o(sharded<O>{rule,
                                 {0, weights.values().size()},
                                 [&](auto by_parameter) { return slices.by_parameter(by_parameter), by_parameter; },
                                 [&](std::span<double> of_one) { slices.of_slices(of_one); }},
                      weights);
    run mine;
    const vocabulary_cross_entropy<C> loss{&axis, network().vocab_size};
    train(net, weights, loss, o, mine, [&](std::uint32_t step, double&) {
        if (step == 0)
            for (const auto& [name, q] : weights.parameters())
                mine.gradients.emplace(name, gather_global(c, q->grad, q->layout, 0, name));
    });
    for (const auto& [name, q] : weights.parameters()) {
        if (q->layout.is_whole()) require_equal_bits(axis, q->value, name);
        mine.values.emplace(name, gather_global(c, q->value, q->layout, 0, name));
    }
    tensor<double> numbers({8});
    for (std::size_t i = 0; i < 4; ++i) numbers[index_t(i)] = mine.losses[i], numbers[index_t(i) + 4] = mine.norms[i];
    require_equal_bits(axis, numbers, "losses and norms");
    return mine;
}

inline double apart(const std::vector<double>& a, const std::vector<double>& b) {
    double most = a.size() == b.size() ? 0 : 1e300;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
    return most;
}

/// The largest difference of losses and norms, of gradients relative to the largest of all, and of values.
struct run_difference {
    double numbers = 0, gradients = 0, values = 0;
};
inline run_difference difference(const run& got, const run& expected) {
    run_difference d{std::max(apart(got.losses, expected.losses), apart(got.norms, expected.norms))};
    double most = 0;
    for (const auto& [name, g] : expected.gradients)
        for (index_t i = 0; i < g.size(); ++i) most = std::max(most, std::abs(g[i]));
    require(got.values.size() == expected.values.size(), got.values.size(), " parameters");
    for (const auto& [name, g] : expected.gradients) {
        const tensor<double>& other = got.gradients.at(name);
        require(other.shape() == g.shape(), name, " has shape ", other.shape());
        for (index_t i = 0; i < g.size(); ++i) d.gradients = std::max(d.gradients, std::abs(other[i] - g[i]) / most);
        d.values = std::max(d.values, difference(got.values.at(name), expected.values.at(name)));
    }
    return d;
}

}  // namespace cairn::split_layers
