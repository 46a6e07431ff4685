#include "catch.hpp"

#include <cairn/models/resnet.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/stash/activation_memory.hpp>
#include <cairn/stash/simple_codecs.hpp>
#include <cairn/train/pipeline_plan.hpp>

#include <deque>
#include <map>

using namespace cairn;

namespace packed_training_tests {

tensor<float> images(index_t n, index_t side, index_t channels) {
    tensor<float> x({n, side, side, channels}, memory_category::data);
    const random_stream r{3, 9, 0};
    for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(r.normal(static_cast<std::uint64_t>(i)));
    return x;
}

tensor<std::int32_t> classes(index_t n) {
    tensor<std::int32_t> labels({n}, memory_category::data);
    for (index_t i = 0; i < n; ++i) labels[i] = static_cast<std::int32_t>(i * 7 % 10);
    return labels;
}

/// Gradients of one step of forward and backward, and what waited in between.
struct pass_result {
    std::vector<float> gradients;
    index_t saved = 0;
};

pass_result train_pass(sequential<float>& net, arena<float>& a, const tensor<float>& x, stash_policy<float>* policy,
                       curvature_listener* listener = nullptr) {
    saved_tensors<float> saved;
    saved.follow(policy);
    pass_context p{.repeated = true, .input_gradient = false, .curvature = listener};
    a.zero_grad();
    const index_t before = memory_pool::host().use_of(memory_category::saved).live;
    tensor<float> y = net.forward(x.share(), saved, p);
    const index_t held = memory_pool::host().use_of(memory_category::saved).live - before;
    auto loss = cross_entropy{}(std::move(y), classes(x.extent(0)));
    net.backward(std::move(loss.gradient), saved, p);
    CHECK(saved.empty());
    const auto g = a.grads().span();
    return {{g.begin(), g.end()}, held};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
    return sum;
}

/// Packs all activations by one codec.
struct all_by {
    explicit all_by(sequential<float>& net, arena<float>& a, const tensor<float>& x,
                    std::shared_ptr<const activation_codec<>> codec) {
        packer.observe(true);
        train_pass(net, a, x, &packer);
        packer.observe(false);
        for (const saved_place& at : packer.places()) packer.set(at, codec);
        packer.begin_step(1, 1);
    }
    activation_packer<> packer;
};

/// Gradients by path, after one pass of a model in these stages, each with a packer of its own, as ranks have; and what
/// waited in between. `ended`: whether packers hear of the end of forward.
struct staged_result {
    std::map<std::string, std::vector<float>> gradients;
    index_t saved = 0;
};

staged_result staged_pass(std::vector<sequential<float>> stages, const tensor<float>& x,
                          std::shared_ptr<const activation_codec<>> codec, bool ended) {
    parameter_list<float> parameters;
    for (auto& s : stages)
        for (auto& p : s.parameters()) parameters.push_back(p);
    arena<float> a(std::move(parameters), 1, arena_scope::stage);
    std::deque<activation_packer<>> packers(stages.size());
    staged_result result;
    for (const bool observes : {true, false}) {
        a.zero_grad();
        std::vector<saved_tensors<float>> saved(stages.size());
        const auto pass = [](std::size_t i) { return pass_context{.repeated = true, .input_gradient = i > 0}; };
        const index_t before = memory_pool::host().use_of(memory_category::saved).live;
        tensor<float> y = x.share();
        for (std::size_t i = 0; i < stages.size(); ++i) {
            activation_packer<>& packer = packers[i];
            packer.observe(observes);
            for (const saved_place& at : packer.places()) packer.set(at, codec, packer.record(at).masked);
            packer.begin_step(1, 1);
            saved[i].follow(&packer, {.samples = {2, x.extent(0)}});
            y = stages[i].forward(std::move(y), saved[i], pass(i));
            if (ended) packer.forward_ended();
        }
        result.saved = memory_pool::host().use_of(memory_category::saved).live - before;
        for (index_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 7) - 3;  // the gradient
        for (std::size_t i = stages.size(); i-- > 0;) y = stages[i].backward(std::move(y), saved[i], pass(i));
    }
    for (const auto& [name, p] : a.parameters()) {
        const auto g = p->grad.span();
        result.gradients[name] = {g.begin(), g.end()};
    }
    return result;
}

}  // namespace packed_training_tests

using namespace packed_training_tests;

TEST_CASE("packed activations: without a codec, the bits of keep", "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = images(6, 16, 3);
    const pass_result keep = train_pass(net, a, x, nullptr);
    activation_packer<> nothing;
    const pass_result same = train_pass(net, a, x, &nothing);
    CHECK(keep.gradients == same.gradients);
    CHECK(keep.saved == same.saved);
}

