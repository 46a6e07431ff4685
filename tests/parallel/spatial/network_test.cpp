#include "catch.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/parallel/replicas.hpp>
#include <cairn/parallel/spatial/parts.hpp>

#include <cmath>
#include <mutex>

namespace spatial_networks {

using namespace cairn;
using cairn::index_t;
using Catch::Matchers::Contains;
using ranks_channel = channel<threads_communicator>;

// What two steps of a network leave: losses, gradients of both steps, buffers at the end.
struct outcome {
    std::vector<double> losses, gradients, buffers;
};

tensor<double> normals(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream random{9, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
    return t;
}

// The parts of the network below on one rank.
struct whole_parts : cosmoflow_parts<double> {
    any_layer<double> average_pool(const cairn::average_pool<double>::config& c) {
        return cairn::average_pool<double>(c);
    }
    any_layer<double> global_average_pool() { return cairn::global_average_pool<double>(); }
};

// Every layer that CosmoFlow does not have: dropout between cut tensors, padded averages, a mean over all rows.
template <class Parts>
sequential<double> averaging_network(Parts&& parts) {
    sequential<double> net;
    net.add("conv1", parts.conv({.in = 2, .out = 5, .kernel = {3, 5, 3}, .pad = {1, 2, 0}, .dims = 3}));
    net.add("dropout", parts.dropout(0.3));
    net.add("pool",
            parts.average_pool({.kernel = 3, .stride = per_axis(2), .pad = 1, .count_include_pad = false, .dims = 3}));
    net.add("bn", batch_norm<double>({.channels = 5, .act = activation::relu}));
    net.add("conv2", parts.conv({.in = 5, .out = 6, .kernel = 2, .dims = 3}));
    net.add("mean", parts.global_average_pool());
    net.add("output", linear<double>({.in = 6, .out = 3}));
    return net;
}

// Two steps of `net` on rows x; combine(values) adds up over ranks.
template <class Combine>
outcome two_steps(sequential<double>& net, const tensor<double>& x, const tensor<double>& targets, sample_share share,
                  index_t samples, batch_group* group, Combine&& combine) {
    arena<double> weights(net.parameters(), 4);
    saved_tensors<double> saved;
    outcome o;
    for (std::uint32_t step = 0; step < 2; ++step) {
        weights.zero_grad();
        const pass_context pass{.random = {.seed = 6, .step = step, .first_sample = 3, .samples = samples},
                                .input_gradient = false,
                                .group = group};
        tensor<double> y = net.forward(x.clone(), saved, pass);
        require(y.extent(0) == share.samples.count, "samples");
        auto [loss, dy] =
            mean_squared{}(std::move(y), targets.slice(share.samples.begin * 3, {share.samples.count, 3}).clone());
        for_each(functors::times<double>{share.weight}, dy);
        net.backward(std::move(dy), saved, pass);
        require(saved.empty(), "saved tensors are left");
        double sum = loss * share.weight;
        combine(std::span(&sum, 1));
        combine(weights.grads().span());
        o.losses.push_back(sum);
        const auto g = weights.grads().span();
        o.gradients.insert(o.gradients.end(), g.begin(), g.end());
        for_each([](double& w, double d) { w -= 0.05 * d; }, weights.values(), weights.grads());
    }
    for (const auto& [name, t] : net.buffers()) o.buffers.insert(o.buffers.end(), t->data(), t->data() + t->size());
    return o;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
    require(a.size() == b.size(), a.size(), " and ", b.size(), " numbers");
    double most = 0, scale = 1e-300;
    for (std::size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return b.empty() ? 0 : most / scale;
}

// `make(parts)` on a grid equals make(whole parts) on one rank.
template <class Make>
void check_network(Make&& make, const std::vector<int>& extents, const shape& input, bool buffers_too = true) {
    const index_t samples = input[0];
    tensor<double> x = normals(input, 1);
    const tensor<double> targets = normals({samples, 3}, 2);
    auto net = make(whole_parts{});
    const outcome alone = two_steps(net, x, targets, {{0, samples}, 1}, samples, nullptr, [](std::span<double>) {});
    const rank_grid grid(extents);
    run_ranks(grid.size(), [&](threads_communicator& c) {
        ranks_channel over(c);
        group_over group(c.split(0, c.rank()));
        spatial_parts<threads_communicator, double> parts(over, grid, {input[1], input[2], input[3]});
        const spatial_partition cut = parts.cut();
        auto mine = make(parts);
        const outcome here =
            two_steps(mine, own_rows(x, cut, grid, c.rank()), targets, share_of_samples(samples, c.size(), c.rank()),
                      samples, &group, [&](std::span<double> values) { all_reduce(c, values); });
        const std::string what = concat("grid ", grid.text(), ", input ", input, ": ");
        require(difference(here.losses, alone.losses) < 1e-12, what, "losses");
        require(difference(here.gradients, alone.gradients) < 1e-12, what, "gradients differ by ",
                difference(here.gradients, alone.gradients));
        if (buffers_too) require(difference(here.buffers, alone.buffers) < 1e-12, what, "running statistics");
    });
}

}  // namespace spatial_networks

TEST_CASE("spatial: CosmoFlow on 2, 4 and 8 ranks equals one", "[parallel][spatial]") {
    using namespace spatial_networks;
    for (const bool normalise : {false, true}) {
        const auto make = [&](auto&& parts) {
            return cosmoflow<double, cpu>({.size = 8,
                                           .channels = 2,
                                           .filters = 3,
                                           .blocks = 2,
                                           .dense = {12, 7},
                                           .dropout = 0.4,
                                           .normalise = normalise},
                                          parts);
        };
        for (const auto& grid : std::vector<std::vector<int>>{{2, 1, 1}, {1, 1, 2}, {2, 1, 2}, {2, 2, 2}})
            for (const index_t samples : {1, 3, 9}) check_network(make, grid, {samples, 8, 8, 8, 2});
    }
}

TEST_CASE("spatial: averages, dropout of cut tensors and a mean over all ranks equal one rank", "[parallel][spatial]") {
    using namespace spatial_networks;
    const auto make = [](auto&& parts) { return averaging_network(parts); };
    for (const auto& grid : std::vector<std::vector<int>>{{2, 1, 1}, {1, 3, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}})
        for (const index_t samples : {2, 5, 8}) check_network(make, grid, {samples, 7, 9, 8, 2});
}

TEST_CASE("spatial: evaluation equals one rank", "[parallel][spatial]") {
    using namespace spatial_networks;
    tensor<double> x = normals({3, 7, 9, 8, 2}, 1);
    auto net = averaging_network(whole_parts{});
    arena<double> weights(net.parameters(), 4);
    saved_tensors<double> none;
    const tensor<double> whole = net.forward(x.clone(), none, {.mode = mode::evaluate});
    run_ranks(2, [&](threads_communicator& c) {
        ranks_channel over(c);
        const rank_grid grid({1, 2, 1});
        spatial_parts<threads_communicator, double> parts(over, grid, {7, 9, 8});
        const spatial_partition cut = parts.cut();
        auto mine = averaging_network(parts);
        arena<double> values(mine.parameters(), 4);
        saved_tensors<double> unused;
        const tensor<double> y = mine.forward(own_rows(x, cut, grid, c.rank()), unused, {.mode = mode::evaluate});
        const range share = share_of_samples(3, 2, c.rank()).samples;
        require(y.shape() == shape{share.count, 3} && unused.empty(), "evaluation");
        for (index_t i = 0; i < y.size(); ++i)
            require(std::abs(y[i] - whole[share.begin * 3 + i]) < 1e-12, "element ", i);
    });
}

TEST_CASE("spatial: gradients have the same bits in every run", "[parallel][spatial]") {
    using namespace spatial_networks;
    std::vector<double> first;
    std::mutex one_at_a_time;
    for (int run = 0; run < 3; ++run)
        run_ranks(4, [&](threads_communicator& c) {
            ranks_channel over(c);
            const rank_grid grid({2, 2, 1});
            spatial_parts<threads_communicator, double> parts(over, grid, {7, 9, 8});
            const spatial_partition cut = parts.cut();
            auto net = averaging_network(parts);
            arena<double> weights(net.parameters(), 4);
            saved_tensors<double> saved;
            tensor<double> x = normals({4, 7, 9, 8, 2}, 1);
            group_over group(c.split(0, c.rank()));
            const pass_context pass{.group = &group};
            const tensor<double> y = net.forward(own_rows(x, cut, grid, c.rank()), saved, pass);
            const tensor<double> dx = net.backward(tensor<double>::filled(y.shape(), 1.0), saved, pass);
            const std::scoped_lock lock(one_at_a_time);
            if (c.rank() != 3) return;
            const std::vector<double> bits(dx.data(), dx.data() + dx.size());
            if (first.empty()) first = bits;
            require(first == bits, "other bits in run ", run);
        });
}

TEST_CASE("spatial: what does not fit is refused by all ranks alike", "[parallel][spatial]") {
    using namespace spatial_networks;
    const auto message = [](int ranks, auto&& action) {
        std::string text;
        std::mutex one_at_a_time;
        run_ranks(ranks, [&](threads_communicator& c) {
            ranks_channel over(c);
            try {
                action(over);
            } catch (const error& e) {
                const std::scoped_lock lock(one_at_a_time);
                require(text.empty() || text == e.what() || text.find("on rank") != std::string::npos,
                        "other words: ", text, " and ", e.what());
                text = e.what();
                return;
            }
            fail("rank ", c.rank(), " refuses nothing");
        });
        return text;
    };
    const auto layers = [](ranks_channel& over, std::vector<int> grid) {
        return spatial_layers<threads_communicator, double>{&over, rank_grid(std::move(grid))};
    };
    const auto even = [](const rank_grid& grid, const shape& s) { return spatial_partition::even(grid, s, "test"); };

    CHECK_THAT(message(4,
                       [&](ranks_channel& over) {
                           const auto make = layers(over, {4});
                           const auto cut = even(make.grid, {8});
                           make.convolution({.in = 1, .out = 1, .kernel = 7, .pad = 3, .dims = 1}, cut, cut);
                       }),
               Contains("conv 7 1 -> 1") && Contains("axis width") && Contains("halo of 3 rows") &&
                   Contains("has 2: halo wider than a shard"));
    CHECK_THAT(message(2, [&](ranks_channel& over) { spatial_parts<threads_communicator>(over, rank_grid({3}), {9}); }),
               Contains("2 ranks for a grid 3"));
    CHECK_THAT(message(4,
                       [&](ranks_channel& over) {
                           spatial_parts<threads_communicator> parts(over, rank_grid({4, 1}), {6, 6});
                           parts.pool({.kernel = 2, .dims = 2});
                       }),
               Contains("max_pool") && Contains("axis height has 3 rows for 4 ranks"));
    CHECK_THAT(message(2,
                       [&](ranks_channel& over) {
                           spatial_parts<threads_communicator> parts(over, rank_grid({2, 1}), {6, 6});
                           parts.conv({.in = 1, .out = 1, .dims = 3});
                       }),
               Contains("3 spatial axes over a rank grid 2x1"));
    CHECK_THAT(message(2,
                       [&](ranks_channel& over) {
                           const auto make = layers(over, {2});
                           const auto cut = even(make.grid, {8});
                           make.convolution({.in = 1, .out = 1, .kernel = 3, .dims = 1}, cut, cut);
                       }),
               Contains("of 8 rows gives 6, the partition of the results has 8"));
    CHECK_THAT(message(2,
                       [&](ranks_channel& over) {
                           auto cut = even(rank_grid({2}), {8});
                           cut.axes[0][1].begin = 5;
                           gather_samples<threads_communicator>(over, rank_grid({2}), cut);
                       }),
               Contains("begins where the one before it ends"));
    CHECK_THAT(message(2,
                       [&](ranks_channel& over) {
                           const auto make = layers(over, {2});
                           const auto cut = even(make.grid, {8});
                           const auto layer =
                               make.convolution({.in = 1, .out = 1, .kernel = 3, .pad = 1, .dims = 1}, cut, cut);
                           layer.output_shape({2, 8, 1});
                       }),
               Contains("of a grid 2 takes the rows (N, (4), C)") && Contains("got (2, 8, 1)"));
    CHECK_THAT(message(2,
                       [&](ranks_channel& over) {
                           sample_dropout<double> drop(0.5, over.size(), over.rank());
                           saved_tensors<double> saved;
                           drop.forward(tensor<double>::zeros({2, 3}), saved, {});
                       }),
               Contains("set random.samples of the pass"));
    CHECK_THROWS_WITH(rank_grid({2, 0}), Contains("2x0") && Contains("positive"));
    CHECK_THROWS_WITH(rank_grid({1, 1, 1, 1}), Contains("4 axes"));
}

TEST_CASE("spatial: bytes of a halo are the closed formula", "[parallel][spatial]") {
    using namespace spatial_networks;
    // 8³ over 2³ ranks, kernel 3, padding 1: slabs of one row, 4·4, then 6·4, then 6·6.
    const rank_grid grid({2, 2, 2});
    const auto cut = spatial_partition::even(grid, {8, 8, 8}, "test");
    std::vector<axis_halo> halos;
    for (const auto& shards : cut.axes)
        halos.push_back(axis_halos(shards, shards, {.kernel = 3, .pad = 1}, "conv", "axis")[0]);
    CHECK(halo_elements(halos, 5, 7) == 5 * 7 * (4 * 4 + 6 * 4 + 6 * 6));
    // 12 rows over 3 ranks: the middle one has two neighbours; kernel 5, dilation 2: four rows to each.
    const auto row = shards_of(12, 3);
    const auto three = axis_halos(row, row, {.kernel = 5, .pad = 4, .dilation = 2}, "conv", "axis");
    CHECK(halo_elements({three[0]}, 2, 3) == 2 * 3 * 4);
    CHECK(halo_elements({three[1]}, 2, 3) == 2 * 3 * 8);
}

TEST_CASE("spatial: needed rows are those that plain loops touch", "[parallel][spatial]") {
    using namespace spatial_networks;
    for (index_t kernel = 1; kernel <= 4; ++kernel)
        for (index_t stride = 1; stride <= 3; ++stride)
            for (index_t pad = 0; pad <= 3; ++pad)
                for (index_t dilation = 1; dilation <= 3; ++dilation) {
                    const axis_window w{kernel, stride, pad, dilation};
                    const index_t in = 11, outputs = w.output_extent(in);
                    if (outputs == 0) continue;
                    for (index_t first = 0; first < outputs; ++first)
                        for (index_t end = first + 1; end <= outputs; ++end) {
                            index_t least = 2 * in, most = -pad - 1;
                            for (index_t o = first; o < end; ++o)
                                for (index_t t = 0; t < kernel; ++t) {
                                    least = std::min(least, o * stride + t * dilation - pad);
                                    most = std::max(most, o * stride + t * dilation - pad);
                                }
                            const range rows = w.inputs_of({first, end - first});
                            REQUIRE((rows.begin == least && rows.end() == most + 1 && most < in + pad));
                        }
                }
}
