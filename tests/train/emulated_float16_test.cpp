// Layers in float16 under a loss scale, on the emulated GPU: near the host's training in float; a step for which the
// scale was too large leaves no trace, on one rank and on several, with K-FAC, compressors and recorded steps; runs go
// on with the same bits.

#include "train/device_runs.hpp"

#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/regression.hpp>

namespace cairn {

using namespace device_runs;

namespace {

struct how {
    double first = 256;
    std::int64_t every = 2000;
    int ranks = 1;
    index_t micro_batches = 1;
    bool curvature = false, graph = false;
    double last_targets = 0;  // size of what the last rank is to give, of 1 the others; 0: classes are learnt
    const char* compressor = nullptr;
};

struct outcome {
    std::vector<double> losses;
    std::vector<bool> skipped;  // of all tries
    std::vector<double> scales;
    std::vector<float> weights;
};

constexpr index_t samples_of_a_rank = 6, inputs = 12, classes = 3;

// targets: their size; 0: there are labels.
batch drawn_batch(std::uint32_t step, int rank, int count, double targets) {
    const random_stream random{11, step, static_cast<std::uint32_t>(rank)};
    batch b;
    b.x = tensor<float>({samples_of_a_rank, inputs});
    b.labels = tensor<std::int32_t>({samples_of_a_rank});
    for (index_t i = 0; i < b.x.size(); ++i) b.x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    if (targets > 0) {
        b.targets = tensor<float>({samples_of_a_rank, classes});
        for (index_t i = 0; i < b.targets.size(); ++i)
            b.targets[i] = static_cast<float>(targets * random.normal(1000 + static_cast<std::uint64_t>(i)));
    }
    for (index_t i = 0; i < samples_of_a_rank; ++i) b.labels[i] = static_cast<std::int32_t>((i + step) % classes);
    b.count = samples_of_a_rank;
    b.global_count = samples_of_a_rank * count;
    b.first_sample = samples_of_a_rank * rank;
    return b;
}

// The batch on D, always at one place.
template <Device D>
device_batch<D> brought(const batch& b, std::optional<samples<D>>& place) {
    batch copy;
    copy.x = b.x.share(), copy.labels = b.labels.share(), copy.count = b.count, copy.global_count = b.global_count;
    copy.first_sample = b.first_sample;
    if (!place) place = samples_on<D>(b);
    if constexpr (!std::same_as<D, cpu>) {
        D::copy_to_device(place->x.data(), b.x.data(), b.x.bytes());
        D::copy_to_device(place->labels.data(), b.labels.data(), b.labels.bytes());
    }
    return {std::move(copy), {place->x.share(), place->labels.share(), {}}};
}

// Eight steps, each tried until it is taken.
template <Device D, class T>
outcome train_on(any_communicator* world, const how& h) {
    sequential<T, D> model;
    model.add("first", linear<T, D>({.in = inputs, .out = 8}));
    model.add("gelu", activation_layer<T, D>(activation::gelu));
    model.add("second", linear<T, D>({.in = 8, .out = classes}));
    arena<float, D> weights(model.parameters(), 2);
    std::unique_ptr<ranks<D>> all;
    if (world) {
        typename ranks<D>::config c;
        c.gradients.bucket_bytes = 100;
        c.agree.non_finite = non_finite_policy::skip;
        if constexpr (!std::same_as<D, cpu>)
            c.device = staged_communicator<D, any_communicator>(world->split(0, world->rank()));
        if (h.compressor)
            c.gradients.method = [&h, count = world->size(), rank = world->rank()](const bucket_layout& layout,
                                                                                   index_t n) {
                configuration settings = configuration::from_text("[compress]\nratio = 0.3\n");
                const auto method = compressors<cpu>::global().at("compress.kind", h.compressor)(settings);
                return method.hook_of({layout, n, count, rank});
            };
        all = std::make_unique<ranks<D>>(*world, weights, std::move(c));
        broadcast_values(all->over, weights, {});
    }
    std::unique_ptr<kfac<float, D>> curvature;
    if (h.curvature)
        curvature = std::make_unique<kfac<float, D>>(
            weights,
            kfac_config{.damping = 0.01, .factor_update_interval = 2, .inverse_update_interval = 2, .kl_clip = 0});
    loss_scaler scaler({.first = h.first, .every = h.every});
    step_hooks<D, T> hooks;
    if constexpr (std::same_as<T, float16>) hooks.push_back(std::make_unique<loss_scaling<D>>(scaler));
    if (curvature) hooks.push_back(std::make_unique<preconditioning<D, T>>(*curvature));
    trainer<D, T> t({model, weights}, {bound_optimizer<sgd, float, D>(sgd{{.momentum = 0.9}}, weights), constant(0.02)},
                    h.last_targets > 0 ? any_objective<D>(regression{}) : any_objective<D>(classification{}),
                    std::move(hooks), {.cuda_graph = h.graph, .ranks = all.get()});
    if (curvature) t.choose_kernels({samples_of_a_rank / h.micro_batches, inputs}, mode::train);
    outcome o;
    std::optional<samples<D>> place;  // of every batch, for steps that are recorded
    for (std::uint32_t s = 0; s < 8; ++s) {
        const batch b = drawn_batch(s, world ? world->rank() : 0, world ? world->size() : 1,
                                    world && world->rank() + 1 == world->size() ? h.last_targets
                                    : h.last_targets > 0                        ? 1
                                                                                : 0);
        for (bool taken = false; !taken;) {
            const step_result done =
                h.graph ? t.step({brought<D>(b, place), h.micro_batches}) : t.step({b, h.micro_batches});
            taken = !done.skipped;
            o.skipped.push_back(done.skipped);
            o.scales.push_back(scaler.scale());
            if (taken) o.losses.push_back(done.loss);
            require(o.skipped.size() < 100, "no step is taken");
        }
    }
    require(t.steps() == 8, "steps: ", t.steps());
    require(t.recorder().refusal().empty(), t.recorder().refusal());
    require(!h.graph || t.recorder().launched() > 0, "no step was recorded");
    const tensor<float> values = weights.values().on_host();
    o.weights.assign(values.data(), values.data() + values.size());
    return o;
}

template <Device D, class T>
outcome outcome_of(const how& h) {
    if (h.ranks == 1) return train_on<D, T>(nullptr, h);
    std::vector<outcome> each(static_cast<std::size_t>(h.ranks));
    run_ranks(h.ranks, [&](threads_communicator& c) {
        any_communicator world(c.split(0, c.rank()));
        each[static_cast<std::size_t>(c.rank())] = train_on<D, T>(&world, h);
    });
    for (const outcome& o : each) {  // decided alike
        CHECK(o.weights == each[0].weights);
        CHECK(o.skipped == each[0].skipped);
        CHECK(o.scales == each[0].scales);
    }
    return each[0];
}

outcome in_halves(const how& h) { return outcome_of<emulated_gpu, float16>(h); }

double distance_of(const outcome& a, const outcome& b) {
    double most = 0;
    REQUIRE(a.weights.size() == b.weights.size());
    for (std::size_t i = 0; i < a.weights.size(); ++i)
        most = std::max(most, static_cast<double>(std::abs(a.weights[i] - b.weights[i])));
    for (std::size_t i = 0; i < a.losses.size(); ++i) most = std::max(most, std::abs(a.losses[i] - b.losses[i]));
    return most;
}

const std::vector<how> all_ways() {
    return {{},
            {.micro_batches = 3},
            {.curvature = true},
            {.micro_batches = 2, .curvature = true},
            {.ranks = 2},
            {.ranks = 2, .micro_batches = 2},
            {.ranks = 2, .compressor = "topk"},
            {.ranks = 3, .compressor = "powersgd"}};
}

nlohmann::json result_of(const std::string& workload, session_options options, const std::vector<const char*>& more) {
    options.generated = true;
    return session<emulated_gpu, float16>(settings_of(workload, more), options).train();
}

std::vector<double> scales_of(const std::filesystem::path& run) {
    std::vector<double> all;
    std::ifstream in(run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
        all.push_back(nlohmann::json::parse(line)["loss_scale"].get<double>());
    return all;
}

}  // namespace

TEST_CASE("float16: whatever the scale, training is near the host's in float", "[train]") {
    for (const how& h : all_ways()) {
        CAPTURE(h.ranks, h.micro_batches, h.curvature, h.compressor ? h.compressor : "");
        const outcome host = outcome_of<cpu, float>(h), device = in_halves(h);
        CHECK(std::ranges::count(device.skipped, true) == 0);
        // Powers of two change no bit of a normal number; topk's choice of equal ones may fall otherwise than the
        // host's.
        const double off = distance_of(device, host);
        CHECK(off > 0);
        if (!h.compressor) CHECK(off < 0.02);
        how other = h;
        other.first = h.first / 4;
        CHECK(distance_of(in_halves(other), device) < 5e-3);
        other.every = 1;  // another one for each step
        const outcome changing = in_halves(other);
        CHECK(changing.scales[0] == h.first / 2);
        CHECK(changing.scales[1] == h.first);
        CHECK(distance_of(changing, device) < 5e-3);
    }
}

TEST_CASE("float16: steps for which the scale was too large leave no trace", "[train]") {
    for (const how& h : all_ways()) {
        CAPTURE(h.ranks, h.micro_batches, h.curvature, h.compressor ? h.compressor : "");
        how high = h, right = h;
        high.first = 0x1p24;
        const outcome recovered = in_halves(high);
        CHECK(recovered.skipped.front());
        CHECK_FALSE(recovered.skipped.back());
        right.first = recovered.scales.back();
        CHECK(right.first < high.first);
        const outcome again = in_halves(right);
        CHECK(std::ranges::count(again.skipped, true) == 0);
        CHECK(again.weights == recovered.weights);
        CHECK(again.losses == recovered.losses);
    }
    // The rank with the larger gradients decides for both.
    const auto skips = [](const outcome& o) { return std::ranges::count(o.skipped, true); };
    CHECK(skips(in_halves({.first = 0x1p24, .ranks = 2, .last_targets = 30})) >
          skips(in_halves({.first = 0x1p24, .ranks = 2, .last_targets = 1})) + 2);
}

TEST_CASE("float16: a recorded step sees the scale of today", "[train]") {
    for (const bool curvature : {false, true}) {
        // Recorded, and doubled every other step until it is too large.
        const how plain{.first = 0x1p17, .every = 2, .curvature = curvature};
        how recorded = plain;
        recorded.graph = true;
        const outcome one_by_one = in_halves(plain), whole = in_halves(recorded);
        CHECK(std::set<double>(whole.scales.begin(), whole.scales.end()).size() >= 3);
        CHECK(std::find(whole.skipped.begin() + 4, whole.skipped.end(), true) != whole.skipped.end());
        CHECK(whole.weights == one_by_one.weights);
        CHECK(whole.losses == one_by_one.losses);
        CHECK(whole.scales == one_by_one.scales);
    }
}

TEST_CASE("float16: where no scale helps, the error names step and parameter", "[train]") {
    const auto said = [](loss_scaler::config c, int count, float target) {
        return test::message_of([&] {
            const auto go = [&](any_communicator* world) {
                sequential<float16, emulated_gpu> model;
                model.add("only", linear<float16, emulated_gpu>({.in = 4, .out = 2}));
                arena<float, emulated_gpu> weights(model.parameters(), 1);
                std::unique_ptr<ranks<emulated_gpu>> all;
                if (world) {
                    ranks<emulated_gpu>::config how;
                    how.agree.non_finite = non_finite_policy::skip;
                    how.device = staged_communicator<emulated_gpu, any_communicator>(world->split(0, world->rank()));
                    all = std::make_unique<ranks<emulated_gpu>>(*world, weights, std::move(how));
                }
                loss_scaler scaler(c);
                step_hooks<emulated_gpu, float16> hooks;
                hooks.push_back(std::make_unique<loss_scaling<emulated_gpu>>(scaler));
                trainer<emulated_gpu, float16> t(
                    {model, weights}, {bound_optimizer<sgd, float, emulated_gpu>(sgd{}, weights), constant(0.1)},
                    regression{}, std::move(hooks), {.ranks = all.get()});
                batch b;
                b.x = tensor<float>::filled({2, 4}, 1);
                b.targets = tensor<float>::filled({2, 2}, target);
                b.count = 2;
                b.global_count = 2 * count;
                for (int i = 0; i < 60; ++i) t.step(b);
                fail("60 steps were taken or skipped");
            };
            if (count == 1) return go(nullptr);
            run_ranks(count, [&](threads_communicator& c) {
                any_communicator world(c.split(0, c.rank()));
                go(&world);
            });
        });
    };
    const std::string alone = said({}, 1, 1e12f), two = said({}, 2, 1e12f), fixed = said({.dynamic = false}, 1, 1e12f);
    CHECK(test::contains(alone, "step 1: gradient of only/weight (2, 4): element 0 is"));
    CHECK(test::contains(alone, "The loss scale is 6.10352e-05, the least"));
    CHECK(
        test::contains(two, "step 1: rank 0 of 2: the ranks' sum of the gradient of only/weight (2, 4): element 0 is"));
    CHECK(test::contains(two, "The loss scale is 6.10352e-05, the least"));
    CHECK(test::contains(fixed, "step 1: gradient of only/weight (2, 4): element 0 is"));
    CHECK(test::contains(fixed, "train.loss_scale is 65536: take less, or dynamic"));
    // A loss that is not finite is nothing that a scale can help.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(test::contains(said({}, 1, nan), "step 1: loss is nan; a target of the batch is not finite"));
    CHECK(test::contains(said({}, 2, nan), "rank 0 of 2: step 1: loss is nan; a target of the batch is not finite"));
}

TEST_CASE("session: layers in float16 train weights in float", "[train]") {
    for (std::size_t w = 0; w < workloads.size(); ++w) {
        CAPTURE(workloads[w]);
        const folder dir;
        // The gradient of a reconstruction is a sum over pixels, and begins large.
        const std::vector<const char*> more{"train.loss_scale_start=256"};
        const auto host = run<cpu>(workloads[w], {.out = dir.path / "host", .resume = {}, .max_steps = 3});
        const auto in_half = [&](const char* name, bool resume, std::int64_t steps) {
            return run<emulated_gpu, float16>(workloads[w], in_run(dir.path / name, resume, steps), more);
        };
        const auto whole = in_half("whole", false, 3);
        CHECK(scales_of(dir.path / "whole") == std::vector<double>(3, 256));
        CHECK(distance(whole, host) < 0.01);
        CHECK(distance(whole, host) > 0);  // it does round
        in_half("parts", false, 1);
        CHECK(distance(in_half("parts", true, 3), whole) == 0);
        // A run goes on in another precision, here and there.
        in_half("moved", false, 1);
        CHECK(distance(run<cpu>(workloads[w], {.out = {}, .resume = dir.path / "moved", .max_steps = 3}, more), host) <
              0.01);
        run<cpu>(workloads[w], {.out = dir.path / "other", .resume = {}, .max_steps = 1});
        CHECK(distance(in_half("other", true, 3), host) < 0.01);
    }
}

TEST_CASE("session: float16 recovers from a scale that is too large, and resumes its scale", "[train]") {
    const folder dir;
    const std::vector<const char*> high{"train.loss_scale_start=16777216", "train.loss_scale_every=2"};
    const auto whole = result_of(workloads[1], {.out = dir.path / "whole", .resume = {}, .max_steps = 6}, high);
    CHECK(whole["steps"] == 6);
    CHECK(whole["skipped_steps"].get<int>() >= 4);
    CHECK(whole["loss_scale"].get<double>() < 0x1p24);
    CHECK(std::isfinite(whole["train_loss"].get<double>()));
    const auto all = scales_of(dir.path / "whole");
    REQUIRE(all.size() == 6);
    CHECK(all.back() == whole["loss_scale"].get<double>());
    CHECK(std::set<double>(all.begin(), all.end()).size() > 1);
    for (const std::int64_t stop : {1, 4}) {
        const auto parts = dir.path / concat("stopped", stop);
        result_of(workloads[1], {.out = parts, .resume = {}, .max_steps = stop}, high);
        const auto rest = result_of(workloads[1], {.out = {}, .resume = parts, .max_steps = 6}, high);
        CHECK(rest["skipped_steps"] == whole["skipped_steps"]);
        CHECK(scales_of(parts) == all);
        CHECK(losses_of(in_run(parts, true, 6)) == losses_of(in_run(dir.path / "whole", true, 6)));
    }
}

TEST_CASE("session: float16 on several ranks, recorded, with K-FAC and compressors", "[train]") {
    const folder dir;
    // Ranks resume a scale that rank 0 read.
    const std::vector<const char*> high{"train.loss_scale_start=16777216", "train.loss_scale_every=2",
                                        "compress.kind=topk", "compress.ratio=0.05"};
    const auto on_two = [&](const char* name, bool resume, std::int64_t steps) {
        return run_on<emulated_gpu, float16>(2, workloads[0], in_run(dir.path / name, resume, steps), high);
    };
    const auto whole = on_two("whole", false, 3);
    CHECK(scales_of(dir.path / "whole").front() < 0x1p24);
    on_two("parts", false, 2);
    CHECK(distance(on_two("parts", true, 3), whole) == 0);
    CHECK(scales_of(dir.path / "parts") == scales_of(dir.path / "whole"));

    const std::vector<const char*> recorded{"train.cuda_graph=on", "train.micro_batches=1", "train.loss_scale_every=3",
                                            "optimizer.kind=kfac", "kfac.factor_update_interval=3"};
    auto plain = recorded;
    plain[0] = "train.cuda_graph=off";
    const auto launched =
        result_of(workloads[1], {.out = dir.path / "recorded", .resume = {}, .max_steps = 12}, recorded);
    result_of(workloads[1], {.out = dir.path / "plain", .resume = {}, .max_steps = 12}, plain);
    CHECK(launched["recorded_steps"].get<int>() >= 3);
    CHECK(scales_of(dir.path / "recorded") == scales_of(dir.path / "plain"));
    CHECK(losses_of(in_run(dir.path / "recorded", true, 12)) == losses_of(in_run(dir.path / "plain", true, 12)));
    const auto scales = scales_of(dir.path / "plain");
    CHECK(std::set<double>(scales.begin() + 4, scales.end()).size() >= 2);
}

TEST_CASE("session: a fixed loss scale stops, or skips, as train.non_finite says", "[train]") {
    const folder dir;
    const auto go = [&](const char* name, std::vector<const char*> more) {
        more.push_back("train.batch=2");
        return result_of(workloads[1], {.out = dir.path / name, .resume = {}, .max_steps = 2}, more);
    };
    const auto good = go("good", {"train.loss_scale=1024"});
    CHECK((good["loss_scale"] == 1024 && good["skipped_steps"] == 0));
    CHECK(test::contains(test::message_of([&] { go("stops", {"train.loss_scale=16777216"}); }),
                         "train.loss_scale is 1.67772e+07: take less, or dynamic"));
    CHECK(test::contains(test::message_of([&] {
                             go("skips", {"train.loss_scale=16777216", "train.non_finite=skip"});
                         }),
                         "100 steps were skipped"));
    CHECK(test::contains(test::message_of([&] { go("odd", {"train.loss_scale=1000"}); }), "power of two"));
    CHECK(test::contains(test::message_of([&] { run<cpu>(workloads[1], {}, {"train.loss_scale=8"}); }),
                         "is for train.precision = fp16"));
}

}  // namespace cairn
