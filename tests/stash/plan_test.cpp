#include "nn/layer_laws.hpp"
#include "sanitized.hpp"

#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/stash/plan.hpp>
#include <cairn/stash/recompute.hpp>

#include <sstream>

namespace cairn {

namespace {

/// Peak activation bytes of one training step as train/trainer.hpp does it, with the prediction's gradient over the
/// prediction.
index_t measured_peak(sequential<float>& net, const arena<float>&, const tensor<float>& x) {
    const index_t before = laws::live_activations();
    memory_pool::host().reset_peaks();
    saved_tensors<float> saved;
    pass_context p;
    p.input_gradient = false;
    tensor<float> y = net.forward(x.share(), saved, p);
    net.backward(std::move(y), saved, p);
    CHECK(saved.empty());
    return memory_pool::host().activations().peak - before;
}

/// saves: whether recomputation can lower the peak much.
void check_plans(const char* name, sequential<float> net, const shape& in, bool saves = true) {
    autotune_cache::global().set_policy(autotune_policy::first);
    arena<float> a(net.parameters(), 1);
    const tensor<float> x = laws::numbers<float>(in, 1, 0, memory_category::data);
    stash_planner<float> planner(net, in);
    const stash_plan keep = planner.keep_plan(), root = planner.sqrt_plan(), smallest = planner.smallest_plan();
    const stash_plan half = planner.cheapest_plan((keep.predicted_peak + smallest.predicted_peak) / 2);
    for (const auto& [what, plan] :
         {std::pair{"keep", &keep}, {"sqrt", &root}, {"smallest", &smallest}, {"half", &half}}) {
        apply(net, *plan);
        const index_t measured = measured_peak(net, a, x);
        std::ostringstream text;
        text << *plan;
        INFO(name << ", " << what << ": predicted " << plan->predicted_peak << ", measured " << measured << '\n'
                  << text.str());
        CHECK(static_cast<double>(measured) == Approx(static_cast<double>(plan->predicted_peak)).epsilon(0.02));
    }
    CHECK(smallest.predicted_peak <= std::min(root.predicted_peak, keep.predicted_peak));
    CHECK(half.predicted_peak <= (keep.predicted_peak + smallest.predicted_peak) / 2);
    CHECK(half.recomputed_flops <= smallest.recomputed_flops);
    CHECK(keep.recomputed_flops == 0);
    if (saves) {
        CHECK(10 * root.predicted_peak < 7 * keep.predicted_peak);
        CHECK(half.recomputed_flops < smallest.recomputed_flops);
    }
}

}  // namespace

TEST_CASE("recomputation plans: measured peak is the predicted one", "[stash]") {
    SECTION("ResNet-20") { check_plans("ResNet-20", resnet_cifar(20), {32, 32, 32, 3}); }
    SECTION("ResNet-18") {
        check_plans("ResNet-18", resnet(18, resnet_config::stem::cifar, 10), {test::sanitized ? 2 : 8, 32, 32, 3});
    }
    // Its peak is the first convolution's output and gradient, which are not kept.
    SECTION("CosmoFlow") { check_plans("CosmoFlow", cosmoflow({.size = 32}), {2, 32, 32, 32, 4}, false); }
    SECTION("CosmoFlow, normalised") {
        check_plans("CosmoFlow, normalised", cosmoflow({.size = 32, .normalise = true}), {2, 32, 32, 32, 4}, false);
    }
}

TEST_CASE("recomputation plans: measured peak is the predicted one, ResNet-50", "[stash][long]") {
    const index_t size = test::sanitized ? 32 : 224;
    check_plans("ResNet-50", resnet(50), {2, size, size, 3});
}

namespace {

/// Peak of the best of all ways to cut `net` into kept and recomputed segments.
index_t best_of_all(sequential<float>& net, const shape& in) {
    const int n = net.size();
    index_t best = predicted_peak(net, in);
    int ways = 1;
    for (int i = 0; i < n; ++i) ways *= 3;
    for (int way = 0; way < ways;
         ++way) {  // for each layer: kept, first of a segment, or in the segment of the one before
        std::vector<sequential<float>::segment> segments;
        bool valid = true, open = false;
        for (int i = 0, rest = way; i < n && valid; ++i, rest /= 3) {
            if (rest % 3 == 2 && !open) valid = false;
            if (rest % 3 == 1) segments.push_back({i, i + 1});
            if (rest % 3 == 2 && valid) segments.back().end = i + 1;
            open = rest % 3 != 0;
        }
        if (!valid) continue;
        net.recompute(segments);
        best = std::min(best, predicted_peak(net, in));
    }
    net.recompute({});
    return best;
}

}  // namespace

TEST_CASE("recomputation plans: the smallest one is the best of all ways to cut", "[stash]") {
    resnet_config c;
    c.widths = {4, 8};
    c.blocks = {2, 2};
    sequential<float> net = resnet<float>(c);
    CHECK(stash_planner(net, {4, 16, 16, 3}).smallest_plan().predicted_peak == best_of_all(net, {4, 16, 16, 3}));
    sequential<float> flow = cosmoflow({.size = 8, .filters = 4, .blocks = 2, .dense = {}, .dropout = 0});
    CHECK(stash_planner(flow, {2, 8, 8, 8, 4}).smallest_plan().predicted_peak == best_of_all(flow, {2, 8, 8, 8, 4}));
}

TEST_CASE("recomputation plans: gradients, statistics and dropout have the same bits under any plan", "[stash]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    const auto check = [](auto make, const shape& in) {
        const tensor<float> x = laws::numbers<float>(in, 1);
        const auto run = [&](auto&& plan_of) {
            sequential<float> net = make();
            const arena<float> a(net.parameters(), 1);
            apply(net, plan_of(net));
            saved_tensors<float> saved;
            pass_context p;
            p.random.seed = 5;
            std::vector<tensor<float>> results;
            for (p.random.step = 0; p.random.step < 2; ++p.random.step) {
                results.push_back(net.forward(x.share(), saved, p));
                results.push_back(net.backward(results.back().clone(), saved, p));
            }
            for (const auto& [name, q] : net.parameters()) results.push_back(q->grad.clone());
            for (const auto& [name, t] : net.buffers()) results.push_back(t->clone());
            return results;
        };
        const auto kept = run([&](auto& net) { return stash_planner(net, in).keep_plan(); });
        const auto root = run([&](auto& net) { return stash_planner(net, in).sqrt_plan(); });
        const auto smallest = run([&](auto& net) { return stash_planner(net, in).smallest_plan(); });
        for (std::size_t i = 0; i < kept.size(); ++i) {
            CAPTURE(i);
            CHECK(laws::same_bits(kept[i], root[i]));
            CHECK(laws::same_bits(kept[i], smallest[i]));
        }
    };
    check([] { return resnet_cifar(8); }, {2, 16, 16, 3});
    check([] { return cosmoflow({.size = 8, .filters = 4, .blocks = 2, .dense = {16, 8}}); }, {2, 8, 8, 8, 4});
}

