// Code of course/lectures/10-predict-then-measure.md. Two ranks that are threads; prints a table as on the page.

#include <cairn/comm/collectives/cost_model.hpp>
#include <cairn/comm/collectives/ring.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/sgd.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

using namespace cairn;
using cairn::index_t;

/// The median of so many times, after one that does not count. Ranks begin together.
template <Communicator C, class F>
double seconds_of(C& c, int times, F&& f) {
    std::vector<double> all;
    for (int i = 0; i <= times; ++i) {
        float together = 1;
        ring_all_reduce(c, std::span(&together, 1));
        const stopwatch watch;
        f();
        if (i > 0) all.push_back(watch.seconds());
    }
    std::ranges::nth_element(all, all.begin() + times / 2);
    return all[std::size_t(times) / 2];
}

/// A rank of data-parallel training: its network, and a step on its part of the batch.
struct worker {
    sequential<float> net = mlp<float>({256, 512, 512, 10});
    arena<float> weights{net.parameters(), 1};
    bound_optimizer<sgd, float> optimizer{sgd{{.momentum = 0.9}}, weights};
    saved_tensors<float> saved;

    void compute(index_t batch) {
        tensor<float> x({batch, 256});
        std::ranges::fill(x.span(), 0.5f);
        const tensor<std::int32_t> labels = tensor<std::int32_t>::zeros({batch});
        auto [loss, gradient] = cross_entropy{}(net.forward(std::move(x), saved, {}), labels);
        weights.zero_grad();
        net.backward(std::move(gradient), saved, {});
    }
};

// --8<-- [start:machine]
/// What the model knows of a machine.
struct machine {
    link_model link;       // α, β, γ
    double start = 0;      // seconds of a step's kernels, however small the batch
    double of_sample = 0;  // seconds more of each sample
    double update = 0;     // seconds of the optimizer
};

template <Communicator C>
machine measured(C& c, worker& me) {
    const auto exchange = [&](std::size_t bytes) {
        std::vector<float> out(bytes / 4), in(bytes / 4);
        const int peer = (c.rank() + 1) % c.size(), other = (c.rank() + c.size() - 1) % c.size();
        return seconds_of(c, 21, [&] { sendrecv(c, std::span<const float>(out), peer, std::span(in), other, 0); });
    };
    const double small = exchange(4), large = exchange(1 << 20);
    std::vector<float> sum(1 << 18), more(1 << 18);
    const double add = seconds_of(c, 21, [&] { reduce_local(c, std::span(sum), std::span<const float>(more)); });
    const double few = seconds_of(c, 21, [&] { me.compute(16); }), many = seconds_of(c, 5, [&] { me.compute(128); });
    const double of_sample = (many - few) / (128 - 16);
    return {.link = {small, (large - small) / (1 << 20), add / (1 << 20)},
            .start = std::max(0.0, few - 16 * of_sample),
            .of_sample = of_sample,
            .update = seconds_of(c, 21, [&] { me.optimizer.step(0.01); })};
}
// --8<-- [end:machine]

// --8<-- [start:predict]
struct terms {
    double compute, communicate, update;
    double sum() const { return compute + communicate + update; }
};

terms predicted(const machine& m, index_t batch, double gradients, int ranks) {
    return {m.start + m.of_sample * double(batch) / ranks,
            all_reduce_seconds(m.link, all_reduce_algorithm::ring, gradients, ranks), m.update};
}
// --8<-- [end:predict]

int main() {
    run_ranks(2, [](threads_communicator& c) {
        worker me;
        const machine here = measured(c, me);
        const auto gradients = me.weights.grads().span();
        if (c.rank() == 0) std::printf("batch   computing + all-reduce + update = predicted   measured   error\n");
        for (const index_t batch : {32, 64, 128, 512, 1024}) {
            const terms t = predicted(here, batch, double(gradients.size_bytes()), c.size());
            // --8<-- [start:measure]
            const double took = seconds_of(c, 21, [&] {
                me.compute(batch / c.size());
                ring_all_reduce(c, gradients);
                me.optimizer.step(0.01);
            });
            // --8<-- [end:measure]
            if (c.rank() == 0)
                std::printf("%5td   %6.2f ms + %7.2f ms + %3.2f ms = %6.2f ms %7.2f ms %+6.0f %%\n", batch,
                            1e3 * t.compute, 1e3 * t.communicate, 1e3 * t.update, 1e3 * t.sum(), 1e3 * took,
                            100 * (t.sum() / took - 1));
        }
    });
    // What the formula says for α = 20 µs and 10 Gbit/s: a ring of two sends half of the gradients twice.
    const machine described{.link = {20e-6, 1 / 1.25e9, 0}, .start = 1e-3, .of_sample = 1e-5, .update = 1e-3};
    const terms t = predicted(described, 200, 1.25e9, 2);
    require(std::abs(t.compute - 2e-3) < 1e-9 && std::abs(t.communicate - 1.00004) < 1e-6, "other than by hand");
    // It counts bytes as they are.
    run_ranks(2, [](threads_communicator& world) {
        counting_communicator c(world.split(0, world.rank()));
        std::vector<float> gradients(1000, 1.0f);
        ring_all_reduce(c, std::span(gradients));
        require(c.counts().bytes == 4000, "a ring of two sends ", c.counts().bytes, " bytes for 4000");
    });
}
