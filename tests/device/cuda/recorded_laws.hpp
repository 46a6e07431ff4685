#pragma once
// Recorded training steps (train/graph_recorder.hpp) have the bits of steps that are launched one by one, on the
// emulated GPU and on a real one. The device's products and convolutions are included before.

#include "device/cuda/optimizer_laws.hpp"
#include "device/cuda/training_laws.hpp"

#include <cairn/core/captured_graph.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/train/trainer.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn::recorded_laws {

using optimizer_laws::check_bits;

/// Values, launched one by one and recorded, after updates at a rate that changes; with gradients, or a loss, that are
/// not finite in between.
template <RecordsSteps D>
void updates() {
    optimizer_laws::with_each([](const auto& o) {
        CAPTURE(o.name);
        small_model<float, D> model, other;
        bound_optimizer plain(o, *model.memory), ahead(o, *other.memory);
        CHECK(ahead.capturable());
        launch_parameter_buffer<D> numbers;
        graph_memory<D> memory;
        captured_graph<D, device_scalar<D>> update(memory);
        auto loss = tensor<double, D>::filled({1}, 1);
        const std::vector<device_scalar<D>> losses{device_scalar<D>(loss.share())};
        const auto norm_at = [&](double rate) -> double {
            numbers.collect();
            numbers.template place<std::uint32_t>(7);  // of somebody else
            const std::size_t from = numbers.position();
            ahead.collect(rate, numbers);
            numbers.send();
            return update([&] {
                numbers.launch(from);
                ahead.launch(numbers, losses);
                return ahead.norm_of_update();
            });
        };
        const auto check_state = [&] {
            check_bits(other.memory->values(), model.memory->values());
            const auto got = ahead.flat_state(), expected = plain.flat_state();
            for (std::size_t i = 0; i < got.size(); ++i) check_bits(got[i].t, expected[i].t);
        };
        for (int t = 1; t <= 7; ++t) {
            const double rate = 0.02 * t;
            model.set_gradients(t), other.set_gradients(t);
            if (t == 5) {
                for_each(functors::assign<double>{std::numeric_limits<double>::infinity()}, loss);
                CHECK_FALSE(std::isfinite(norm_at(rate)));
                check_state();
                for_each(functors::assign<double>{2}, loss);
                auto broken = other.owned[7]->grad.on_host();
                broken[32] = std::numeric_limits<float>::quiet_NaN();
                other.set(other.owned[7]->grad, broken);
                const double norm = norm_at(rate);
                CHECK_THROWS_WITH(ahead.finish(norm), Catch::Contains("step 5: gradient of p7 (33)"));
                check_state();
                CHECK(ahead.steps() == 4);
                other.set_gradients(t);
            }
            CHECK(ahead.finish(norm_at(rate)) == plain.step(rate));
            check_state();
            CHECK(update.recorded() == (t >= 3));
        }
        CHECK_THROWS_WITH(ahead.collect(-1, numbers), Catch::Contains("learning rate"));
        CHECK(ahead.steps() == plain.steps());
    });
}

/// Places are what they were, or an error; steps send as much as the first one.
template <RecordsSteps D>
void numbers_ahead() {
    launch_parameter_buffer<D> numbers;
    const auto place_all = [&](double a, float b) {
        numbers.template place<std::uint32_t>(3);
        const double* const there = numbers.place(a);
        numbers.place(b);
        return there;
    };
    auto sums = tensor<double, D>::zeros({20});
    for (int i = 0; i < 20; ++i) {  // none of them is waited for
        numbers.collect();
        place_all(i + 0.5, 1);
        numbers.send();
        numbers.launch();
        const double* const there = place_all(-1, -1);
        CHECK(reinterpret_cast<std::uintptr_t>(there) % alignof(double) == 0);
        for_each(D{}, 1, functors::add{}, sums.data() + i, there);
    }
    const tensor<double> got = sums.on_host();
    for (index_t i = 0; i < 20; ++i) CHECK(got[i] == static_cast<double>(i) + 0.5);
    CHECK_THROWS_WITH(numbers.place(1.0), Catch::Contains("other launches than last time"));
    numbers.collect();
    CHECK_THROWS_WITH(numbers.send(), Catch::Contains("0 bytes, but"));
}

/// Host code among recorded launches is called at its place, each time, and not while they are recorded.
template <GraphCapture D>
void host_callback_in_graph() {
    auto x = tensor<float, D>::filled({100}, 0);
    tensor<float, D> seen({2});
    int called = 0;
    graph_memory<D> memory;
    captured_graph<D, device_scalar<D>> step(memory);
    for (int i = 1; i <= 5; ++i) {
        const double sum = step([&](const host_callback& host) {
            host([&] { called += 100; });
            for_each(functors::assign<float>{1}, x);
            host([&] { ++called, D::copy_within(seen.data(), x.data(), sizeof(float)); });
            const tensor<float, D> more = x.clone();
            for_each(D{}, x.size(), functors::add{}, x.data(), more.data());
            host([&] { ++called, D::copy_within(seen.data() + 1, x.data(), sizeof(float)); });
            tensor<double, D> total({1});
            sum_into(D{}, x.size(), x.data(), total.data());
            return device_scalar<D>(std::move(total));
        });
        CHECK(sum == 200);
        CHECK(called == 102 * i);
        const tensor<float> got = seen.on_host();
        CHECK((got[0] == 1 && got[1] == 2));
        CHECK(step.recorded() == (i >= 3));
        if (step.recorded()) CHECK(step.graphs() == 3);
    }
    CHECK(step.refusal().empty());
}

struct how {
    index_t micro_batches = 1;
    bool graph = false;
    bool spoiled = false;  // step 7 gets an input that is not finite first
};

