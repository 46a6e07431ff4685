// Plans that mix keeping, recomputing and packing: which one the planner takes, what a step under it then needs, and
// that bounds and plan go through text.

#include "catch.hpp"

#include <cairn/models/resnet.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/train/plan_activations.hpp>

namespace planned_training_tests {

using namespace cairn;

namespace {

constexpr index_t side = 16, batch = 32, part = 4;

/// A network with its batch, and passes over a part of it.
struct problem {
    sequential<float> net = resnet_cifar<float>(14);
    arena<float> weights{net.parameters(), 1};
    tensor<float> x{{batch, side, side, 3}, memory_category::data};
    tensor<std::int32_t> labels{{batch}, memory_category::data};

    problem() {
        const random_stream r{3, 9, 0};
        for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(r.normal(static_cast<std::uint64_t>(i)));
        for (index_t i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i * 7 % 10);
    }

    /// Gradients of samples [first, first + n); what waited for backward.
    index_t pass(index_t first, index_t n, stash_policy<float>* policy, curvature_listener* listener = nullptr) {
        saved_tensors<float> saved;
        saved.follow(policy);
        const pass_context p{.repeated = true, .input_gradient = false, .curvature = listener};
        const index_t before = memory_pool::host().use_of(memory_category::saved).live;
        tensor<float> y = net.forward(x.slice(first * side * side * 3, {n, side, side, 3}), saved, p);
        const index_t held = memory_pool::host().use_of(memory_category::saved).live - before;
        auto loss = cross_entropy{}(std::move(y), labels.slice(first, {n}));
        net.backward(std::move(loss.gradient), saved, p);
        return held;
    }
    void audit(compressed_activations<>& c, std::int64_t step) {
        c.packer().begin_step(5, static_cast<std::uint32_t>(step));
        c.audit([&](int number, curvature_listener* l) { pass(number * part, part, &c.packer(), l); },
                [&](bool on) {
                    if (c.plan()) on ? apply(net, *c.plan()) : net.recompute({});
                });
        c.schedule_after(step);
    }
    stash_plan plan(compressed_activations<>& c, index_t limit) {
        plan_activations(c, net, x.shape(), part, limit, {}, [&](index_t n) {
            pass(0, n, &c.packer());
            weights.zero_grad();
        });
        return *c.plan();
    }
    /// Highest bytes of the pool in a step of the whole batch, and what waited for backward.
    std::pair<double, double> step(compressed_activations<>& c) {
        c.packer().begin_step(5, 1000);
        const memory_pool::peak_watch highest(memory_pool::host());
        const index_t held = pass(0, batch, &c.packer());
        weights.zero_grad();
        return {double(highest.total()), double(held)};
    }
};

}  // namespace

TEST_CASE("planned activations: the peak of a step is the one that was predicted, within any limit", "[stash]") {
    problem p;
    compressed_activations keep({}, p.weights);
    keep.packer().keep_all(true);
    const int threads_before = threads();
    set_threads(1);  // workspaces of several are there at once or not, which is much of a small network's memory
    const auto [all, saved] = p.step(keep);
    double work = 0;
    for (const double share : {1.03, 0.7, 0.5}) {
        CAPTURE(share, all, saved);
        compressed_activations c({.plans = true}, p.weights);
        p.audit(c, 0);
        const auto limit = static_cast<index_t>(share * all);
        const stash_plan plan = p.plan(c, limit);
        CAPTURE(concat(plan));
        const auto [peak, held] = p.step(c);
        CHECK(peak == Approx(double(plan.predicted_peak)).epsilon(0.02));
        CHECK(peak <= double(limit));
        CHECK(held <= saved);
        if (share > 1) CHECK(plan.added_work == 0);
        CHECK(plan.added_work >= work * 0.5);  // a smaller limit costs more; times are measured
        work = plan.added_work;
        p.net.recompute({});
    }
    compressed_activations c({.plans = true}, p.weights);
    p.audit(c, 0);
    CHECK_THROWS_WITH(p.plan(c, static_cast<index_t>(0.02 * all)),
                      Catch::Contains("no plan fits") && Catch::Contains(" more;"));
    set_threads(threads_before);
}

TEST_CASE("planned activations: the planner takes what costs least", "[stash]") {
    problem p;
    const int layers = p.net.size();
    const index_t keep = predicted_peak(p.net, p.x.shape());
    const auto plan_with = [&](double work_of_first, double work_of_second) {
        packing_costs costs(static_cast<std::size_t>(layers));
        for (auto& of : costs) of = {{1e5, 1e4, work_of_first}, {1e5, 5e4, work_of_second}};
        return stash_planner<float, cpu>(p.net, p.x.shape(), costs).cheapest_plan(keep * 9 / 10);
    };
    const auto uses = [](const stash_plan& plan, stash what, int codec) {
        return std::ranges::any_of(plan.layers, [&](const auto& e) { return e.what == what && e.codec == codec; });
    };
    CHECK(uses(plan_with(1, 1e12), stash::pack, 0));
    CHECK_FALSE(uses(plan_with(1e15, 1), stash::pack, 0));
    const stash_plan expensive = plan_with(1e15, 1e15);
    CHECK(uses(expensive, stash::recompute, -1));
    CHECK_FALSE(uses(expensive, stash::pack, 0));
    CHECK_FALSE(uses(expensive, stash::pack, 1));
}

TEST_CASE("planned activations: bounds and plan go through text, to the same bits", "[stash]") {
    for (const bool plans : {false, true}) {
        CAPTURE(plans);
        problem p;
        compressed_activations c({.plans = plans}, p.weights);
        p.audit(c, 0);
        if (plans) p.plan(c, memory_pool::host().total().live + (4 << 20));
        p.audit(c, 20);
        const auto gradients = [&](compressed_activations<>& by) {
            by.packer().begin_step(7, 21);
            p.weights.zero_grad();
            p.pass(0, 8, &by.packer());
            const auto g = p.weights.grads().span();
            return std::vector<float>(g.begin(), g.end());
        };
        const std::vector<float> expected = gradients(c);
        compressed_activations other({.plans = plans}, p.weights);
        CHECK_FALSE(gradients(other) == expected);  // it knows no bounds yet
        activation_state another = c.state();
        another.noise[1] = {2, 3, 4};
        for (bounded_place& place : another.places) place.bound = 100;
        const std::string texts[] = {text_of(c), nlohmann::json(another).dump()};  // the first one's counts
        restore(other, texts);
        CHECK(other.state().noise.size() == c.state().noise.size() + 1);
        CHECK(gradients(other) == expected);
        CHECK(other.due(59) == c.due(59));
        CHECK(other.due(60) == c.due(60));
        const std::string damaged[] = {"{\"first\": 3", texts[0].substr(2)};
        for (const std::string& text : damaged)
            CHECK_THROWS_WITH(restore(other, std::span(&text, 1)), Catch::Contains("is damaged"));
    }
}

TEST_CASE("planned activations: a segment's packed input is run again, whose tensors are not packed", "[stash]") {
    problem p;
    compressed_activations c({.plans = true}, p.weights);
    p.audit(c, 0);
    const auto exact = [&] {
        p.weights.zero_grad();
        p.pass(0, 8, nullptr);
        const auto g = p.weights.grads().span();
        return std::vector<float>(g.begin(), g.end());
    }();
    stash_plan plan;
    for (int i = 0; i < p.net.size(); ++i) plan.layers.push_back({p.net.name(i), stash::keep, -1, -1});
    for (int i = 4; i < 7; ++i) plan.layers[static_cast<std::size_t>(i)] = {p.net.name(i), stash::recompute, 0, 0};
    c.follow(plan);
    apply(p.net, plan);
    for (std::int64_t step = 1; step < 5; ++step) p.audit(c, step);
    c.packer().observe(true);
    p.pass(0, 2, &c.packer());
    c.packer().observe(false);
    CHECK(
        std::ranges::none_of(c.packer().places(), [](const saved_place& at) { return at.layer >= 4 && at.layer < 7; }));
    CHECK(std::ranges::any_of(c.packer().places(), [](const saved_place& at) { return at.layer < 0 && at.slot == 4; }));
    p.weights.zero_grad();
    c.packer().begin_step(1, 2);
    p.pass(0, 8, &c.packer());
    double off = 0, size = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        off += std::pow(double(p.weights.grads().span()[i]) - double(exact[i]), 2);
        size += std::pow(double(exact[i]), 2);
    }
    CHECK(off > 0);
    CHECK(off < size);
    CHECK(c.last().added_share < 0.04);
    int packed = 0;
    for (const auto& e : c.last().layers) packed += e.ratio > 1;
    CHECK(packed == 1);
}

}  // namespace planned_training_tests
