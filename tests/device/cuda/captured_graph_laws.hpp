#pragma once
// Laws of recorded launches (core/captured_graph.hpp), on the emulated GPU and on a real one.

#include "catch.hpp"

#include <cairn/core/captured_graph.hpp>
#include <cairn/core/device_scalar.hpp>
#include <cairn/device/grid/reduce.hpp>

#include <array>
#include <vector>

namespace cairn::captured_graph_laws {

/// Twice the sum of x + 1, by way of tensors that come and go.
template <GraphCapture D>
scalar_on<D> computed(const tensor<float, D>& x) {
    tensor<float, D> y = x.clone();
    {
        tensor<float, D> once({x.size()}, memory_category::workspace), ones = x.clone();
        for_each(functors::assign<float>{1}, ones);
        for_each(D{}, x.size(), functors::sum{}, once.data(), y.data(), ones.data());
        y = std::move(once);
    }
    tensor<float, D> small({3});
    D::set_bytes(small.data(), 0xff, small.bytes());
    tensor<double, D> result({1});
    sum_into(D{}, y.size(), y.data(), result.data());
    scalar_on<D> n(std::move(result));
    n *= 2;
    return n;
}

/// Recorded launches compute what plain ones do, and leave other tensors alone.
template <GraphCapture D>
void same_results() {
    const index_t n = 1000;
    auto x = tensor<float, D>::filled({n}, 0);
    graph_memory<D> memory;
    captured_graph<D, scalar_on<D>> step(memory);
    std::vector<tensor<float, D>> others;
    for (int i = 0; i < 8; ++i) {
        for_each(functors::assign<float>{static_cast<float>(i)}, x);
        const double got = step([&] { return computed(x); });
        // Lies where the step's tensors were, if it may.
        others.push_back(tensor<float, D>::filled({n}, static_cast<float>(100 + i)));
        CHECK(got == 2.0 * n * (i + 1));
        CHECK(step.recorded() == (i >= 2));
    }
    CHECK(step.refusal().empty());
    for (std::size_t k = 0; k < others.size(); ++k) {
        const tensor<float> values = others[k].on_host();
        for (const float v : values.span()) REQUIRE(v == static_cast<float>(100 + k));
    }
}

/// Steps of different sizes take turns in one block.
template <GraphCapture D>
void shared_memory() {
    const std::array<index_t, 2> sizes{500, 3000};
    graph_memory<D> memory;
    std::vector<captured_graph<D, scalar_on<D>>> steps;
    std::vector<tensor<float, D>> inputs, others;
    for (const index_t n : sizes) {
        steps.emplace_back(memory);
        inputs.push_back(tensor<float, D>::filled({n}, 0));
    }
    for (int i = 0; i < 6; ++i)
        for (std::size_t k = 0; k < 2; ++k) {
            for_each(functors::assign<float>{static_cast<float>(i)}, inputs[k]);
            const double got = steps[k]([&] { return computed(inputs[k]); });
            CHECK(got == 2.0 * static_cast<double>(sizes[k]) * (i + 1));
            others.push_back(tensor<float, D>::filled({sizes[1]}, 7));
        }
    for (const tensor<float, D>& t : others) {
        const tensor<float> values = t.on_host();
        for (const float v : values.span()) REQUIRE(v == 7);
    }
    CHECK((steps[0].recorded() && steps[1].recorded()));
}

/// A step's first run takes memory that stays, as a library's workspace does, between two tensors of its own. Recorded,
/// it needs no more addresses than as it was: nothing here is larger than x, of which there are three.
template <GraphCapture D>
void around_what_stays() {
    const index_t n = D::memory().extent() / index_t{sizeof(float)} + 100000;  // more than was ever used
    const auto x = tensor<float, D>::filled({n}, 1);
    tensor<float, D> stays;
    graph_memory<D> memory;
    captured_graph<D, scalar_on<D>> step(memory);
    index_t plain = 0;
    for (int i = 0; i < 5; ++i) {
        const double got = step([&] {
            tensor<float, D> y = x.clone();
            if (stays.size() == 0) stays = tensor<float, D>::filled({16}, 7);
            tensor<float, D> z = y.clone();
            for_each(D{}, n, functors::sum{}, z.data(), x.data(), y.data());
            tensor<double, D> result({1});
            sum_into(D{}, n, z.data(), result.data());
            return scalar_on<D>(std::move(result));
        });
        CHECK(got == 2.0 * static_cast<double>(n));
        CHECK(step.recorded() == (i >= 2));
        if (i == 1) plain = D::memory().extent();
    }
    CHECK(static_cast<double>(D::memory().extent()) <= 1.01 * static_cast<double>(plain));
    const tensor<float> kept = stays.on_host();
    for (const float v : kept.span()) CHECK(v == 7);
}

/// Work that has to be waited for runs unrecorded.
template <GraphCapture D>
void waiting_is_refused() {
    auto x = tensor<float, D>::filled({10}, 3);
    graph_memory<D> memory;
    captured_graph<D, scalar_on<D>> step(memory);
    const index_t before = D::memory().use_of(memory_category::activations).live;
    for (int i = 0; i < 5; ++i) {
        const double got = step([&] {
            const double first = computed(x);
            for_each(functors::assign<float>{static_cast<float>(first)}, x);
            return computed(x);
        });
        for_each(functors::assign<float>{3}, x);
        CHECK(got == 2.0 * 10 * (80 + 1));
    }
    CHECK_FALSE(step.recorded());
    CHECK_FALSE(step.refusal().empty());
    // nothing is kept for a step that cannot be recorded
    CHECK(D::memory().use_of(memory_category::activations).live == before);
    CHECK(pool_instead<D> == nullptr);
}

}  // namespace cairn::captured_graph_laws
