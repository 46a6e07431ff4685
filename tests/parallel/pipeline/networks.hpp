#pragma once
// Networks that pipelines are tested with, their batches, and one rank that trains them without a pipeline.

#include <cairn/comm/threads.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/parallel/pipeline/balance.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/execute.hpp>
#include <cairn/parallel/pipeline/tied_weights.hpp>

#include "nn/own_container.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace pipelines {

using namespace cairn;
using cairn::index_t;
using model = sequential<double>;

struct network {
    std::string name;
    std::function<model()> make;
    shape sample;                       // with a batch of 1
    bool tokens = false, even = false;  // even: all micro-batches are of one size
};

/// Two nested skips, with dropout on the way.
inline model skips() {
    const auto mix = [](index_t in, index_t out) {
        return conv<double>({.in = in, .out = out, .kernel = 3, .pad = 1});
    };
    model deep, inner, outer;
    deep.add("a", mix(4, 5)).add("act", activation_layer<double>(activation::relu)).add("b", mix(5, 3));
    inner.add("in", mix(3, 4)).add("drop", dropout<double>(0.2)).add("skip", concat_skip<double>(std::move(deep)));
    inner.add("out", mix(7, 2));
    outer.add("stem", mix(2, 3)).add("skip", concat_skip<double>(std::move(inner)));
    outer.add("act", activation_layer<double>(activation::tanh)).add("flatten", flatten<double>());
    outer.add("head", linear<double>({.in = 5 * 16, .out = 10}));
    return outer;
}

/// Containers as users write them, with a chain in one of them that runs beside those that are cut.
inline model own_containers() {
    const auto dense = [](index_t in, index_t out, double rate) {
        model c;
        c.add("fc", linear<double>({.in = in, .out = out})).add("drop", dropout<double>(rate));
        return c;
    };
    model left = dense(9, 6, 0.2), left_again = dense(10, 7, 0.2), all;
    left.add("fc2", linear<double>({.in = 6, .out = 6}));
    left_again.add("box", own::boxed<double>(dense(7, 5, 0.3)));
    all.add("box", own::boxed<double>(dense(12, 9, 0.1)));
    all.add("joined", own::two_ways<combination::join, double>(std::move(left), dense(9, 4, 0.3)));
    all.add("added", own::two_ways<combination::sum, double>(std::move(left_again), dense(10, 5, 0.1)));
    all.add("head", linear<double>({.in = 5, .out = 10}));
    return all;
}

inline const std::vector<network>& networks() {
    static const std::vector<network> all{
        {"mlp",
         [] {
             return mlp<double>({12, 9, 8, 7, 10});
         },
         {1, 12}},
        {"resnet",
         [] {
             resnet_config c;
             c.widths = {4, 6};
             c.blocks = {2, 2};
             return resnet<double>(c);
         },
         {1, 6, 6, 3}},
        {"skips", skips, {1, 4, 4, 2}},
        {"own containers", own_containers, {1, 12}},
        {"cosmoflow",
         [] {
             return cosmoflow<double>(
                 {.size = 8, .channels = 1, .filters = 2, .blocks = 2, .dense = {6}, .outputs = 10});
         },
         {1, 8, 8, 8, 1}},
        {"transformer",
         [] {
             return transformer<double>({.vocab_size = 10,
                                         .max_length = 6,
                                         .embedding_dim = 8,
                                         .heads = 2,
                                         .blocks = 3,
                                         .dropout = 0.2,
                                         .attention_dropout = 0.1});
         },
         {1, 6},
         true},
        {"tied",
         [] {
             return transformer<double>({.vocab_size = 10,
                                         .max_length = 6,
                                         .embedding_dim = 8,
                                         .heads = 2,
                                         .blocks = 2,
                                         .dropout = 0.2,
                                         .tied = true});
         },
         {1, 6},
         true}};
    return all;
}
inline const network& network_named(const std::string& name) {
    for (const network& n : networks())
        if (n.name == name) return n;
    fail("no network ", name);
}

/// Samples of micro-batch m.
inline index_t samples_of(const network& net, int m) { return net.even ? 2 : 2 + m % 2; }

inline stage_input<double, cpu> input_of(const network& net, int m, mode how = mode::train) {
    tensor<double> x(net.sample.with(0, samples_of(net, m)));
    const random_stream random{3, 1, static_cast<std::uint32_t>(m)};
    for (index_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        x[i] = net.tokens ? static_cast<double>(random.below(10, at)) : random.normal(at);
    }
    return {std::move(x),
            {.mode = how, .random = {.seed = 7, .step = 4, .first_sample = 10 * m}, .input_gradient = false}};
}

