// N ranks on batch B take the steps of one rank on batch B.

#include "parallel/distributed.hpp"

#include "catch.hpp"

#include <cairn/comm/counting_communicator.hpp>

namespace distributed {

namespace {

constexpr double rounding = 1e-9;
const sgd momentum{{.momentum = 0.9, .weight_decay = 1e-3}};

struct fixed_kernels {
    fixed_kernels() { autotune_cache::global().set_policy(autotune_policy::first); }
};

}  // namespace

TEST_CASE("data parallel: LeNet on 2, 3 and 4 ranks is LeNet on one", "[parallel]") {
    const fixed_kernels same;
    const problem p = lenet_problem();
    const outcome alone = train_alone(p, momentum);
    for (const int ranks : {1, 2, 3, 4}) {
        CHECK(difference(train_together(p, momentum, ranks, {}), alone) < rounding);
        CHECK(difference(train_together(p, momentum, ranks, {.gradients = {.bucket_bytes = 20'000, .overlap = false}}),
                         alone) < rounding);
    }
}

TEST_CASE("data parallel: ResNet-18 with the batch norm of the whole batch is ResNet-18 on one rank", "[parallel]") {
    const fixed_kernels same;
    const problem p = resnet18_problem();
    const outcome alone = train_alone(p, momentum);
    for (const int ranks : {2, 3, 4}) {
        world::config sync{.gradients = {.bucket_bytes = 1 << 20}, .sync_batch_norm = true};
        CHECK(difference(train_together(p, momentum, ranks, sync), alone) < rounding);
    }
}

TEST_CASE("data parallel: ResNet-18 with each rank's own batch norm is one rank with as many micro-batches",
          "[parallel]") {
    const fixed_kernels same;
    problem p = resnet18_problem();
    p.sample = {16, 16, 3};  // enough values for a variance in every layer
    p.samples = 24;
    p.steps = 2;
    for (const int ranks : {2, 3, 4})
        CHECK(difference(train_together(p, momentum, ranks, {}), train_alone(p, momentum, ranks)) < rounding);
}

TEST_CASE("data parallel: sharded optimizers take the same steps", "[parallel][zero]") {
    const fixed_kernels same;
    const problem p = lenet_problem();
    const adam by_element{{.weight_decay = 1e-3}};
    const lamb by_layer{{.weight_decay = 1e-3}};
    const outcome adam_alone = train_alone(p, by_element), lamb_alone = train_alone(p, by_layer);
    for (const int ranks : {2, 3, 4})
        for (const int stage : {1, 2}) {
            const world::config zero{.gradients = {.bucket_bytes = 30'000}, .zero_stage = stage};
            CHECK(difference(train_together(p, by_element, ranks, zero), adam_alone) < rounding);
            CHECK(difference(train_together(p, by_layer, ranks, zero, true), lamb_alone) < rounding);
        }
}

TEST_CASE("data parallel: ResNet-18, sharded, with the batch norm of the whole batch", "[parallel][zero]") {
    const fixed_kernels same;
    problem p = resnet18_problem();
    p.steps = 3;
    const outcome alone = train_alone(p, momentum);
    for (const int stage : {1, 2}) {
        const world::config c{.gradients = {.bucket_bytes = 1 << 20}, .sync_batch_norm = true, .zero_stage = stage};
        CHECK(difference(train_together(p, momentum, 3, c), alone) < rounding);
    }
}

TEST_CASE("data parallel: buffers of all layers travel as one message", "[parallel]") {
    run_ranks(3, [](threads_communicator& threads) {
        using counter = counting_communicator<threads_communicator>;
        counter c(threads);
        channel<counter> over(c);
        const auto mine = static_cast<double>(c.rank());
        tensor<double> a = tensor<double>::filled({2}, mine), b = tensor<double>::filled({5}, 10 * mine), none({0});
        const buffer_list<double> buffers{{"a", &a}, {"none", &none}, {"b", &b}};
        arena<double> weights({}, 1);
        average_buffers(over, buffers);
        require(std::ranges::count(a.span(), 1.0) == 2 && std::ranges::count(b.span(), 10.0) == 5, "means");
        a = tensor<double>::filled({2}, mine + 1), b = tensor<double>::filled({5}, mine + 7);
        const std::int64_t before = over.device.counts().messages;
        broadcast_values(over, weights, buffers);
        require(std::ranges::count(a.span(), 1.0) == 2 && std::ranges::count(b.span(), 7.0) == 5, "rank 0's values");
        require(over.device.counts().messages - before == (c.rank() == 0 ? 2 : 0), "one message to each rank");
    });
}

TEST_CASE("data parallel: a rank without samples takes part", "[parallel]") {
    const fixed_kernels same;
    problem p = lenet_problem();
    p.batch = 8;
    p.samples = 10;  // the second batch has two samples
    CHECK(difference(train_together(p, momentum, 4, {}), train_alone(p, momentum)) < rounding);
}

TEST_CASE("data parallel: a gradient that is not finite stops all ranks with one message", "[parallel]") {
    std::vector<std::string> told(3);
    std::string name;
    run_ranks(3, [&](threads_communicator& c) {
        auto net = lenet<double>();
        arena<double> weights(net.parameters(), 1);
        world all(c, weights, {});
        all.gradients.begin(4);
        if (c.rank() == 1) weights.parameters()[2].p->grad[5] = std::numeric_limits<double>::quiet_NaN();
        if (c.rank() == 0) name = weights.parameters()[2].name;
        try {
            synchronise(all.gradients, all.agree, {.samples = 1}, 4);
        } catch (const error& e) {
            told[static_cast<std::size_t>(c.rank())] = e.what();
        }
    });
    for (const std::string& message : told)
        CHECK_THAT(message, Catch::Contains("step 4") && Catch::Contains("rank 1 of 3") && Catch::Contains(name) &&
                                Catch::Contains("element 5 is nan"));
}

TEST_CASE("data parallel: or all ranks skip the step together", "[parallel]") {
    run_ranks(3, [&](threads_communicator& c) {
        auto net = lenet<double>();
        arena<double> weights(net.parameters(), 1);
        world all(c, weights, {.agree = {.non_finite = non_finite_policy::skip}});
        all.gradients.begin(0);
        if (c.rank() == 2) weights.parameters()[0].p->grad[0] = std::numeric_limits<double>::infinity();
        require(synchronise(all.gradients, all.agree, {.samples = 1}, 0).skip == 1, "the step is not skipped");
        weights.zero_grad();
        all.gradients.begin(1);
        const step_totals t =
            synchronise(all.gradients, all.agree, {.loss = 2, .samples = 1, .stop = c.rank() == 1 ? 1.0 : 0.0}, 1);
        require(t.skip == 0 && t.loss == 6 && t.samples == 3 && t.stop == 1, "totals are ", t.skip, ' ', t.loss, ' ',
                t.samples, ' ', t.stop);
    });
}

}  // namespace distributed