TEST_CASE("packed activations: a bound towards 0 gives the gradients of keep", "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = images(6, 16, 3);
    const pass_result keep = train_pass(net, a, x, nullptr);
    const double norm = distance(keep.gradients, std::vector<float>(keep.gradients.size()));
    double before = norm;
    for (const float bound : {1e-1f, 1e-3f, 1e-30f}) {
        all_by packed(net, a, x, std::make_shared<bounded_codec<>>(bounded_codec_config{.bound = bound}));
        const double off = distance(keep.gradients, train_pass(net, a, x, &packed.packer).gradients);
        CHECK(off < before / 100);
        before = off;
    }
    CHECK(before == 0);  // all values are escapes, in full
}

TEST_CASE("packed activations: a block of two slots is packed once, blocks that a skip holds are waited for",
          "[stash]") {
    sequential<float> body, net, inner;
    inner.add("a", conv<float>({.in = 8, .out = 8, .pad = 1}));
    body.add("b", conv<float>({.in = 8, .out = 8, .pad = 1}));
    sequential<float> shortcut;
    shortcut.add("c", conv<float>({.in = 8, .out = 8, .kernel = 1}));
    net.add("first", conv<float>({.in = 3, .out = 8, .pad = 1}));
    net.add("both", residual<float>(std::move(body), std::move(shortcut)));
    net.add("skip", concat_skip<float>(std::move(inner)));
    net.add("pool", global_average_pool<float>());
    net.add("fc", linear<float>({.in = 16, .out = 10}));
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = images(4, 12, 3);
    const pass_result keep = train_pass(net, a, x, nullptr);
    all_by packed(net, a, x, std::make_shared<bf16_codec<>>());
    const activation_packer<>& packer = packed.packer;
    const pass_result got = train_pass(net, a, x, &packed.packer);
    index_t bytes = 0;
    for (const saved_place& at : packer.places()) bytes += packer.record(at).packed_bytes;
    const index_t activation = 4 * 12 * 12 * 8 * 4;
    // In bfloat16: what "first" leaves to two convolutions, the sum that "a" reads, and what "fc" reads; not the batch,
    // which its reader holds.
    CHECK(bytes == (2 * activation + 4 * 16 * 4) / 2);
    CHECK(got.saved < keep.saved);
    CHECK(distance(keep.gradients, got.gradients) <
          1e-4 * distance(keep.gradients, std::vector<float>(keep.gradients.size())));
}

