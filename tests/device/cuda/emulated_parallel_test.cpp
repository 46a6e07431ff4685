// Ranks with an emulated GPU each take the steps of one rank of the host. The twins of tests/parallel/data_test.cpp;
// ranks are threads, which share one emulated GPU, but could not share the memory of a real one.

#include "device/cuda/emulated_libraries.hpp"
#include "parallel/distributed.hpp"

#include "catch.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>

#include <atomic>
#include <thread>

namespace cairn {

namespace {

using distributed::outcome;
using distributed::problem;
using gpu = emulated_gpu;
using world = data_axis<any_communicator, double, gpu>;
using network = std::function<sequential<double, gpu>()>;

constexpr double rounding = 1e-9;
const sgd momentum{{.momentum = 0.9, .weight_decay = 1e-3}};

template <Device D>
sequential<double, D> rows() {
    sequential<double, D> net;
    net.add("first", linear<double, D>({.in = 12, .out = 9}));
    net.add("relu", activation_layer<double, D>(activation::relu));
    net.add("middle", linear<double, D>({.in = 9, .out = 11, .bias = false}));
    net.add("tanh", activation_layer<double, D>(activation::tanh));
    net.add("last", linear<double, D>({.in = 11, .out = 10}));
    return net;
}
problem rows_problem() { return {rows<cpu>, {12}}; }

template <Device D>
sequential<double, D> small_resnet() {
    resnet_config c;
    c.widths = {4, 8};
    c.blocks = {1, 1};
    return resnet<double, D>(c);
}
problem resnet_problem() {
    problem p{small_resnet<cpu>, {8, 8, 3}};
    p.batch = 6, p.samples = 15, p.steps = 3;
    return p;
}

/// Of world::config, what a problem chooses.
struct set_up {
    index_t bucket_bytes = index_t{25} << 20;
    bool overlap = true, sync_batch_norm = false;
    int zero_stage = 0;
};

/// Parameters and each rank's state of the optimizer, between two runs.
struct saved_run {
    tensor<double> values;
    std::vector<std::vector<tensor<double>>> state;
    std::int64_t steps = 0;
};

/// Steps from where `run` is to `last`, on `ranks` ranks whose results must agree bit for bit; `run` is then there.
template <class O>
outcome train(const problem& p, const network& make, const O& rule, int ranks, const set_up& how, saved_run& run,
              int last, bool layer_wise = false) {
    outcome result;
    saved_run after{{}, std::vector<std::vector<tensor<double>>>(static_cast<std::size_t>(ranks)), last};
    std::mutex one_at_a_time;
    run_ranks(ranks, [&](threads_communicator& c) {
        auto net = make();
        arena<double, gpu> weights(net.parameters(), 5 + static_cast<std::uint64_t>(c.rank()));  // only rank 0's count
        if (run.steps) gpu::copy_to_device(weights.values().data(), run.values.data(), run.values.bytes());
        world::config mine{.gradients = {.bucket_bytes = how.bucket_bytes, .overlap = how.overlap},
                           .sync_batch_norm = how.sync_batch_norm,
                           .zero_stage = how.zero_stage};
        mine.device = staged_communicator<gpu, threads_communicator>(c.split(0, c.rank()));
        if (how.zero_stage) mine.owners = owners_of(weights, ranks, layer_wise);
        any_communicator everybody(c.split(0, c.rank()));
        const range own = how.zero_stage ? mine.owners[static_cast<std::size_t>(c.rank())] : range{};
        world all(everybody, weights, std::move(mine));
        broadcast_values(all.over, weights, net.buffers());
        saved_tensors<double, gpu> saved;
        outcome out;
        const auto take_steps = [&](auto& o) {
            auto state = o.flat_state();
            auto& before = run.state;
            for (std::size_t i = 0; run.steps && i < state.size(); ++i) {
                const auto& t = before[static_cast<std::size_t>(c.rank())][i];
                gpu::copy_to_device(state[i].t.data(), t.data(), t.bytes());
            }
            o.steps() = run.steps;
            for (int step = static_cast<int>(run.steps); step < last; ++step) {
                const range batch = distributed::batch_of(p, step), s = shard_of(batch.count, ranks, c.rank());
                weights.zero_grad();
                all.gradients.begin(step);
                double loss = 0;
                if (s.count) {
                    const pass_context final{.input_gradient = false,
                                             .listener = all.gradients.listener(),
                                             .group = all.group ? &*all.group : nullptr};
                    const auto x = tensor<double, gpu>::copy_of(distributed::inputs(p, batch.begin + s.begin, s.count));
                    const auto y =
                        tensor<std::int32_t, gpu>::copy_of(distributed::labels(batch.begin + s.begin, s.count));
                    auto [value, dy] = cross_entropy{}(net.forward(x.share(), saved, final), y);
                    for_each(functors::times<double>{static_cast<double>(s.count) / static_cast<double>(batch.count)},
                             dy);
                    net.backward(std::move(dy), saved, final);
                    loss = value;
                }
                const step_totals t = synchronise(
                    all.gradients, all.agree,
                    {.loss = loss * static_cast<double>(s.count), .samples = static_cast<double>(s.count)}, step);
                out.losses.push_back(t.loss / t.samples);
                o.step(0.05);
                if (how.zero_stage) all_gather_values(all.over, weights, all.owners);
            }
            for (const auto& [name, t] : o.flat_state())
                after.state[static_cast<std::size_t>(c.rank())].push_back(t.on_host());
        };
        if (how.zero_stage) {
            bound_optimizer o(sharded<O>{rule, own,
                                         [&](std::vector<double> by_parameter) {
                                             all_reduce(all.over.host, std::span<double>(by_parameter));
                                             return by_parameter;
                                         }},
                              weights);
            take_steps(o);
        } else {
            bound_optimizer o(rule, weights);
            take_steps(o);
        }
        tensor<double> values = weights.values().on_host();
        out.values.assign(values.data(), values.data() + values.size());
        const std::scoped_lock lock(one_at_a_time);
        if (result.losses.empty()) result = out;
        require(result.losses == out.losses && result.values == out.values, "rank ", c.rank(), " has other bits");
        after.values = std::move(values);
    });
    run = std::move(after);
    return result;
}

template <class O>
outcome train(const problem& p, const network& make, const O& rule, int ranks, const set_up& how,
              bool layer_wise = false) {
    saved_run nothing;
    return train(p, make, rule, ranks, how, nothing, p.steps, layer_wise);
}

}  // namespace

TEST_CASE("GPU ranks, emulated: as one rank of the host, whatever the buckets", "[cuda]") {
    const problem p = rows_problem();
    const outcome alone = distributed::train_alone(p, momentum);
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        CHECK(difference(train(p, rows<gpu>, momentum, ranks, {}), alone) < rounding);
        CHECK(difference(train(p, rows<gpu>, momentum, ranks, {.bucket_bytes = 500, .overlap = false}), alone) <
              rounding);
        CHECK(difference(train(p, rows<gpu>, momentum, ranks, {.bucket_bytes = 500}), alone) < rounding);
    }
}

