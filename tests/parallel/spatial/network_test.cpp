#include "catch.hpp"
#include "data/writers.hpp"
#include "parallel/spatial/networks.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/data/npy_box.hpp>

#include <mutex>

namespace spatial_networks {

using namespace cairn;
using cairn::index_t;
using Catch::Matchers::Contains;
using ranks_channel = channel<threads_communicator>;

// `make(parts)` on a grid of threads equals make(whole parts) on one rank.
template <class Make>
void check_network(Make&& make, const std::vector<int>& extents, const shape& input) {
    const outcome alone = on_one_rank(make, input);
    const rank_grid grid(extents);
    run_ranks(grid.size(), [&](threads_communicator& c) { check_on(c, grid, make, input, alone); });
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

TEST_CASE("spatial: recomputed layers exchange again", "[parallel][spatial]") {
    using namespace spatial_networks;
    const auto make = [](auto&& parts) {
        auto net = averaging_network(parts);
        if constexpr (!std::is_same_v<std::decay_t<decltype(parts)>, whole_parts>) net.recompute({{0, 2}, {2, 6}});
        return net;
    };
    for (const auto& grid : std::vector<std::vector<int>>{{2, 1, 1}, {1, 2, 2}})
        check_network(make, grid, {4, 7, 9, 8, 2});
}

TEST_CASE("spatial: a rank reads its rows of a file alone", "[parallel][spatial]") {
    using namespace spatial_networks;
    tensor<double> whole = normals({2, 7, 9, 8, 2}, 1);
    const cairn::test::temporary_folder folder;
    const std::vector<double> values(whole.data(), whole.data() + whole.size());
    const auto path =
        folder.write("volumes.npy", cairn::test::npy_file("<f8", "(2, 7, 9, 8, 2)", cairn::test::elements_of(values)));
    const rank_grid grid({2, 2, 2});
    const auto cut = spatial_partition::even(grid, {7, 9, 8}, "volumes");
    for (int r = 0; r < grid.size(); ++r) {
        const tensor<double> rows = own_rows(whole, cut, grid, r);
        const auto read = read_npy_box(path, cut.begin(grid, r), rows.shape()).to_tensor<double>();
        REQUIRE(read.shape() == rows.shape());
        REQUIRE(std::equal(read.data(), read.data() + read.size(), rows.data()));
    }
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

TEST_CASE("spatial: batch norm of cut samples refuses to take the statistics of a part", "[parallel][spatial]") {
    using namespace spatial_networks;
    CHECK_THAT(cairn::test::message_of([] {
                   run_ranks(2, [](threads_communicator& c) {
                       ranks_channel over(c);
                       spatial_parts<threads_communicator, double> parts(over, rank_grid({2, 1, 1}), {8, 8, 8});
                       batch_norm<double>::config settings{.channels = 2};
                       auto layer = parts.norm(settings);
                       arena<double> weights(layer.parameters(), 1);
                       saved_tensors<double> saved;
                       layer.forward(normals({2, 4, 8, 8, 2}, 1), saved, {});
                   });
               }),
               Contains("samples are cut over 2 ranks") && Contains("group_over"));
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
                           dropout<double> drop = sample_dropout<double>(0.5, over.size(), over.rank());
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
