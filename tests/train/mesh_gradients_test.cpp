// Gradients and losses on meshes of three axes, two ranks along each, against one rank: in double, to rounding.

#include "catch.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/parallel/global_parameter.hpp>
#include <cairn/parallel/mesh.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/execute.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>
#include <cairn/train/shared_layers.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <string>

namespace mesh_gradients {

using namespace cairn;
using cairn::index_t;
using model = sequential<double>;

namespace {

constexpr index_t batch = 8;
constexpr int micro_batches = 2;

struct problem {
    std::function<model(const shared_layers&)> make;
    shape sample;
    std::string cut_before;  // a path, of the second stage's first layer
    std::function<double(index_t)> element;
    /// Of the outputs of samples `s` of the batch.
    std::function<loss_result<double, cpu>(tensor<double> y, range s, const shared_layers& over)> loss;
};

tensor<double> elements(const problem& p, range samples) {
    tensor<double> x(shared_layers{}.batch_here(samples.count, p.sample));
    for (index_t i = 0; i < x.size(); ++i) x[i] = p.element(samples.begin * p.sample.size() + i);
    return x;
}

problem volumes() {
    const cosmoflow_config c{
        .size = 8, .channels = 2, .filters = 3, .blocks = 2, .dense = {7, 5}, .outputs = 3, .dropout = 0.3};
    problem p;
    p.make = [c](const shared_layers& over) -> model {
        using C = any_communicator;
        if (!over.is_shared()) return cosmoflow<double>(c);
        if (!over.spatial) return cosmoflow<double, cpu>(c, channel_cosmoflow_parts<double, C>{over.tensor});
        const shape rows{8, 8, 8};
        if (!over.tensor) return cosmoflow<double, cpu>(c, spatial_parts<C, double>(*over.spatial, over.grid(), rows));
        using parts = spatial_parts<C, double, cpu, make_channel_conv<double, C>>;
        return cosmoflow<double, cpu>(c, parts(*over.spatial, over.grid(), rows, {over.tensor}));
    };
    p.sample = {8, 8, 8, 2};
    p.cut_before = "conv2";
    p.element = [](index_t i) { return random_stream{9, 1, 0}.normal(static_cast<std::uint64_t>(i)); };
    p.loss = [](tensor<double> y, range s, const shared_layers&) {
        tensor<double> targets({s.count, 3});
        for (index_t i = 0; i < targets.size(); ++i)
            targets[i] = random_stream{9, 2, 0}.normal(static_cast<std::uint64_t>(3 * s.begin + i));
        return mean_squared{}(std::move(y), targets);
    };
    return p;
}

problem sentences(bool tied) {
    const transformer_config c{.vocab_size = 11,
                               .max_length = 6,
                               .embedding_dim = 12,
                               .heads = 3,
                               .blocks = 2,
                               .dropout = 0.2,
                               .attention_dropout = 0.1,
                               .tied = tied};
    problem p;
    p.make = [c](const shared_layers& over) -> model {
        if (!over.tensor) return transformer<double>(c);
        return transformer<double, cpu>(
            c, tensor_transformer_parts<double, any_communicator>{over.tensor, over.sequences});
    };
    p.sample = {6};
    p.cut_before = "block2";
    p.element = [](index_t i) {
        return static_cast<double>(random_stream{9, 1, 0}.below(11, static_cast<std::uint64_t>(i)));
    };
    p.loss = [](tensor<double> y, range s, const shared_layers& over) {
        tensor<std::int32_t> labels({s.count, 6});
        for (index_t i = 0; i < labels.size(); ++i)
            labels[i] = static_cast<std::int32_t>(
                random_stream{9, 2, 0}.below(11, static_cast<std::uint64_t>(6 * s.begin + i)));
        if (over.tensor) return vocabulary_cross_entropy<any_communicator>{over.tensor, 11}(std::move(y), labels);
        return cross_entropy{}(std::move(y), labels);
    };
    return p;
}

struct outcome {
    double loss = 0;
    std::map<std::string, tensor<double>> gradients;  // whole ones
};

/// One step's gradients on the ranks of `world`; complete on rank 0.
outcome on_mesh(any_communicator& world, const problem& p, const std::vector<mesh_axis>& axes, sequence_layout how) {
    mesh<any_communicator> grid(world, axes);
    shared_layers over;
    std::optional<tensor_axis<any_communicator>> tensor_ranks;
    if (grid.size("tensor") > 1) {
        over.tensor = &tensor_ranks.emplace(grid["tensor"]);
        over.sequences = how;
    }
    if (grid.size("spatial") > 1) {
        over.spatial = &grid["spatial"];
        over.spatial_extents = {1, grid.size("spatial"), 1};
    }
    model whole = p.make(over);
    const shape one = over.batch_here(1, p.sample);
    std::vector<int> cuts;
    if (grid.size("pipeline") > 1) cuts = cuts_before(units_of(whole, over.batch_here(4, p.sample)), {p.cut_before});
    std::vector<model> stages = cut(whole, one, cuts), mine;
    const std::vector<shape> boundaries = boundaries_of(stages, one);
    mine.push_back(std::move(stages[static_cast<std::size_t>(grid.coordinate("pipeline"))]));
    arena<double> weights(mine.front().parameters(), 5);
    std::vector<stage<model>> here;
    here.emplace_back(mine.front(), weights);

    const range samples = shard_of(batch, grid.size("data"), grid.coordinate("data"));
    const auto of_batch = [&](int m) {
        const range s = shard_of(samples.count, micro_batches, m);
        return range{samples.begin + s.begin, s.count};
    };
    outcome o;
    const auto objective = [&](int m, tensor<double> y) {
        const range all = of_batch(m), s = over.outputs_of(all.count);
        auto [loss, dy] = p.loss(std::move(y), {all.begin + s.begin, s.count}, over);
        const double weight = over.weight_of_outputs(all.count) * static_cast<double>(all.count) / double(batch);
        for_each(functors::times<double>{weight}, dy);
        if (!over.tensor || over.tensor->rank() == 0) o.loss += weight * loss;
        return std::move(dy);
    };
    const auto input = [&](int m) {
        const range s = of_batch(m);
        tensor<double> x = elements(p, s);
        if (over.spatial) x = own_rows(x, over.rows(p.sample), over.grid(), over.spatial->rank());
        return stage_input<double, cpu>{
            std::move(x),
            {.random = {.seed = 7, .step = 4, .first_sample = s.begin, .samples = s.count}, .input_gradient = false}};
    };
    std::vector<index_t> counts;
    for (int m = 0; m < micro_batches; ++m) counts.push_back(of_batch(m).count);
    if (grid.size("pipeline") > 1) {
        stage_links<double, cpu, any_communicator> links(grid["pipeline"], boundaries);
        execute(make_schedule("zb_h1", {2, micro_batches, 0}), counts, here, links, objective, input);
    } else {
        execute(gradient_accumulation(micro_batches), here, objective, input);
    }
    channel<any_communicator> replicas = grid.across(world, {"data", "spatial"});
    all_reduce(replicas.device, weights.grads().span());
    all_reduce(world, std::span<double>(&o.loss, 1));

    model names = p.make({});
    for (const auto& [name, whole_one] : names.parameters()) {
        if (!whole_one->tied_to.empty()) continue;
        const auto at = std::ranges::find(weights.parameters(), name, &parameter_ref<double>::name);
        const bool is_here = at != weights.parameters().end();
        o.gradients.emplace(name, gather_global(world, is_here ? at->p->grad.share() : tensor<double>(),
                                                is_here ? at->p->layout : parameter_layout{}, 0, name));
    }
    return o;
}

void check(const problem& p, const std::vector<mesh_axis>& axes, sequence_layout how = sequence_layout::whole) {
    any_communicator self = self_communicator{};
    const outcome expected = on_mesh(self, p, {}, how);
    int ranks = 1;
    for (const mesh_axis& axis : axes) ranks *= axis.size;
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        any_communicator world(c.split(0, c.rank()));
        const outcome got = on_mesh(world, p, axes, how);
        if (c.rank() > 0) return;
        const std::string mesh_text = concat("mesh ", detail::text_of(axes), ": ");
        require(std::abs(got.loss - expected.loss) <= 1e-12 * std::abs(expected.loss), mesh_text, "loss ", got.loss,
                ", on one rank ", expected.loss);
        double scale = 0;
        for (const auto& [name, g] : expected.gradients)
            for (index_t i = 0; i < g.size(); ++i) scale = std::max(scale, std::abs(g[i]));
        for (const auto& [name, g] : expected.gradients)
            for (index_t i = 0; i < g.size(); ++i)
                require(std::abs(got.gradients.at(name)[i] - g[i]) <= 1e-12 * scale, mesh_text, "gradient of ", name,
                        " at ", i, ": ", got.gradients.at(name)[i], ", on one rank ", g[i]);
    });
}

}  // namespace

TEST_CASE("mesh gradients: every three of the four axes have those of one rank", "[mesh]") {
    const mesh_axis pipeline{"pipeline", 2}, data{"data", 2}, spatial{"spatial", 2}, tensor{"tensor", 2};
    check(volumes(), {pipeline, data, spatial});
    check(volumes(), {pipeline, data, tensor});
    check(volumes(), {pipeline, spatial, tensor});
    check(volumes(), {data, spatial, tensor});
    check(sentences(false), {pipeline, data, tensor});
    check(sentences(false), {pipeline, data, tensor}, sequence_layout::parts);
    check(sentences(true), {data, tensor});
}

}  // namespace mesh_gradients