struct outcome {
    std::vector<double> losses;
    std::vector<tensor<float>> state;
    std::string said;
    std::int64_t recorded = 0;
    index_t graphs = 0, waits = 0;  // waits: of the last step
};

/// Samples for step s: every fourth batch is short. Two sets of buffers take turns.
inline index_t samples_of(int s) { return s % 4 == 3 ? 5 : 6; }

template <class D>
class buffers {
public:
    /// Batch of step s, in the set that is its turn.
    device_batch<D> bring(int s, bool spoiled) {
        const index_t n = samples_of(s);
        tensor<float> x = kernel_laws::drawn<float>({n, 3, 10}, static_cast<std::uint32_t>(400 + s));
        if (spoiled) x[17] = std::numeric_limits<float>::quiet_NaN();
        tensor<std::int32_t> labels({n});
        for (index_t i = 0; i < n; ++i) labels[i] = static_cast<std::int32_t>((i + s) % 5);
        auto& [its_x, its_labels] = sets_[static_cast<std::size_t>(s % 2)];
        D::copy_to_device(its_x.data(), x.data(), x.bytes());
        D::copy_to_device(its_labels.data(), labels.data(), labels.bytes());
        batch host;
        host.labels = std::move(labels);
        host.count = host.global_count = n;
        return {std::move(host), {its_x.slice(0, {n, 3, 10}), its_labels.slice(0, {n}), {}}};
    }

private:
    struct set {
        tensor<float, D> x = tensor<float, D>({6, 3, 10});
        tensor<std::int32_t, D> labels = tensor<std::int32_t, D>({6});
    };
    std::array<set, 2> sets_;
};

/// 14 steps of a network with dropout and batch normalisation, under a rate that warms up and falls.
template <RecordsSteps D, class O>
outcome trained(const O& optimizer, const how& h) {
    auto model = training_laws::of_rows::network<float, D>(5);
    arena<float, D> weights(model.parameters(), 3);
    trainer<D> t({model, weights},
                 {bound_optimizer<O, float, D>(optimizer, weights), warmup(5, 0.001, cosine(14, 0.02))},
                 classification{{{}, {.label_smoothing = 0.1}}}, {}, {.seed = 9, .cuda_graph = h.graph});
    outcome o;
    buffers<D> batches;
    const auto keep_state = [&] {
        std::vector<tensor<float>> state;
        state.push_back(weights.values().on_host());
        for (const auto& [name, held] : t.optimizer().tensors()) state.push_back(held.on_host());
        return state;
    };
    for (int s = 0; s < 14; ++s) {
        if (h.spoiled && s == 6) {
            const auto before = keep_state();
            try {
                t.step({batches.bring(s, true), h.micro_batches});
            } catch (const error& e) {
                o.said = e.what();
            }
            const auto after = keep_state();
            for (std::size_t i = 0; i < before.size(); ++i) check_bits(after[i], before[i]);
            CHECK(t.steps() == s);
        }
        if (s == 6)  // running statistics have seen the spoiled batch
            for (const auto& [name, b] : model.buffers()) for_each(functors::assign<float>{0.5f}, *b);
        const auto b = batches.bring(s, false);
        if constexpr (requires { D::waits.load(); }) o.waits = D::waits;
        o.losses.push_back(t.step({b, h.micro_batches}).loss);
        if constexpr (requires { D::waits.load(); }) o.waits = D::waits - o.waits;
    }
    CHECK(t.steps() == 14);
    CHECK(t.recorder().refusal().empty());
    o.recorded = t.recorder().launched();
    o.graphs = t.recorder().graphs();
    o.state = keep_state();
    for (const auto& [name, b] : model.buffers()) o.state.push_back(b->on_host());
    return o;
}

inline void check_alike(const outcome& got, const outcome& expected) {
    CHECK(got.losses == expected.losses);
    REQUIRE(got.state.size() == expected.state.size());
    for (std::size_t i = 0; i < got.state.size(); ++i) {
        CAPTURE(i);
        check_bits(got.state[i], expected.state[i]);
    }
}

/// Whole steps, of one micro-batch and of several.
template <RecordsSteps D>
void whole_steps() {
    const auto check = [](const auto& o, index_t micro_batches) {
        CAPTURE(o.name, micro_batches);
        const auto plain = trained<D>(o, {.micro_batches = micro_batches}),
                   recorded = trained<D>(o, {.micro_batches = micro_batches, .graph = true});
        check_alike(recorded, plain);
        // Of each set of buffers two whole batches are launched one by one; short batches, in the second set alone,
        // two.
        CHECK(recorded.recorded == 14 - 4 - 2);
        CHECK(plain.recorded == 0);
        CHECK(recorded.graphs == 1);
        CHECK(recorded.waits == 0);
        const auto spoiled = trained<D>(o, {.micro_batches = micro_batches, .graph = true, .spoiled = true});
        CHECK_THAT(spoiled.said, Catch::Contains("step 7: loss is nan") && Catch::Contains("the input batch holds"));
        check_alike(spoiled, plain);
    };
    check(sgd{{.weight_decay = 0.01, .nesterov = true}}, 1);
    check(clipped{adamw{}, by_norm{0.5}}, 3);
    check(clipped{lars{{.trust_coefficient = 0.02}}, by_norm{2}}, 1);
    check(lamb{}, 4);
}

template <RecordsSteps D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"numbers ahead of launches", numbers_ahead<D>},
                                       {"host code among launches", host_callback_in_graph<D>},
                                       {"updates", updates<D>},
                                       {"whole steps", whole_steps<D>}};
    return laws;
}

}  // namespace cairn::recorded_laws