TEST_CASE("packed activations: stages have the bits of the whole model, wherever a plan may cut it", "[stash]") {
    tensor<float> tokens({3, 6}, memory_category::data);
    for (index_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<float>(i * 5 % 11);
    const auto network = [] { return resnet_cifar<float>(8); };
    const auto language = [] {
        return transformer<float>(
            {.vocab_size = 11, .max_length = 6, .embedding_dim = 8, .heads = 2, .blocks = 2, .ffn_dim = 12});
    };
    const std::vector<std::shared_ptr<const activation_codec<>>> codecs{
        std::make_shared<bounded_codec<>>(bounded_codec_config{.bound = 0.05f, .masked_bound = 0.2f}),
        std::make_shared<bounded_codec<>>(
            bounded_codec_config{.bound = 0.1f, .masked_bound = 0.5f, .normalise = true, .huffman = false}),
        std::make_shared<group_codec<>>(3), std::make_shared<bf16_codec<>>()};
    const auto check = [&](const auto& make, const tensor<float>& x, std::size_t apart) {
        sequential<float> probe = make();
        const shape one = x.shape().with(0, 1);
        std::vector<planned_unit> units = planned_units(probe, one);
        CHECK(units.size() == apart);
        join_packed(units);
        for (const auto& codec : codecs) {
            std::vector<sequential<float>> whole;
            whole.push_back(make());
            const staged_result expected = staged_pass(std::move(whole), x, codec, true);
            index_t less = 0;
            for (std::size_t u = 1; u < units.size(); ++u) {
                CAPTURE(codec->describe(), units[u].first);
                const auto of_stages = [&](bool ended) {
                    sequential<float> model = make();
                    return staged_pass(cut(model, one, {units[u].number}), x, codec, ended);
                };
                const staged_result at_once = of_stages(true), late = of_stages(false);
                CHECK(at_once.gradients == expected.gradients);
                CHECK(late.gradients == expected.gradients);
                CHECK(at_once.saved <= late.saved);
                less += at_once.saved < late.saved;
            }
            CHECK(less > 0);
        }
        return units.size();
    };
    CHECK(check(network, images(3, 8, 3), 16) == 16);
    CHECK(check(language, tokens, 2 + 2 * 8 + 2) == 2 + 2 * (8 - 3) + 2);  // attention, what follows it, gelu
}

TEST_CASE("packed activations: variance of a weight's gradient is that of the formula", "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = images(8, 16, 3);
    activation_packer<> packer;
    packer.observe(true);
    output_gradients<> heard;
    const pass_result keep = train_pass(net, a, x, &packer, &heard);
    packer.observe(false);
    CHECK(heard.of_weight.size() == 3 * 2 * 2 + 2 * 2 + 2 + 1);  // blocks, two projections, stem, fc
    for (const char* layer : {"layer1/0/conv2", "layer3/0/conv2", "layer3/0/bn1", "fc"}) {
        CAPTURE(layer);
        const saved_place at{path_hash(layer), 0};
        int weight = -1;
        for (const auto& [name, p] : a.parameters())
            if (name == concat(layer, "/weight")) weight = p->id;
        const output_gradient_statistics& of = heard.of_weight.at(weight);
        const bool norm = of.kind == rows_kind::norm_output;
        const float bound = 0.3f;
        packer.set(at, std::make_shared<bounded_codec<>>(bounded_codec_config{.bound = bound, .normalise = norm}));
        const parameter<float>& p = *a.parameters()[static_cast<std::size_t>(weight)].p;
        const index_t first = p.grad.data() - a.grads().data();
        double measured = 0;
        const int draws = norm ? 60 : 8;
        for (int draw = 0; draw < draws; ++draw) {
            packer.begin_step(11, static_cast<std::uint32_t>(draw));
            const pass_result got = train_pass(net, a, x, &packer);
            for (index_t i = first; i < first + p.shape.size(); ++i)
                measured += std::pow(double(got.gradients[static_cast<std::size_t>(i)]) -
                                         double(keep.gradients[static_cast<std::size_t>(i)]),
                                     2) /
                            draws;
        }
        const double predicted = predicted_variance(of, double(bound), norm ? 1 : packer.record(at).non_zero);
        CHECK(std::sqrt(measured / predicted) == Approx(1).margin(norm ? 0.2 : 0.15));
        packer.set(at, nullptr);
    }
}

TEST_CASE("audit: added variance comes to the share asked for; a bound made loose by hand is noticed and mended",
          "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = images(32, 16, 3);
    compressed_activations c({.bounds = {.share = 0.018}, .first_interval = 1, .interval = 1}, a);
    const auto part = [&](int number, curvature_listener* listener) {
        train_pass(net, a, x.slice(number * 16 * 16 * 16 * 3, {16, 16, 16, 3}), &c.packer(), listener);
    };
    std::vector<double> shares;
    for (std::int64_t step = 0; step < 6; ++step) {
        REQUIRE(c.due(step));
        c.packer().begin_step(5, static_cast<std::uint32_t>(step));
        shares.push_back(c.audit(part).added_share);
        c.schedule_after(step);
    }
    CHECK(shares.back() == Approx(0.018).epsilon(0.35));
    c.loosen(10);
    c.packer().begin_step(5, 77);
    const audit_report found = c.audit(part);
    CHECK(found.loose > 0);
    CHECK(found.added_share > 10 * 0.018);
    c.packer().begin_step(5, 78);
    CHECK(c.audit(part).added_share < 2 * 0.018);
}

TEST_CASE("audit: the next one follows from the state, which all ranks share, not from what one of them found",
          "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    compressed_activations c({.bounds = {.share = 0.018}, .first_interval = 20, .interval = 200}, a);
    const auto next_with = [&](double added) {
        activation_state state{.next = 40, .wait = 40};
        state.noise[path_hash("fc")] = {.own = 1, .added = added};
        c.restore(std::move(state));
        c.schedule_after(40);
        return c.state().next;
    };
    CHECK(next_with(0.018) == 40 + 80);
    CHECK(next_with(0.18) == 40 + 20);
}

TEST_CASE("packed activations: a NaN names its layer", "[stash]") {
    sequential<float> net = resnet_cifar<float>(8);
    arena<float> a(net.parameters(), 1);
    tensor<float> x = images(4, 16, 3);
    compressed_activations c({}, a);
    c.packer().begin_step(5, 0);
    c.audit([&](int number, curvature_listener* listener) {
        train_pass(net, a, x.slice(number * 2 * 16 * 16 * 3, {2, 16, 16, 3}), &c.packer(), listener);
    });
    x[7] = std::numeric_limits<float>::quiet_NaN();
    saved_tensors<float> saved;
    saved.follow(&c.packer());
    CHECK_THROWS_WITH(net.forward(x.share(), saved, {.repeated = true}),
                      Catch::Matchers::Contains("activation of layer bn1"));
}