/// Loss and gradient of micro-batch m.
inline loss_result<double, cpu> loss_of(int m, tensor<double> y) {
    const index_t rows = y.size() / y.shape().back();
    tensor<std::int32_t> labels({rows});
    for (index_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>((3 * i + m) % 10);
    return cross_entropy{}(std::move(y), labels);
}

/// By micro-batch, parameter and buffer, and what a forward in evaluation gives afterwards.
struct outcome {
    std::map<int, double> losses;
    std::map<std::string, std::vector<double>> gradients, buffers;
    std::map<int, std::vector<double>> predictions;
    bool operator==(const outcome&) const = default;

    void add(const outcome& other) {
        losses.insert(other.losses.begin(), other.losses.end());
        gradients.insert(other.gradients.begin(), other.gradients.end());
        buffers.insert(other.buffers.begin(), other.buffers.end());
        predictions.insert(other.predictions.begin(), other.predictions.end());
    }
};

inline std::vector<double> values_of(const tensor<double>& t) { return {t.data(), t.data() + t.size()}; }

inline action_list forwards(int stage, int micro_batches) {
    action_list all;
    for (int m = 0; m < micro_batches; ++m) all.push_back({action_kind::forward, stage, m});
    return all;
}

/// Training, a step of plain descent and evaluation of the stages here; the same for one rank and for many, between
/// which `over` leads.
template <class Links>
outcome run_stages(const network& net, const pipeline_program& program, const pipeline_program& forward_only,
                   std::vector<model>& layers, Links& links, channel<threads_communicator>* over = nullptr) {
    parameter_list<double> parameters;
    buffer_list<double> buffers;
    for (model& part : layers) {
        for (auto& p : part.parameters()) parameters.push_back(p);
        for (auto& b : part.buffers()) buffers.push_back(b);
    }
    arena<double> weights(parameters, 5, over ? arena_scope::stage : arena_scope::whole_model);
    using ties = tied_weights<double, cpu, threads_communicator>;
    ties tied = over ? ties(weights, *over) : ties(weights);
    std::vector<stage<model>> stages;
    for (model& part : layers) stages.emplace_back(part, weights);
    std::vector<index_t> samples;
    for (int m = 0; m < program.micro_batches; ++m) samples.push_back(samples_of(net, m));
    outcome out;
    weights.zero_grad();
    tied.begin();
    tied.share_values();
    const auto train = [&](int m, tensor<double> y) {
        auto [loss, dy] = loss_of(m, std::move(y));
        out.losses[m] = loss;
        return std::move(dy);
    };
    execute(program, samples, stages, links, train, [&](int m) { return input_of(net, m); });
    tied.sum(nullptr);
    for (const auto& [name, p] : weights.parameters()) out.gradients[name] = values_of(p->grad);
    for (index_t i = 0; i < weights.values().size(); ++i) weights.values()[i] -= 0.1 * weights.grads()[i];
    tied.share_values();
    for (const auto& [name, t] : buffers) out.buffers[name] = values_of(*t);
    const auto predict = [&](int m, tensor<double> y) {
        out.predictions[m] = values_of(y);
        return tensor<double>();
    };
    execute(forward_only, samples, stages, links, predict, [&](int m) { return input_of(net, m, mode::evaluate); });
    return out;
}

/// One rank, the whole model, micro-batch after micro-batch.
inline outcome alone(const network& net, int micro_batches) {
    outcome out;
    run_ranks(1, {.kernel_threads = 1}, [&](threads_communicator&) {
        stage_links<double, cpu, threads_communicator> links;
        std::vector<model> layers;
        layers.push_back(net.make());
        const auto program = [&](action_list list) {
            return pipeline_program{
                .name = "one rank", .micro_batches = micro_batches, .rank_of_stage = {0}, .actions = {std::move(list)}};
        };
        out = run_stages(net, program(gradient_accumulation(micro_batches)), program(forwards(0, micro_batches)),
                         layers, links);
    });
    return out;
}

/// Of forwards alone, with the stages of another program.
inline pipeline_program forward_only(pipeline_program p) {
    for (int r = 0; r < p.ranks; ++r) {
        action_list& list = p.actions[static_cast<std::size_t>(r)];
        list.clear();
        for (int m = 0; m < p.micro_batches; ++m)
            for (int s = 0; s < p.stages(); ++s)
                if (p.rank_of_stage[static_cast<std::size_t>(s)] == r) list.push_back({action_kind::forward, s, m});
    }
    return p;
}

/// Cut by modelled costs, or in front of these units.
inline std::vector<model> stages_of(const network& net, int stages, const std::vector<int>& cuts = {}) {
    model whole = net.make();
    if (!cuts.empty()) return cut(whole, net.sample, cuts);
    std::vector<unit_load> loads;
    for (const model_unit& u : units_of(whole, net.sample))
        loads.push_back({u.cost.forward.flops + u.cost.backward_input.flops + u.cost.backward_weight.flops + 1});
    return cut(whole, net.sample, balance(loads, stages));
}

/// `watch(rank)` is called on each rank when it is done.
inline outcome together(const network& net, const pipeline_program& program, const std::function<void(int)>& watch = {},
                        const std::vector<int>& cuts = {}) {
    outcome all;
    std::mutex one_at_a_time;
    run_ranks(program.ranks, {.kernel_threads = 1, .time_limit = 20}, [&](threads_communicator& c) {
        channel<threads_communicator> over(c);
        std::vector<model> every = stages_of(net, program.stages(), cuts), mine;
        stage_links<double, cpu, threads_communicator> links(over, boundaries_of(every, net.sample));
        for (int s = 0; s < program.stages(); ++s)
            if (program.rank_of_stage[static_cast<std::size_t>(s)] == c.rank())
                mine.push_back(std::move(every[static_cast<std::size_t>(s)]));
        const outcome here = run_stages(net, program, forward_only(program), mine, links, &over);
        if (watch) watch(c.rank());
        const std::scoped_lock lock(one_at_a_time);
        all.add(here);
    });
    return all;
}

}  // namespace pipelines
