#pragma once
// Trains a small network for a few steps on several ranks that are threads, and on one: what distributed results are
// compared with.
// In double, where "the same to rounding" is a sharp statement.

#include <cairn/comm/threads.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/data_axis.hpp>

#include <functional>
#include <mutex>
#include <vector>

namespace distributed {

using namespace cairn;
using cairn::index_t;
using world = data_axis<threads_communicator, double>;

struct problem {
    std::function<sequential<double>()> model;
    shape sample;          // of one input
    index_t batch = 12;    // of all ranks
    index_t samples = 30;  // data set: the third batch is short
    int steps = 4;
};

inline problem lenet_problem() {
    return {[] { return lenet<double>(); }, {28, 28, 1}};
}
inline problem resnet18_problem() {
    return {[] {
                resnet_config c;  // the blocks of ResNet-18, an eighth as wide
                c.widths = {8, 16, 32, 64};
                return resnet<double>(c);
            },
            {8, 8, 3}};
}

/// Result of a run: losses of the whole batches, and the parameters at the end.
struct outcome {
    std::vector<double> losses;
    std::vector<double> values;
};

inline double pixel(index_t sample, index_t i) {
    return random_stream{7, 1, static_cast<std::uint32_t>(sample)}.normal(static_cast<std::uint64_t>(i));
}

/// Samples [first, first + count) of the data set.
inline tensor<double> inputs(const problem& p, index_t first, index_t count) {
    shape s{count};
    for (const index_t extent : p.sample) s.push_back(extent);
    tensor<double> x(s);
    const index_t width = p.sample.size();
    for (index_t i = 0; i < x.size(); ++i) x[i] = pixel(first + i / width, i % width);
    return x;
}
inline tensor<std::int32_t> labels(index_t first, index_t count) {
    tensor<std::int32_t> t({count});
    for (index_t i = 0; i < count; ++i) t[i] = static_cast<std::int32_t>((first + i) * 7 % 10);
    return t;
}

/// Forward, loss and backward of some samples, their gradient weighted by `weight`; returns the mean loss.
inline double one_part(sequential<double>& net, saved_tensors<double>& saved, const problem& p, index_t first,
                       index_t count, double weight, const pass_context& how) {
    tensor<double> y = net.forward(inputs(p, first, count), saved, how);
    auto [loss, dy] = cross_entropy{}(std::move(y), labels(first, count));
    for_each([weight](double& d) { d *= weight; }, dy);
    net.backward(std::move(dy), saved, how);
    return loss;
}

inline range batch_of(const problem& p, int step) {
    const index_t batches = (p.samples + p.batch - 1) / p.batch, first = step % batches * p.batch;
    return {first, std::min(p.batch, p.samples - first)};
}

/// One rank, no communicator; each batch in `pieces` micro-batches, whose batch statistics are their own.
template <class O>
outcome train_alone(const problem& p, const O& rule, int pieces = 1) {
    auto net = p.model();
    arena<double> weights(net.parameters(), 5);
    bound_optimizer o(rule, weights);
    saved_tensors<double> saved;
    outcome out;
    for (int step = 0; step < p.steps; ++step) {
        const range batch = batch_of(p, step);
        weights.zero_grad();
        double loss = 0;
        for (int m = 0; m < pieces; ++m) {
            const range s = shard_of(batch.count, pieces, m);
            const double share = static_cast<double>(s.count) / static_cast<double>(batch.count);
            loss += share * one_part(net, saved, p, batch.begin + s.begin, s.count, share, {.input_gradient = false});
        }
        out.losses.push_back(loss);
        o.step(0.05);
    }
    out.values.assign(weights.values().span().begin(), weights.values().span().end());
    return out;
}

/// `ranks` ranks; their results must agree bit for bit. `config` sees the arena, for owners.
template <class O>
outcome train_together(const problem& p, const O& rule, int ranks, world::config config, bool layer_wise = false) {
    outcome result;
    std::mutex one_at_a_time;
    run_ranks(ranks, [&](threads_communicator& c) {
        auto net = p.model();
        arena<double> weights(net.parameters(), 5 + static_cast<std::uint64_t>(c.rank()));  // only rank 0's count
        world::config mine = config;
        if (mine.zero_stage) mine.owners = owners_of(weights, ranks, layer_wise);
        world all(c, weights, mine);
        broadcast_values(all.over, weights, net.buffers());
        saved_tensors<double> saved;
        outcome out;
        const auto train = [&](auto& o) {
            for (int step = 0; step < p.steps; ++step) {
                const range batch = batch_of(p, step), s = shard_of(batch.count, ranks, c.rank());
                weights.zero_grad();
                all.gradients.begin(step);
                const double share = static_cast<double>(s.count) / static_cast<double>(batch.count);
                double loss = 0;
                if (s.count)
                    loss = one_part(net, saved, p, batch.begin + s.begin, s.count, share,
                                    {.input_gradient = false,
                                     .listener = all.gradients.listener(),
                                     .group = all.group ? &*all.group : nullptr});
                const step_totals t = synchronise(
                    all.gradients, all.agree,
                    {.loss = loss * static_cast<double>(s.count), .samples = static_cast<double>(s.count)}, step);
                out.losses.push_back(t.loss / t.samples);
                o.step(0.05);
                if (mine.zero_stage) all_gather_values(all.over, weights, all.owners);
            }
        };
        if (mine.zero_stage) {
            bound_optimizer o(sharded<O>{rule, mine.owners[static_cast<std::size_t>(c.rank())],
                                         [&](std::vector<double> by_parameter) {
                                             all_reduce(all.over.host, std::span<double>(by_parameter));
                                             return by_parameter;
                                         }},
                              weights);
            train(o);
        } else {
            bound_optimizer o(rule, weights);
            train(o);
        }
        out.values.assign(weights.values().span().begin(), weights.values().span().end());
        const std::scoped_lock lock(one_at_a_time);
        if (result.losses.empty()) result = out;
        require(result.losses == out.losses && result.values == out.values, "rank ", c.rank(), " has other bits");
    });
    return result;
}

/// The largest difference relative to the largest value.
inline double difference(const outcome& a, const outcome& b) {
    const auto of = [](const std::vector<double>& x, const std::vector<double>& y) {
        double most = 0, scale = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            most = std::max(most, std::abs(x[i] - y[i]));
            scale = std::max(scale, std::abs(y[i]));
        }
        return x.size() == y.size() ? most / scale : 1e300;
    };
    return std::max(of(a.losses, b.losses), of(a.values, b.values));
}

}  // namespace distributed
