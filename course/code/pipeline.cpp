// Code of course/mesh.md and course/pipelines.md: a network of one's own in two stages has the gradients of one rank.

#include <cairn/comm/threads.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/parallel/mesh.hpp>
#include <cairn/parallel/pipeline/balance.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/execute.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using namespace cairn;
using cairn::index_t;

using gradients = std::map<std::string, std::vector<double>>;  // by path

// --8<-- [start:network]
// What is in a `sequential`, a `concat_skip` or a `residual` may be pulled apart; what is one layer may not.
sequential<double> network() {
    sequential<double> inner, net;
    inner.add("down", linear<double>({.in = 8, .out = 4})).add("tanh", activation_layer<double>(activation::tanh));
    inner.add("up", linear<double>({.in = 4, .out = 8}));
    net.add("stem", linear<double>({.in = 6, .out = 8})).add("skip", concat_skip<double>(std::move(inner)));
    net.add("head", linear<double>({.in = 16, .out = 3}));
    return net;
}
// --8<-- [end:network]

tensor<double> samples_of(int micro_batch) {
    tensor<double> x({2, 6});
    fill(x.span(), {initializer::distribution::normal, 1.0}, random_stream{1, static_cast<std::uint32_t>(micro_batch)});
    return x;
}

void keep(gradients& all, arena<double>& weights) {
    for (const auto& [name, p] : weights.parameters()) all[name].assign(p->grad.span().begin(), p->grad.span().end());
}

int main() {
    const auto input = [](int m) { return stage_input<double, cpu>{samples_of(m), {.input_gradient = false}}; };
    const auto half_squares = [](int, tensor<double> y) { return y; };  // the gradient of ½ Σ y² is y
    gradients expected, together;
    {
        sequential<double> net = network();
        arena<double> weights(net.parameters(), 7);
        std::vector<stage<sequential<double>>> whole;
        whole.emplace_back(net, weights);
        execute(gradient_accumulation(4), whole, half_squares, input);
        keep(expected, weights);
    }
    std::mutex one_at_a_time;
    run_ranks(2, [&](threads_communicator& world) {
        // --8<-- [start:mesh]
        mesh<threads_communicator> grid(world, {{"pipeline", 2}, {"data", 1}});
        channel<threads_communicator>& line = grid["pipeline"];  // activations and their gradients travel
        grid["data"];                                            // gradients of equal layers become their sum
        grid.everyone();                                         // the loss, and whether a step is taken
        // --8<-- [end:mesh]

        // --8<-- [start:cut]
        const pipeline_program program = make_schedule("1f1b", {.ranks = 2, .micro_batches = 4});
        validate(program);
        sequential<double> net = network();
        std::vector<unit_load> loads;  // of what runs in one piece
        for (const model_unit& unit : units_of(net, {1, 6})) loads.push_back({.time = 3 * unit.cost.forward.flops});
        std::vector<sequential<double>> parts = cut(net, {1, 6}, balance(loads, 2));  // here inside the skip
        const std::vector<shape> boundaries = boundaries_of(parts, {1, 6});

        sequential<double>& mine = parts[static_cast<std::size_t>(line.rank())];
        arena<double> weights(mine.parameters(), 7);  // the values that these layers have in the whole network
        std::vector<stage<sequential<double>>> stages;
        stages.emplace_back(mine, weights);
        stage_links<double, cpu, threads_communicator> links(line, boundaries);
        execute(program, {2, 2, 2, 2}, stages, links, half_squares, input);
        // --8<-- [end:cut]
        const std::scoped_lock lock(one_at_a_time);
        keep(together, weights);
    });
    if (together != expected) return std::puts("two stages have other gradients than one rank"), 1;
    return 0;
}
