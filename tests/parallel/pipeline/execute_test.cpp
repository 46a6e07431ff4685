// Pipelines on ranks that are threads: the bits of one rank with the same micro-batches, under every schedule.

#include "catch.hpp"
#include "messages.hpp"
#include "parallel/pipeline/networks.hpp"

#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

namespace pipelines {

namespace {

void check_equal(const outcome& got, const outcome& expected) {
    CHECK(got.losses == expected.losses);
    CHECK(got.predictions == expected.predictions);
    CHECK(got.buffers == expected.buffers);
    CHECK(got.gradients.size() == expected.gradients.size());
    for (const auto& [name, values] : expected.gradients) {
        CAPTURE(name);
        const auto at = got.gradients.find(name);
        REQUIRE(at != got.gradients.end());
        CHECK(at->second == values);
    }
}

pipeline_program schedule(const std::string& name, int ranks, int micro_batches, int virtual_stages = 0) {
    pipeline_program p = make_schedule(name, {ranks, micro_batches, virtual_stages});
    validate(p, {.serial_order = true});
    return p;
}

}  // namespace

TEST_CASE("pipeline: every network on 2 and 4 ranks has the bits of one rank", "[pipeline]") {
    for (const network& net : networks()) {
        const outcome expected = alone(net, 5);
        for (const auto& [name, ranks] : {std::pair("1f1b", 2), std::pair("zb_h1", 4)}) {
            CAPTURE(net.name, name, ranks);
            check_equal(together(net, schedule(name, ranks, 5)), expected);
        }
    }
}

TEST_CASE("pipeline: ResNet-20 cut inside its blocks has the bits of one rank", "[pipeline]") {
    const network net{"resnet20", [] { return resnet_cifar<double>(20, 10); }, {1, 8, 8, 3}};
    const outcome expected = alone(net, 4);
    for (const auto& [name, ranks] : {std::pair("1f1b", 2), std::pair("zb_h1", 4), std::pair("gpipe", 8)}) {
        CAPTURE(name, ranks);
        const std::vector<shape> boundaries = boundaries_of(stages_of(net, ranks), net.sample);
        const auto inside = std::ranges::count_if(boundaries, [](const shape& s) { return s.rank() == 2; });
        CHECK(inside > (ranks > 2 ? 1 : 0));  // bundles, and the output
        check_equal(together(net, schedule(name, ranks, 4)), expected);
    }
}

TEST_CASE("pipeline: any cut of a residual network has the bits of one rank", "[pipeline]") {
    const network& net = network_named("resnet");
    const outcome expected = alone(net, 3);
    model whole = net.make();
    const auto units = static_cast<int>(units_of(whole, net.sample).size());
    for (int at = 1; at < units; ++at) {
        CAPTURE(at);
        check_equal(together(net, schedule("gpipe", 2, 3), {}, {at}), expected);
    }
    check_equal(together(net, schedule("gpipe", units, 3)), expected);  // every unit by itself
}

TEST_CASE("pipeline: every schedule has the bits of one rank", "[pipeline]") {
    const network& net = network_named("mlp");
    const outcome expected = alone(net, 4);
    for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_h2", "interleaved", "interleaved_zb", "zb_v", "v_half",
                             "v_min", "dualpipe_v", "auto"}) {
        CAPTURE(name);
        check_equal(together(net, schedule(name, 2, 4)), expected);
    }
}

TEST_CASE("pipeline: all networks, schedules, ranks and micro-batches", "[.exhaustive]") {
    for (const network& net : networks())
        for (const int m : {3, 8}) {
            const outcome expected = alone(net, m);
            model whole = net.make();
            const auto units = static_cast<int>(units_of(whole, net.sample).size());
            for (const int p : {2, 3, 4, 8})
                for (const schedule_entry& entry : schedules()) {
                    if (entry.name == "dualpipe") continue;
                    pipeline_program program;
                    try {
                        program = schedule(std::string(entry.name), p, m);
                    } catch (const error&) {
                        continue;  // the schedule does not take these
                    }
                    if (program.stages() > units) continue;
                    CAPTURE(net.name, entry.name, p, m);
                    check_equal(together(net, program), expected);
                }
        }
}

