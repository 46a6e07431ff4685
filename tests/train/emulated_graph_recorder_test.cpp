// Recorded steps of several ranks have the bits of steps that are launched one by one, on the emulated GPU. Those of
// one rank are in tests/device/cuda/recorded_laws.hpp, those of whole runs in emulated_recorded_runs_test.cpp.

#include "train/device_runs.hpp"

#include <cairn/objectives/classification.hpp>

namespace cairn::recorded_ranks {

using namespace device_runs;

constexpr index_t inputs = 12, classes = 3;

struct how {
    int ranks = 1;
    index_t micro_batches = 1;
    bool curvature = false;
    index_t bucket_bytes = 100;  // the second layer, the normalisation, the first layer
    bool overlap = true;
};

struct outcome {
    std::vector<double> losses;
    std::vector<float> weights;
    std::int64_t recorded = 0;
    index_t graphs = 0;
    std::vector<index_t> launches;  // of the last step, before each bucket left; of one rank alone
    std::string refusal;
};

// Nine steps in one place; every third one has fewer samples on the last rank alone.
outcome train_on(any_communicator world, const how& h, bool graph) {
    using D = emulated_gpu;
    sequential<float, D> model;
    model.add("first", linear<float, D>({.in = inputs, .out = 8}));
    model.add("norm", batch_norm<float, D>({.channels = 8, .act = activation::relu}));
    model.add("drop", dropout<float, D>(0.3));
    model.add("second", linear<float, D>({.in = 8, .out = classes}));
    arena<float, D> weights(model.parameters(), 2);
    ranks<D>::config c;
    c.gradients.bucket_bytes = h.bucket_bytes;
    c.gradients.overlap = h.overlap;
    c.agree.non_finite = non_finite_policy::skip;
    c.device = staged_communicator<D, any_communicator>(world.split(0, world.rank()));
    ranks<D> all(world, weights, std::move(c));
    broadcast_values(all.over, weights, model.buffers());
    outcome o;
    index_t at_begin = 0;
    all.gradients.reducer().before_reduce([&](int, std::span<float>) { o.launches.push_back(D::launches - at_begin); });
    std::unique_ptr<kfac<float, D>> curvature;
    if (h.curvature)
        curvature = std::make_unique<kfac<float, D>>(
            weights,
            kfac_config{.damping = 0.01, .factor_update_interval = 2, .inverse_update_interval = 2, .kl_clip = 0.01});
    using rule = clipped<adamw>;
    step_hooks<D, float> hooks;
    if (curvature) hooks.push_back(std::make_unique<preconditioning<D, float>>(*curvature));
    trainer<D> t(
        {model, weights},
        {bound_optimizer<rule, float, D>(rule{adamw{}, by_norm{0.4}}, weights), warmup(4, 0.001, cosine(9, 0.02))},
        classification{}, std::move(hooks), {.seed = 5, .cuda_graph = graph, .ranks = &all});
    if (curvature) t.choose_kernels({6 / h.micro_batches, inputs}, mode::train);
    tensor<float, D> x({6, inputs});
    tensor<std::int32_t, D> labels({6});
    for (int s = 0; s < 9; ++s) {
        const bool short_one = s % 3 == 2;
        const random_stream random{11, static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(world.rank())};
        batch b;
        b.count = short_one && world.rank() + 1 == world.size() ? 4 : 6;
        b.global_count = 6 * world.size() - (short_one ? 2 : 0);
        b.first_sample = 6 * world.rank();
        tensor<float> host({b.count, inputs});
        for (index_t i = 0; i < host.size(); ++i)
            host[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
        b.labels = tensor<std::int32_t>({b.count});
        for (index_t i = 0; i < b.count; ++i) b.labels[i] = static_cast<std::int32_t>((i + s) % classes);
        D::copy_to_device(x.data(), host.data(), host.bytes());
        D::copy_to_device(labels.data(), b.labels.data(), b.labels.bytes());
        const index_t n = b.count;
        o.launches.clear();
        at_begin = D::launches;
        o.losses.push_back(t.step({device_batch<D>(std::move(b), {x.slice(0, {n, inputs}), labels.slice(0, {n}), {}}),
                                   h.micro_batches})
                               .loss);
    }
    require(t.steps() == 9, "steps: ", t.steps());
    o.recorded = t.recorder().launched();
    o.graphs = t.recorder().graphs();
    o.refusal = t.recorder().refusal();
    const tensor<float> values = weights.values().on_host();
    o.weights.assign(values.data(), values.data() + values.size());
    for (const auto& [name, buffer] : model.buffers()) {
        const tensor<float> here = buffer->on_host();
        o.weights.insert(o.weights.end(), here.data(), here.data() + here.size());
    }
    return o;
}

std::vector<outcome> outcomes_of(const how& h, bool graph) {
    std::vector<outcome> each(static_cast<std::size_t>(h.ranks));
    run_ranks(h.ranks, [&](threads_communicator& c) {
        each[static_cast<std::size_t>(c.rank())] = train_on(any_communicator(c.split(0, c.rank())), h, graph);
    });
    return each;
}

void check_alike(const how& h, std::int64_t recorded_steps) {
    CAPTURE(h.ranks, h.micro_batches, h.curvature, h.overlap);
    const auto plain = outcomes_of(h, false), recorded = outcomes_of(h, true);
    for (std::size_t r = 0; r < plain.size(); ++r) {
        CAPTURE(r);
        CHECK(recorded[r].refusal.empty());
        CHECK(recorded[r].losses == plain[r].losses);
        CHECK(recorded[r].weights == plain[r].weights);
        CHECK(recorded[r].recorded == recorded_steps);
        CHECK(plain[r].recorded == 0);
        // The record is cut where the last layer's parameters are full, where those of the normalisation are, and at
        // the end.
        CHECK(recorded[r].graphs == (h.overlap ? 3 : 1));
    }
}

TEST_CASE("recorded steps: several ranks, micro-batches, K-FAC, uneven batches", "[train]") {
    check_alike({.ranks = 2}, 4 + 1);  // whole batches: 6, two of them launched one by one; short ones: 3
    check_alike({.ranks = 3, .micro_batches = 2}, 4 + 1);
    check_alike({.ranks = 2, .micro_batches = 2, .overlap = false}, 4 + 1);
    // Without those in which it takes statistics, steps 1, 3, 5, 7, 9: whole ones 2, 4, 8, short ones none but 6.
    check_alike({.ranks = 1, .curvature = true}, 1);
}

TEST_CASE("recorded steps: buckets leave where they leave steps that are launched one by one", "[train]") {
    const auto plain = outcomes_of({}, false)[0], recorded = outcomes_of({}, true)[0];
    CHECK(plain.launches.size() == 3);
    CHECK(recorded.launches == plain.launches);
    CHECK(recorded.launches.front() < recorded.launches.back());
}

}  // namespace cairn::recorded_ranks