TEST_CASE("GPU ranks, emulated: a rank without samples takes part", "[cuda]") {
    problem p = rows_problem();
    p.batch = 8;
    p.samples = 10;  // the second batch has two samples
    const outcome alone = distributed::train_alone(p, momentum);
    CHECK(difference(train(p, rows<gpu>, momentum, 4, {}), alone) < rounding);
    CHECK(difference(train(p, rows<gpu>, momentum, 4, {.bucket_bytes = 500, .zero_stage = 2}), alone) < rounding);
}

TEST_CASE("GPU ranks, emulated: ResNet with the batch norm of the whole batch, and with each rank's own", "[cuda]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    const problem p = resnet_problem();
    const outcome alone = distributed::train_alone(p, momentum);
    for (const int ranks : {2, 3}) {
        CAPTURE(ranks);
        CHECK(difference(train(p, small_resnet<gpu>, momentum, ranks, {.bucket_bytes = 2000, .sync_batch_norm = true}),
                         alone) < rounding);
        CHECK(difference(train(p, small_resnet<gpu>, momentum, ranks, {.bucket_bytes = 2000}),
                         distributed::train_alone(p, momentum, ranks)) < rounding);
    }
    CHECK(difference(train(p, small_resnet<gpu>, momentum, 2, {}), alone) > 1e-3);  // the two are not the same
}

