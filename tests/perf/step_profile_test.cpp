// The arithmetic of gpu_step's profile, on the host: a clock whose every mark is a second later.

#include "gpu/step_profile.hpp"
#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/linear.hpp>

#include <nlohmann/json.hpp>

namespace cairn {

namespace {

using namespace gpu_benchmark;

struct marking {
    std::vector<step_mark> marks;
    std::vector<trace_event> events;
    template <class Step>
    explicit marking(Step&& step) {
        const flop_counter::scope counting;
        trace::global().clear();
        trace::global().use_clock([this] {
            const auto work = flop_counter::total();
            marks.push_back({double(marks.size()), double(work.flops), double(work.bytes)});
            return double(marks.size() - 1);
        });
        trace::global().enable(true);
        step();
        trace::global().enable(false);
        trace::global().use_clock(nullptr);
        events = trace::global().events();
        trace::global().clear();
    }
};

const profile_row& row_of(const step_profile& p, const std::string& kind, const std::string& phase) {
    for (const profile_row& row : p.kinds)
        if (row.kind == kind && row.phase == phase) return row;
    FAIL("no row " << kind << ", " << phase);
    return p.kinds[0];
}

}  // namespace

TEST_CASE("step profile: kinds are the first word and a window's extents", "[step_profile]") {
    CHECK(kind_of_layer("conv 3x3 64 -> 128, stride 2") == "conv 3x3");
    CHECK(kind_of_layer("linear 784 -> 10") == "linear");
    CHECK(kind_of_layer("embedding 256 x 768") == "embedding");
    CHECK(kind_of_layer("max_pool 2x2x2 stride 2") == "max_pool 2x2x2");
    CHECK(kind_of_layer("relu") == "relu");
}

TEST_CASE("step profile: own time, floors and order of a network's layers", "[step_profile]") {
    sequential<> net, body;
    body.add("map", linear<>({.in = 8, .out = 8}));
    net.add("in", linear<>({.in = 4, .out = 8})).add("block", residual<>(std::move(body))).add("act", gelu<>());
    arena<float> weights(net.parameters(), 1);
    const index_t rows = 16;
    const marking m([&] {
        for (int step = 0; step < 2; ++step) {
            saved_tensors<float> saved;
            const pass_context p;
            tensor<float> y = net.forward(tensor<float>::filled({rows, 4}, 1), saved, p);
            net.backward(std::move(y), saved, p);
            const trace_scope update("update", "update", "compute");
            flop_counter::count(0, 1000);
        }
    });
    const double bandwidth = 1e3, rate = 1e5;
    const step_profile p = profile_of_steps(m.events, m.marks, 2, bandwidth, rate);

    // An interval without others inside lasts from one mark to the next.
    const profile_row& linear_forward = row_of(p, "linear", "forward");
    CHECK(linear_forward.calls == 2);
    CHECK(linear_forward.seconds == Approx(2));
    // block: begin, map's begin, map's end, end: two of three seconds are its own.
    CHECK(row_of(p, "between layers", "forward").seconds == Approx(2));
    CHECK(row_of(p, "gelu", "backward").seconds == Approx(1));
    CHECK(row_of(p, "update", "update").bytes_floor == Approx(1000 / bandwidth));
    CHECK(row_of(p, "update", "update").floor == Approx(1));
    CHECK(row_of(p, "update", "update").to_gain() == Approx(0).margin(1e-12));

    // Floors are the layers' costs.
    const auto floor_of = [&](const phase_cost& c) { return std::max(c.bytes / bandwidth, c.flops / rate); };
    const auto in = net[0].cost({rows, 4}), map = linear<>({.in = 8, .out = 8}).cost({rows, 8});
    CHECK(linear_forward.floor == Approx(floor_of(in.forward) + floor_of(map.forward)));
    CHECK(linear_forward.flops_floor == Approx((in.forward.flops + map.forward.flops) / rate));

    double all = 0;
    for (const auto& row : p.kinds) all += row.seconds;
    CHECK(all == Approx(p.seconds()));
    CHECK(p.phases.at("forward") == Approx(2 + 2 + 1));
    for (std::size_t i = 1; i < p.kinds.size(); ++i) CHECK(p.kinds[i - 1].to_gain() >= p.kinds[i].to_gain());

    const auto json = nlohmann::json::parse(as_json(p, 100, bandwidth, rate, 2));
    CHECK(json.at("gap_seconds").get<double>() == Approx(100 - p.seconds()));
    CHECK(json.at("kinds").size() == p.kinds.size());
    CHECK(json.at("layers").size() == 2);
    CHECK(json.at("phases").at("update").get<double>() == Approx(1));
}

}  // namespace cairn
