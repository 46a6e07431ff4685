// Any number of ranks and micro-batches draws the masks, and the labels of K-FAC, that one rank draws, and takes its
// steps to rounding; a run that goes on draws those of the run that was not stopped.

#include "catch.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/reconstruction.hpp>
#include <cairn/objectives/regression.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/kfac_ranks.hpp>
#include <cairn/train/preconditioning.hpp>
#include <cairn/train/trainer.hpp>

#include <optional>

namespace cairn {

namespace {

constexpr index_t inputs = 12, classes = 3;
constexpr int steps = 6;

struct how {
    int ranks = 1;
    index_t micro_batches = 1;
    bool sampled_labels = false;  // of K-FAC
    bool may_skip = false;        // ranks tell each other how many samples they have
};

sequential<float> network() {
    sequential<float> net;
    net.add("first", linear<float>({.in = inputs, .out = 21})).add("act", relu<float>());
    net.add("drop", dropout<float>(0.4));
    net.add("second", linear<float>({.in = 21, .out = classes}));
    return net;
}

/// This rank's part of batch `step`, of 11 samples or of 7.
batch part_of(int step, int ranks, int rank) {
    const index_t whole = step % 2 ? 7 : 11;
    const range s = shard_of(whole, ranks, rank);
    const random_stream random{11, static_cast<std::uint32_t>(step)};
    batch b;
    b.x = tensor<float>({s.count, inputs});
    b.labels = tensor<std::int32_t>({s.count});
    for (index_t i = 0; i < b.x.size(); ++i)
        b.x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(s.begin * inputs + i)));
    for (index_t i = 0; i < s.count; ++i) b.labels[i] = static_cast<std::int32_t>((s.begin + i + step) % classes);
    b.count = s.count;
    b.global_count = whole;
    b.first_sample = s.begin;
    return b;
}

/// A model and all that trains it, of one rank.
struct run {
    sequential<float> model = network();
    arena<float> weights{model.parameters(), 3};
    std::optional<ranks<cpu>> all;
    std::unique_ptr<kfac<float>> curvature;
    std::optional<trainer<cpu>> train;

    run(const how& h, any_communicator* world) {
        if (world) {
            ranks<cpu>::config c;
            if (h.may_skip) c.agree.non_finite = non_finite_policy::skip;
            all.emplace(*world, weights, std::move(c));
        }
        if (h.sampled_labels) {
            const kfac_config c{.damping = 0.1, .factor_update_interval = 1, .inverse_update_interval = 1};
            auto roles = world ? std::make_unique<kfac_ranks<any_communicator>>(*world, kfac_ranks_config{})
                               : std::make_unique<kfac_work_assignment<float>>();
            curvature = std::make_unique<kfac<float>>(weights, c, std::move(roles));
        }
        using any = any_optimizer<float, cpu>;  // Adam would make a step of what is but rounding in K-FAC's directions
        any optimizer = h.sampled_labels ? any(bound_optimizer(sgd{}, weights)) : any(bound_optimizer(adam{}, weights));
        step_hooks<cpu, float> hooks;
        if (curvature) hooks.push_back(std::make_unique<preconditioning<cpu, float>>(*curvature, 1));
        train.emplace(model_stages<cpu, float>(model, weights), update_rule<cpu>{std::move(optimizer), constant(0.01)},
                      classification{}, std::move(hooks),
                      trainer_config<cpu>{.seed = 5, .may_drop_samples = h.may_skip, .ranks = all ? &*all : nullptr});
        if (curvature) train->choose_kernels({2, inputs}, mode::train);
    }
};

