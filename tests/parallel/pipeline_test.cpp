// Lists of actions on one stage: printing and parsing, and the same gradients whatever the order.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/models/lenet.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/parallel/pipeline/execute.hpp>

#include <set>
#include <string>
#include <vector>

namespace cairn {

namespace {

using model = sequential<double>;

model network() {
    model net;
    net.add("conv", conv<double>({.in = 1, .out = 3, .kernel = {3, 3}, .pad = {1, 1}}));
    net.add("relu", activation_layer<double>(activation::relu));
    net.add("flatten", flatten<double>());
    net.add("first", linear<double>({.in = 3 * 36, .out = 7}));
    net.add("drop", dropout<double>(0.3));
    net.add("tanh", activation_layer<double>(activation::tanh));
    net.add("second", linear<double>({.in = 7, .out = 4}));
    return net;
}

tensor<double> inputs(int micro_batch) {
    const random_stream random{3, 1, static_cast<std::uint32_t>(micro_batch)};
    tensor<double> x({2 + micro_batch % 2, 6, 6, 1});
    for (index_t i = 0; i < x.size(); ++i) x[i] = random.normal(static_cast<std::uint64_t>(i));
    return x;
}

struct listening final : gradient_listener {
    void added(std::span<const int> parameters) override {
        told.insert(told.end(), parameters.begin(), parameters.end());
    }
    std::vector<int> told;
};

struct outcome {
    std::vector<double> gradients;
    std::vector<int> told;    // of the listener
    std::string before_last;  // actions that were begun before the hook was called
};

outcome run(const std::string& actions) {
    model net = network();
    arena<double> weights(net.parameters(), 5);
    std::vector<stage<model>> stages;
    stage<model>& whole = stages.emplace_back(net, weights);
    listening listener;
    whole.listener = &listener;
    outcome o;
    whole.before_last_backward = [&] {
        CHECK(listener.told.empty());
        o.before_last += "!";
    };
    weights.zero_grad();
    const index_t saved_before = memory_pool::host().use_of(memory_category::saved).live;
    const auto gradient = [](int m, tensor<double> y) {
        tensor<std::int32_t> labels({y.extent(0)});
        for (index_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>((i + m) % 4);
        return cross_entropy{}(std::move(y), labels).gradient;
    };
    const auto input = [](int m) {
        return stage_input<double, cpu>{inputs(m),
                                        {.random = {.seed = 7, .first_sample = 10 * m}, .input_gradient = false}};
    };
    execute(parse_actions(actions), stages, gradient, input);
    o.gradients.assign(weights.grads().span().begin(), weights.grads().span().end());
    o.told = listener.told;
    CHECK(memory_pool::host().use_of(memory_category::saved).live == saved_before);
    return o;
}

}  // namespace

TEST_CASE("actions: printed and parsed as PyTorch prints them", "[pipeline]") {
    const std::string text = "0F0 0I0 0W0 3B12";
    const action_list list = parse_actions(text);
    REQUIRE(list.size() == 4);
    CHECK(list[3] == action{action_kind::backward, 3, 12});
    CHECK(to_string(list) == text);
    CHECK(concat(action{action_kind::forward, 0, 2}) == "0F2");
    CHECK(parse_actions("").empty());
    for (const std::string wrong : {"F0", "0X0", "0F", "0F0x", "-1F0", "0F-1"})
        CHECK(test::contains(test::message_of([&] { parse_actions("0F0 " + wrong); }), "action number 1, \"" + wrong));
}

TEST_CASE("actions: gradient accumulation has one micro-batch in flight", "[pipeline]") {
    CHECK(to_string(gradient_accumulation(3)) == "0F0 0B0 0F1 0B1 0F2 0B2");
    CHECK(gradient_accumulation(0).empty());
}

TEST_CASE("execute: any order of the actions gives the gradients of accumulation", "[pipeline]") {
    const outcome expected = run(to_string(gradient_accumulation(3)));
    CHECK(expected.told.size() == 6);  // weights and biases of three layers, of the last micro-batch alone
    for (const char* actions : {"0F0 0F1 0F2 0B0 0B1 0B2", "0F0 0I0 0W0 0F1 0I1 0W1 0F2 0I2 0W2",
                                "0F0 0F1 0I0 0F2 0I1 0W0 0W1 0I2 0W2", "0F0 0F1 0I0 0B1 0W0 0F2 0B2"}) {
        CAPTURE(actions);
        const outcome got = run(actions);
        // Bits, where gradients are added in the order of the micro-batches.
        if (std::string(actions).find("0B1 0W0") == std::string::npos) CHECK(got.gradients == expected.gradients);
        for (std::size_t i = 0; i < got.gradients.size(); ++i)
            REQUIRE(got.gradients[i] == Approx(expected.gradients[i]).epsilon(1e-12).margin(1e-14));
        CHECK(std::set<int>(got.told.begin(), got.told.end()) ==
              std::set<int>(expected.told.begin(), expected.told.end()));
        CHECK(got.told.size() == expected.told.size());
        CHECK(got.before_last == "!");
    }
}

TEST_CASE("execute: what cannot run is refused", "[pipeline]") {
    CHECK(test::contains(test::message_of([] { run("1F0"); }),
                         "action 1F0: this rank has 1 of 1 stages, and not this one"));
    CHECK(test::contains(test::message_of([] { run("0F0 0B1"); }), "backward of micro-batch 1 without its forward"));
    CHECK(test::contains(test::message_of([] { run("0F0 0B0 0B0"); }), "backward"));
}

}  // namespace cairn