TEST_CASE("pipeline: lists of one's own run in any order that is valid", "[pipeline]") {
    const network& net = network_named("mlp");
    pipeline_program p = schedule("gpipe", 2, 3);
    p.actions = {parse_actions("0F2 0F0 0F1 0I1 0I2 0W2 0I0 0W1 0W0"), parse_actions("1F1 1B1 1F2 1F0 1B0 1I2 1W2")};
    validate(p);
    const outcome expected = alone(net, 3), got = together(net, p);
    CHECK(got.losses == expected.losses);
    for (const auto& [name, values] : expected.gradients)
        for (std::size_t i = 0; i < values.size(); ++i)
            REQUIRE(got.gradients.at(name)[i] == Approx(values[i]).epsilon(1e-12).margin(1e-15));
}

TEST_CASE("pipeline: micro-batches that a rank has saved are those of the validator", "[pipeline]") {
    // Stages alike: what one of them saves for a micro-batch is what each does.
    const network net{"alike",
                      [] {
                          model all;
                          for (int i = 0; i < 4; ++i) all.add(concat("map", i), linear<double>({.in = 10, .out = 10}));
                          return all;
                      },
                      {1, 10},
                      false,
                      true};
    const auto bytes = static_cast<double>(block_bytes<double>({2, 10}));
    const std::vector<saved_bytes> of_stage(4, {bytes, 2 * bytes});  // the input; after I the gradient too
    for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_h2"}) {
        const pipeline_program p = schedule(name, 4, 8);
        std::vector<index_t> most(4);
        together(net, p, [&](int rank) {
            most[static_cast<std::size_t>(rank)] = memory_pool::host().use_of(memory_category::saved).peak;
        });
        CAPTURE(name);
        for (int r = 0; r < 4; ++r)
            CHECK(static_cast<double>(most[static_cast<std::size_t>(r)]) == peak_saved(p, r, of_stage));
    }
}

TEST_CASE("pipeline: a rank that dies is named by those that wait, with their action", "[pipeline]") {
    const network& net = network_named("mlp");
    const pipeline_program program = schedule("1f1b", 4, 4);
    std::vector<std::string> seen(4);
    const std::string why = test::message_of([&] {
        run_ranks(4, {.kernel_threads = 1, .time_limit = 5}, [&](threads_communicator& c) {
            channel<threads_communicator> over(c);
            std::vector<model> every = stages_of(net, 4), mine;
            stage_links<double, cpu, threads_communicator> links(over, boundaries_of(every, net.sample));
            mine.push_back(std::move(every[static_cast<std::size_t>(c.rank())]));
            pipeline_program p = program;
            if (c.rank() == 2) p.actions[2].resize(3);
            if (c.rank() == 2) p.actions[2].push_back({action_kind::forward, 0, 0});
            try {
                run_stages(net, p, p, mine, links);
            } catch (const error& e) {
                seen[static_cast<std::size_t>(c.rank())] = e.what();
                throw;
            }
        });
    });
    CHECK(test::contains(why, "rank 2: pipeline rank 2, action 0F0: this rank has 1 of 4 stages, and not this one"));
    for (const std::size_t r : {0u, 1u, 3u}) {
        CAPTURE(r, seen[r]);
        CHECK(test::contains(seen[r], concat("pipeline rank ", r, ", action ")));
        CHECK(test::contains(seen[r], "rank 2"));
    }
}

TEST_CASE("pipeline: a rank that hangs is named within the time limit", "[pipeline]") {
    const network& net = network_named("mlp");
    const pipeline_program program = schedule("gpipe", 2, 2);
    const std::string why = test::message_of([&] {
        run_ranks(2, {.kernel_threads = 1, .time_limit = 0.3}, [&](threads_communicator& c) {
            channel<threads_communicator> over(c);
            std::vector<model> every = stages_of(net, 2), mine;
            stage_links<double, cpu, threads_communicator> links(over, boundaries_of(every, net.sample));
            mine.push_back(std::move(every[static_cast<std::size_t>(c.rank())]));
            if (c.rank() == 0) return;  // gone without a word
            run_stages(net, program, program, mine, links);
        });
    });
    CHECK(test::contains(why,
                         "pipeline rank 1, action 1F0: waiting for the activation of micro-batch 0 between stages 0 "
                         "and 1 from rank 0"));
}

TEST_CASE("pipeline: what cannot run is refused", "[pipeline]") {
    const network& net = network_named("mlp");
    CHECK(test::contains(test::message_of([&] { together(net, make_schedule("dualpipe", {2, 4})); }), "two copies"));
    CHECK(test::contains(test::message_of([&] { together(net, schedule("1f1b", 9, 9)); }),
                         "9 stages, but the model has"));
}

}  // namespace pipelines