TEST_CASE("GPU ranks, emulated: sharded optimizers take the same steps, and go on from a saved state", "[cuda]") {
    const problem p = rows_problem();
    const auto check = [&](const auto& rule, bool layer_wise) {
        const outcome alone = distributed::train_alone(p, rule);
        for (const int stage : {1, 2}) {
            CAPTURE(rule.name, stage);
            const set_up zero{.bucket_bytes = 500, .zero_stage = stage};
            const outcome whole = train(p, rows<gpu>, rule, 3, zero, layer_wise);
            CHECK(difference(whole, alone) < rounding);
            saved_run run;
            const outcome first = train(p, rows<gpu>, rule, 3, zero, run, 2, layer_wise);
            CHECK(std::equal(first.losses.begin(), first.losses.end(), whole.losses.begin()));
            CHECK(first.values != whole.values);
            const outcome second = train(p, rows<gpu>, rule, 3, zero, run, p.steps, layer_wise);
            CHECK(second.values == whole.values);
            CHECK(second.losses.back() == whole.losses.back());
        }
    };
    check(adam{{.weight_decay = 1e-3}}, false);
    check(lamb{{.weight_decay = 1e-3}}, true);
}

TEST_CASE("GPU ranks, emulated: buckets leave in order, each behind what backward launched", "[cuda]") {
    auto net = rows<gpu>();
    arena<double, gpu> weights(net.parameters(), 1);
    const int count = static_cast<int>(weights.parameters().size());
    std::vector<int> order;
    std::vector<double> first_of_each;
    std::atomic<int> done = 0;
    const auto buckets = make_buckets(weights, 1, 1);
    gradient_reducer<double, gpu> reducer(weights, buckets, true, [&](int which, std::span<double> g) {
        double value = 0;
        gpu::copy_to_host(&value, g.data(), sizeof value);
        order.push_back(which);
        first_of_each.push_back(value);
        ++done;
    });
    std::vector<int> all;
    for (int b = 0; b < count; ++b) all.push_back(b);
    for (int step = 0; step < 3; ++step) {
        CAPTURE(step);
        order.clear(), first_of_each.clear();
        done = 0;
        const index_t made = gpu::event::made, waited = gpu::event::waited;
        reducer.begin();
        const auto announce = [&](int p) {
            auto& grad = weights.parameters()[static_cast<std::size_t>(p)].p->grad;
            for_each(functors::assign<double>{10.0 * step + p}, grad);
            reducer.added(std::span<const int>(&p, 1));
        };
        announce(0);  // the first parameters are ready first: their bucket has to wait for its turn
        for (int p = count - 1; p > 0; --p) {
            announce(p);
            if (step > 0 && p == count - 1)
                while (done < 1) std::this_thread::yield();  // it left while others are missing
        }
        reducer.finish();
        CHECK(order == all);
        for (int b = 0; b < count; ++b)
            CHECK(first_of_each[static_cast<std::size_t>(b)] == 10.0 * step + (count - 1 - b));
        CHECK(gpu::event::made - made == 2 * count);  // what backward launched, and what the reduction did
        CHECK(gpu::event::waited - waited == count + 1);
    }
}

}  // namespace cairn