std::vector<double> losses_of(const how& h) {
    std::vector<double> losses;
    const auto train = [&](any_communicator* world) {
        run r(h, world);
        const int rank = world ? world->rank() : 0;
        for (int step = 0; step < steps; ++step) {
            const double loss = r.train->step({part_of(step, h.ranks, rank), h.micro_batches}).loss;
            if (rank == 0) losses.push_back(loss);
            const memory_use saved = memory_pool::host().use_of(memory_category::saved);  // of this rank
            require(saved.live == 0 && saved.peak > 0, "saved after step ", step, ": ", saved.live, " bytes, at most ",
                    saved.peak);
        }
    };
    if (h.ranks == 1) {
        train(nullptr);
    } else {
        run_ranks(h.ranks, [&](threads_communicator& c) {
            any_communicator world(c.split(0, c.rank()));
            train(&world);
        });
    }
    return losses;
}

void check_near(const std::vector<double>& losses, const std::vector<double>& expected, double tolerance) {
    REQUIRE(losses.size() == expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(expected[i]).epsilon(tolerance));
}

}  // namespace

TEST_CASE("identity: ranks and micro-batches draw the masks of one rank with one", "[identity]") {
    const std::vector<double> alone = losses_of({});
    for (const int ranks : {1, 2, 3})
        for (const index_t pieces : {1, 2, 3}) {
            CAPTURE(ranks, pieces);
            check_near(losses_of({.ranks = ranks, .micro_batches = pieces}), alone, 1e-5);
            check_near(losses_of({.ranks = ranks, .micro_batches = pieces, .may_skip = ranks > 1}), alone, 1e-5);
        }
}

TEST_CASE("identity: ranks and micro-batches draw the labels of one rank with one", "[identity]") {
    const std::vector<double> alone = losses_of({.sampled_labels = true});
    for (const int ranks : {1, 2, 3})
        for (const index_t pieces : {1, 2}) {
            CAPTURE(ranks, pieces);
            check_near(losses_of({.ranks = ranks, .micro_batches = pieces, .sampled_labels = true}), alone, 1e-4);
        }
}

TEST_CASE("identity: a run that goes on keeps its masks", "[identity]") {
    const how h{.micro_batches = 2};
    const std::vector<double> expected = losses_of(h);
    run before(h, nullptr);
    for (int step = 0; step < 3; ++step)
        CHECK(before.train->step({part_of(step, 1, 0), h.micro_batches}).loss == expected[std::size_t(step)]);
    run after(h, nullptr);
    const auto copy = [](tensor<float>& to, const tensor<float>& from) {
        std::copy_n(from.data(), from.size(), to.data());
    };
    copy(after.weights.values(), before.weights.values());
    auto from = before.train->optimizer().tensors(), to = after.train->optimizer().tensors();
    for (std::size_t i = 0; i < to.size(); ++i) {
        CHECK(to[i].name == from[i].name);
        copy(to[i].t, from[i].t);
    }
    after.train->optimizer().steps() = 3;
    for (int step = 3; step < steps; ++step)
        CHECK(after.train->step({part_of(step, 1, 0), h.micro_batches}).loss == expected[std::size_t(step)]);
}

TEST_CASE("identity: each part of a batch draws the labels of the whole batch", "[identity]") {
    const random_stream random{3, 4, 5};
    constexpr index_t samples = 9, length = 2;
    for (const any_objective<>& goal :
         {any_objective<>(classification{}), any_objective<>(regression{}), any_objective<>(reconstruction{})}) {
        tensor<float> y({samples, length, classes});
        for (index_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 7) / 4;
        const tensor<float> whole = goal.sampled_gradient(y.clone(), random);
        for (const range s : {range{0, 4}, range{4, 5}, range{8, 1}}) {
            const index_t width = length * classes;
            const tensor<float> part = y.slice(s.begin * width, {s.count, length, classes});
            const tensor<float> got = goal.sampled_gradient(part.clone(), random, s.begin);
            for (index_t i = 0; i < got.size(); ++i)  // of means over the samples
                REQUIRE(got[i] * static_cast<float>(s.count) ==
                        Approx(whole[s.begin * width + i] * float(samples)).margin(1e-5));
        }
    }
}

}  // namespace cairn