TEST_CASE("recomputation plans: errors", "[stash]") {
    sequential<float> net = resnet_cifar(8), other = resnet_cifar(20);
    const shape in{2, 16, 16, 3};
    CHECK_THROWS_WITH(stash_planner(net, in).cheapest_plan(1000),
                      Catch::Contains("1000") && Catch::Contains("smallest peak"));
    CHECK_THROWS_WITH(apply(other, stash_planner(net, in).keep_plan()), Catch::Contains("recomputation plan"));
    CHECK_THROWS_WITH(net.recompute({{2, 4}, {3, 5}}), Catch::Contains("cannot recompute"));
    CHECK_THROWS_WITH(net.recompute({{0, 100}}), Catch::Contains("cannot recompute"));
}

TEST_CASE("recomputed chains: laws", "[laws][stash]") {
    const auto chain = [](auto t) {
        using T = decltype(t);
        sequential<T> net;
        net.add("conv", conv<T>({.in = 3, .out = 4, .kernel = 3, .pad = 1, .bias = false}));
        net.add("bn", batch_norm<T>({.channels = 4, .act = activation::relu}));
        net.add("pool", max_pool<T>({.kernel = 2}));
        net.add("drop", dropout<T>(0.4));
        net.add("flatten", flatten<T>());
        net.add("fc", linear<T>({.in = 36, .out = 5}));
        return net;
    };
    laws::law_case all =
        laws::make_case("one segment", {2, 6, 6, 3}, [chain](auto t) { return recompute_segment(chain(t)); });
    all.depth = 6;
    laws::check_laws(all);
    laws::law_case parts = laws::make_case("two segments", {2, 6, 6, 3}, [chain](auto t) {
        auto net = chain(t);
        net.recompute({{0, 2}, {3, 5}});
        return net;
    });
    parts.depth = 6;
    laws::check_laws(parts);
    laws::law_case nested = laws::make_case("segments in a segment", {2, 6, 6, 3}, [chain](auto t) {
        using T = decltype(t);
        sequential<T> inner = chain(t), net;
        inner.recompute({{1, 3}, {3, 6}});
        net.add("inner", std::move(inner));
        net.add("fc", linear<T>({.in = 5, .out = 2}));
        net.recompute({{0, 2}});
        return net;
    });
    nested.depth = 7;
    laws::check_laws(nested);
    laws::law_case in_residual = laws::make_case("in a residual block", {2, 4, 4, 3}, [](auto t) {
        using T = decltype(t);
        sequential<T> body;
        body.add("conv1", conv<T>({.in = 3, .out = 6, .kernel = 3, .pad = 1, .bias = false}));
        body.add("bn1", batch_norm<T>({.channels = 6, .act = activation::relu}));
        body.add("conv2", conv<T>({.in = 6, .out = 3, .kernel = 3, .pad = 1, .bias = false}));
        body.add("bn2", batch_norm<T>({.channels = 3, .act = activation::relu}));
        body.recompute({{0, 3}});
        return residual<T>(std::move(body));
    });
    in_residual.depth = 8;
    laws::check_laws(in_residual);
}

}  // namespace cairn
