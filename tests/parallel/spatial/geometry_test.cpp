#include "catch.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/parallel/spatial/sample_switch.hpp>
#include <cairn/parallel/spatial/windowed.hpp>

#include <cmath>
#include <mutex>
#include <random>

namespace spatial_geometry {

using namespace cairn;
using cairn::index_t;
using Catch::Matchers::Contains;
using counted = counting_communicator<threads_communicator>;

enum class kind { convolution, maximum, average };

// A layer of some kind between two tensors, cut somehow.
struct problem {
    kind what;
    rank_grid grid;
    spatial_partition in, out;
    std::vector<axis_window> windows;
    index_t n, channels, out_channels, groups;
    bool count_pad, two_halves;
    std::string text;
};

per_axis setting(const problem& p, index_t axis_window::*which) {
    const auto at = [&](std::size_t a) { return p.windows[a].*which; };
    if (p.windows.size() == 1) return {at(0)};
    return p.windows.size() == 2 ? per_axis{at(0), at(1)} : per_axis{at(0), at(1), at(2)};
}

tensor<double> numbers(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream random{5, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
    return t;
}

// As even as they come, then some rows moved between neighbours.
axis_shards drawn_shards(index_t extent, int ranks, std::mt19937& random) {
    axis_shards shards = shards_of(extent, ranks);
    for (std::size_t r = 0; r + 1 < shards.size(); ++r) {
        const auto move = static_cast<index_t>(random() % 3) - 1;
        if (shards[r].count + move < 1 || shards[r + 1].count - move < 1) continue;
        shards[r].count += move;
        shards[r + 1].begin += move;
        shards[r + 1].count -= move;
    }
    return shards;
}

// Draws until every axis has a halo that is not refused.
problem drawn_problem(unsigned number, int& refused) {
    std::mt19937 random(number);
    const auto from_to = [&](index_t least, index_t most) {
        return least + static_cast<index_t>(random() % static_cast<unsigned>(most - least + 1));
    };
    const int dims = static_cast<int>(from_to(1, 3));
    std::vector<int> ranks;
    for (int a = 0, all = 1; a < dims; ++a) {
        const int most = std::min(8 / all, dims == 1 ? 8 : 4);
        ranks.push_back(static_cast<int>(from_to(dims == 1 ? 2 : 1, most)));
        all *= ranks.back();
    }
    problem p{.what = static_cast<kind>(std::max<index_t>(0, from_to(-2, 2))), .grid = rank_grid(ranks)};
    for (int a = 0; a < dims;) {
        const int parts = p.grid.extent(a);
        axis_window w{.kernel = from_to(1, p.what == kind::convolution ? 5 : 4), .stride = from_to(1, 3)};
        if (p.what == kind::convolution) w.dilation = from_to(1, 3);
        w.pad = from_to(0, p.what == kind::convolution ? (w.kernel - 1) * w.dilation + 1 : w.kernel / 2);
        const index_t extent = from_to(parts, dims == 3 ? 5 + 4 * parts : 8 + 6 * parts), out = w.output_extent(extent);
        if (out < parts) continue;
        const axis_shards in = drawn_shards(extent, parts, random), result = drawn_shards(out, parts, random);
        try {
            axis_halos(in, result, w, "layer", "axis");
        } catch (const error& e) {
            require(std::string(e.what()).find("halo wider than a shard") != std::string::npos, e.what());
            ++refused;
            continue;
        }
        p.in.axes.push_back(in);
        p.out.axes.push_back(result);
        p.windows.push_back(w);
        p.text +=
            concat(" [", extent, " over ", parts, ": k", w.kernel, " s", w.stride, " p", w.pad, " d", w.dilation, ']');
        ++a;
    }
    p.n = from_to(1, 3);
    p.groups = from_to(1, 2);
    p.channels = p.groups * from_to(1, 2);
    p.out_channels = p.what == kind::convolution ? p.groups * from_to(1, 3) : p.channels;
    p.count_pad = from_to(0, 1);
    p.two_halves = from_to(0, 1);
    p.text = concat("geometry ", number, ", kind ", static_cast<int>(p.what), ", n ", p.n, p.text);
    return p;
}

conv<double>::config conv_config(const problem& p) {
    return {.in = p.channels,
            .out = p.out_channels,
            .kernel = setting(p, &axis_window::kernel),
            .stride = setting(p, &axis_window::stride),
            .pad = setting(p, &axis_window::pad),
            .dilation = setting(p, &axis_window::dilation),
            .groups = p.groups,
            .dims = p.grid.dims()};
}
max_pool<double>::config max_config(const problem& p) {
    return {.kernel = setting(p, &axis_window::kernel),
            .stride = setting(p, &axis_window::stride),
            .pad = setting(p, &axis_window::pad),
            .dims = p.grid.dims()};
}
average_pool<double>::config average_config(const problem& p) {
    return {.kernel = setting(p, &axis_window::kernel),
            .stride = setting(p, &axis_window::stride),
            .pad = setting(p, &axis_window::pad),
            .count_include_pad = p.count_pad,
            .dims = p.grid.dims()};
}

struct results {
    tensor<double> y, dx, dw;
};

template <class L, class Hook>
results run(L layer, tensor<double> x, tensor<double> dy, bool two_halves, Hook&& after_forward) {
    arena<double> weights(layer.parameters(), 3);
    saved_tensors<double> saved;
    const pass_context pass;
    results r;
    r.y = layer.forward(std::move(x), saved, pass).clone();
    after_forward();
    require(r.y.shape() == dy.shape(), "y ", r.y.shape(), ", expected ", dy.shape());
    if (two_halves) {
        r.dx = layer.backward_input(std::move(dy), saved, pass);
        layer.backward_weight(saved, pass);
    } else {
        r.dx = cairn::backward(layer, std::move(dy), saved, pass);
    }
    require(saved.empty(), "saved tensors are left");
    r.dw = weights.grads().share();
    return r;
}

double difference(const tensor<double>& a, const tensor<double>& b) {
    require(a.shape() == b.shape(), "shapes ", a.shape(), " and ", b.shape());
    double most = 0, scale = 1;
    for (index_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return std::isfinite(most) ? most / scale : 1e300;
}

// `action` with the layer of a whole problem, or with that of one rank.
template <class Action>
results with_whole(const problem& p, Action&& action) {
    if (p.what == kind::convolution) return action(conv<double>(conv_config(p)));
    if (p.what == kind::maximum) return action(max_pool<double>(max_config(p)));
    return action(average_pool<double>(average_config(p)));
}
template <class Action>
results with_cut(const problem& p, channel<counted>& over, Action&& action) {
    const spatial_layers<counted, double> make{&over, p.grid};
    if (p.what == kind::convolution) return action(make.convolution(conv_config(p), p.in, p.out));
    if (p.what == kind::maximum) return action(make.maximum(max_config(p), p.in, p.out));
    return action(make.average(average_config(p), p.in, p.out));
}

void check_problem(const problem& p) {
    tensor<double> x = numbers(p.in.tensor_shape(p.grid, -1, p.n, p.channels), 1),
                   dy = numbers(p.out.tensor_shape(p.grid, -1, p.n, p.out_channels), 2);
    results whole =
        with_whole(p, [&](auto layer) { return run(std::move(layer), x.clone(), dy.clone(), false, [] {}); });
    tensor<double> dw = whole.dw.empty() ? tensor<double>{} : tensor<double>::zeros(whole.dw.shape());
    std::mutex one_at_a_time;
    run_ranks(p.grid.size(), [&](threads_communicator& c) {
        counted world(c.split(0, c.rank()));
        channel<counted> over(world);
        const int me = over.rank();
        tensor<double> my_x, my_dy;
        results expected;
        {
            const std::scoped_lock lock(one_at_a_time);
            my_x = own_rows(x, p.in, p.grid, me);
            my_dy = own_rows(dy, p.out, p.grid, me);
            expected.y = own_rows(whole.y, p.out, p.grid, me);
            expected.dx = own_rows(whole.dx, p.in, p.grid, me);
        }
        over.device.reset();
        const results mine = with_cut(p, over, [&](auto layer) {
            require(layer.output_shape(my_x.shape()) == my_dy.shape(), "output_shape");
            const std::int64_t formula = halo_elements(layer.halo().axes(), p.n, p.channels) * 8;
            return run(std::move(layer), my_x.clone(), my_dy.clone(), p.two_halves, [&] {
                const std::int64_t bytes = over.device.counts().bytes;
                require(bytes == formula, p.text, ": ", bytes, " bytes sent, halos of ", formula);
            });
        });
        const auto& all = over.device.counts();  // what forward borrows, backward returns
        require(all.bytes == all.received_bytes, p.text, ": ", all);
        require(difference(mine.y, expected.y) < 1e-12, p.text, ": y");
        require(difference(mine.dx, expected.dx) < 1e-12, p.text, ": dx");
        const std::scoped_lock lock(one_at_a_time);
        if (!dw.empty()) for_each(functors::add{}, dw, mine.dw);
    });
    if (!dw.empty()) REQUIRE(difference(dw, whole.dw) < 1e-12);
}

}  // namespace spatial_geometry

TEST_CASE("spatial: drawn geometries equal the whole layer", "[parallel][spatial]") {
    int refused = 0;
    for (unsigned number = 0; number < 40; ++number)
        spatial_geometry::check_problem(spatial_geometry::drawn_problem(number, refused));
    CHECK(refused > 0);
}

TEST_CASE("spatial: 500 drawn geometries equal the whole layer", "[.exhaustive][parallel][spatial]") {
    int refused = 0;
    for (unsigned number = 0; number < 500; ++number)
        spatial_geometry::check_problem(spatial_geometry::drawn_problem(number, refused));
    CHECK(refused > 0);
}
