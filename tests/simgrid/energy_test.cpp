// Joules of simulations: SimGrid's documented examples, and this library's use of its plugins against closed forms.

#include "simgrid/simulated.hpp"

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/train/pipeline_energy.hpp>

#include <numeric>
#include <sstream>
#include <vector>

namespace cairn {

namespace {

namespace s4u = simgrid::s4u;

/// Hosts that draw 100 W idle, 250 W waiting, and 700 W busy; cables that draw 4 to 10 W.
machine_description powered(int hosts) {
    machine_description m = test::star(hosts);
    m.power = host_power{100, 250, {{1, 700}, {0.9, 578}, {0.8, 480}, {0.7, 404}}};
    m.cable_power = link_power{4, 10};
    return m;
}

/// A second of a core at full frequency, of which its bytes need the whole where `memory`.
void busy_for(double seconds, bool memory = false) {
    phantom_here->charge({.kind = memory ? "copy" : "reduce", .flops = seconds * 1e9, .bytes = seconds * 1e10});
}

/// With rates for busy_for().
machine_description with_kernels(machine_description m) {
    m.kernels[{"reduce", "any"}] = {.flops = 1e9, .measured = {}};
    m.kernels[{"copy", "any"}] = {.bandwidth = 1e10, .measured = {}};
    return m;
}

/// seconds, hosts, links; then computing, waiting and idle joules of each rank.
template <class Body>
std::vector<double> joules_of(const machine_description& m, int ranks, Body body,
                              const std::string& on = test::contexts) {
    std::istringstream in(test::simulated(
        m, ranks, body,
        [](const simulation& s) {
            std::string all = concat(text_of(s.seconds), ' ', text_of(s.host_joules), ' ', text_of(s.link_joules));
            for (const simulated_rank& r : s.ranks)
                all += concat(' ', text_of(r.joules.computing), ' ', text_of(r.joules.waiting), ' ',
                              text_of(r.joules.idle));
            return all;
        },
        on));
    std::vector<double> numbers;
    for (double x = 0; in >> x;) numbers.push_back(x);
    return numbers;
}

/// Of the ranks.
double sum_of_causes(const std::vector<double>& told) { return std::accumulate(told.begin() + 3, told.end(), 0.0); }

}  // namespace

// examples/cpp/energy-exec: three hosts of "100:93.33:200, 93:90:170, 90:90:150" W on four cores, 10 W when off.
TEST_CASE("SimGrid: its documented joules of hosts", "[simgrid][energy]") {
    const auto told = in_child_process([]() -> std::string {
        std::string name = "cairn", quiet = "--log=root.thresh:warning",
                    actors = concat("--cfg=contexts/factory:", test::contexts);
        char* arguments[] = {name.data(), quiet.data(), actors.data(), nullptr};
        int count = 3;
        auto* const engine = new s4u::Engine(&count, arguments);
        sg_host_energy_plugin_init();
        auto* const zone = s4u::create_full_zone("zone");
        std::vector<s4u::Host*> hosts;
        for (const char* host : {"1", "2", "3"})
            hosts.push_back(zone->create_host(host, std::vector<double>{100e6, 50e6, 20e6})
                                ->set_core_count(4)
                                ->set_property("wattage_per_state", "100:93.33333333333333:200, 93:90:170, 90:90:150")
                                ->set_property("wattage_off", "10")
                                ->seal());
        zone->seal();
        std::string all;
        s4u::Actor::create("dvfs", hosts[0], [&] {
            const auto tell = [&](int i = 0) {
                all += text_of(sg_host_get_consumed_energy(hosts[static_cast<std::size_t>(i)])) + ' ';
            };
            s4u::this_actor::sleep_for(10), tell();
            s4u::this_actor::execute(100e6), tell();
            hosts[0]->set_pstate(2);
            s4u::this_actor::execute(100e6), tell();
            s4u::this_actor::sleep_for(4), tell();
            hosts[1]->turn_off();
            s4u::this_actor::sleep_for(10), tell(), tell(1), tell(2);
        });
        engine->run();
        return all;
    });
    std::istringstream in(told);
    for (const double expected : {1000, 1120, 1645, 2005, 2905, 2100, 3000}) {
        double got = 0;
        in >> got;
        CHECK(got == Approx(expected).epsilon(1e-9));
    }
}

// examples/cpp/energy-link: a bus of 100 kB/s and 1 to 3 W carries a message after 10 s.
TEST_CASE("SimGrid: its documented joules of a link", "[simgrid][energy]") {
    for (const auto& [bytes, expected] : {std::pair(25'000.0, 10.75), std::pair(50e6, 1510.0)}) {
        const auto told = in_child_process([bytes = bytes]() -> std::string {
            std::string arguments[] = {"cairn", "--log=root.thresh:warning", "--cfg=network/model:CM02",
                                       "--cfg=network/crosstraffic:no",
                                       concat("--cfg=contexts/factory:", test::contexts)};
            char* pointers[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                                arguments[3].data(), arguments[4].data(), nullptr};
            int count = 5;
            auto* const engine = new s4u::Engine(&count, pointers);
            sg_link_energy_plugin_init();
            auto* const zone = s4u::create_full_zone("zone");
            s4u::Host* const hosts[] = {zone->create_host("a", 1e9)->seal(), zone->create_host("b", 1e9)->seal()};
            auto* const bus = zone->create_link("bus", 100e3)->set_property("wattage_range", "1:3")->seal();
            zone->add_route(hosts[0]->get_netpoint(), hosts[1]->get_netpoint(), nullptr, nullptr,
                            {s4u::LinkInRoute(bus)}, true);
            zone->seal();
            s4u::Actor::create("a", hosts[0], [bytes] {
                s4u::this_actor::sleep_for(10);
                s4u::Mailbox::by_name("m")->put(new int(1), static_cast<std::uint64_t>(bytes));
            });
            s4u::Actor::create("b", hosts[1], [] { delete s4u::Mailbox::by_name("m")->get<int>(); });
            engine->run();
            return text_of(sg_link_get_consumed_energy(bus));
        });
        CHECK(std::stod(told) == Approx(expected).epsilon(1e-9));
    }
}

TEST_CASE("energy: a host draws P(load, p-state), for every load and p-state", "[simgrid][energy]") {
    machine_description m = with_kernels(powered(1));
    m.ranks_per_host = m.cores = 4;
    m.inside = link_model(1e-6, 1e-10, 0);
    for (int busy = 0; busy <= 4; ++busy) {  // of four ranks on four cores; the others wait for as long
        const auto told = joules_of(m, 4, [busy](simgrid_communicator& c) {
            if (c.rank() < busy) busy_for(2);
            if (c.rank() >= busy) phantom_here->pass(2);
        });
        const double watts = 250 + (700 - 250) * busy / 4.0;
        CHECK(told[1] == Approx(2 * watts).epsilon(1e-9));
        CHECK(m.power->watts(busy / 4.0) == Approx(watts));
        CHECK(sum_of_causes(told) == Approx(told[1]).epsilon(1e-9));
        CHECK(told[3] == Approx(busy > 0 ? 2 * 700 / 4.0 : 0));
    }
    for (std::size_t k = 0; k < m.power->states.size(); ++k) {
        const auto told = joules_of(with_kernels(powered(1)), 1, [k](simgrid_communicator&) {
            phantom_here->set_power_state(k);
            busy_for(2);
            phantom_here->pass(1);
        });
        const auto [frequency, watts] = m.power->states[k];
        CHECK(told[0] == Approx(2 / frequency + 1));
        CHECK(told[1] == Approx(2 / frequency * watts + 250));
        CHECK(told[3] == Approx(2 / frequency * watts));
        CHECK(told[4] == Approx(250));
        machine_description all_in_it = with_kernels(powered(1));
        all_in_it.power->state = k;
        CHECK(told == joules_of(all_in_it, 1, [](simgrid_communicator&) { busy_for(2), phantom_here->pass(1); }));
    }
}

TEST_CASE("energy: what memory bounds takes as long at any frequency", "[simgrid][energy]") {
    const auto told = joules_of(with_kernels(powered(1)), 1, [](simgrid_communicator&) {
        phantom_here->set_power_state(2);
        busy_for(2, true);
    });
    CHECK(told[0] == Approx(2));
    CHECK(told[1] == Approx(2 * 480));
}

TEST_CASE("energy: ranks that are through leave their host idle", "[simgrid][energy]") {
    const auto told = joules_of(with_kernels(powered(4)), 2, [](simgrid_communicator& c) { busy_for(1 + c.rank()); });
    CHECK(told == std::vector<double>{2, told[1], told[2], 700, 0, 100, 1400, 0, 0});
    CHECK(told[1] == Approx(2200));
    CHECK(told[2] == Approx(2 * 2 * 4));  // of two hosts that are used, of four
}

TEST_CASE("energy: hosts that share a processor are counted once", "[simgrid][energy]") {
    machine_description m = with_kernels(powered(4));
    m.cores = 2, m.hosts_per_processor = 4;
    const auto told = joules_of(m, 4, [](simgrid_communicator&) { busy_for(1); });  // two at a time
    CHECK(told[0] == Approx(2));
    CHECK(told[1] == Approx(2 * 700));
    CHECK(sum_of_causes(told) == Approx(2 * 700));
    CHECK(test::contains(test::simulated_error(m, 4, [](simgrid_communicator&) { phantom_here->set_power_state(1); }),
                         "it shares its processor with other ranks"));
    CHECK(test::contains(
        test::simulated_error(powered(1), 1, [](simgrid_communicator&) { phantom_here->set_power_state(4); }),
        "no p-state 4"));
}

// Ring: 2 (p−1) messages of n / p bytes on a way up and a way down of each rank's cable.
TEST_CASE("energy: joules of an all-reduce are the closed form", "[simgrid][energy]") {
    for (const int p : {2, 3, 4, 8, 16}) {
        const machine_description m = powered(p);
        const index_t count = 1'000'000L * p;
        const auto all_reduce_once = [count](simgrid_communicator& c) {
            tensor<float> data({count});
            all_reduce(c, data.span(), {.algorithm = all_reduce_algorithm::ring});
        };
        const auto told = joules_of(m, p, all_reduce_once);
        const double part = 4e6, steps = 2.0 * (p - 1);
        const double adding = (p - 1) * part * 3e-10, seconds = steps * (1e-5 + part * 1e-9) + adding;
        CHECK(told[0] == Approx(seconds).epsilon(1e-6));
        CHECK(told[1] == Approx(p * (250 * seconds + (700 - 250) * adding)).epsilon(1e-6));
        CHECK(told[2] == Approx(p * (4 * seconds + (10 - 4) * (seconds - adding))).epsilon(1e-6));
        CHECK(sum_of_causes(told) == Approx(told[1]).epsilon(1e-9));
        CHECK(told == joules_of(m, p, all_reduce_once));  // to the bit
        if (p == 4) CHECK(told == joules_of(m, p, all_reduce_once, "thread"));
    }
}

namespace {

/// A rank's part of a pipeline's step: kernels in their p-states, messages of 100 KB; then gradients of 4 MB are added
/// up by the ranks of one stage.
void pipeline_step(simgrid_communicator& c, const pipeline_program& program, const pipeline_actions& all,
                   const std::vector<std::size_t>& plan) {
    const int stage = c.rank() % program.ranks, last = program.ranks - 1;
    simgrid_communicator same_stage = c.split(stage, c.rank());
    const tensor<float> data({25'000});
    std::vector<simgrid_communicator::request> sent;
    const auto send_to = [&](int peer, int tag) {
        sent.push_back(c.isend(std::as_bytes(data.span()), c.rank() + peer - stage, tag));
    };
    for (std::size_t i = 0; i < all.actions.size(); ++i) {
        if (all.places[i].rank != stage) continue;
        const action& a =
            program.actions[static_cast<std::size_t>(stage)][static_cast<std::size_t>(all.places[i].position)];
        const bool forward = a.kind == action_kind::forward;
        const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
        tensor<float> received({25'000});
        if (from >= 0 && from <= last) recv(c, received.span(), c.rank() + from - stage, 2 * a.micro_batch + forward);
        phantom_here->set_power_state(plan[i]);
        busy_for(all.actions[i].seconds);
        if (to >= 0 && to <= last) send_to(to, 2 * a.micro_batch + forward);
    }
    for (auto& request : sent) request.wait();
    phantom_here->set_power_state(0);
    tensor<float> sum({1'000'000});
    all_reduce(same_stage, sum.span(), {.algorithm = all_reduce_algorithm::ring});
}

}  // namespace

// Of 8 stages the last is 15 % heavier; 8 such pipelines; of 64 data-parallel ranks one is 15 % slower.
TEST_CASE("energy: frequency on slack saves 5 % of the joules at 1 % more time at most", "[simgrid][energy]") {
    const machine_description m = with_kernels(powered(64));
    const auto saves = [&](const std::string& what, const auto& step, const std::vector<timed_action>& actions) {
        const std::vector<std::size_t> full(actions.size(), 0), slow = frequencies_on_slack(actions, *m.power);
        const auto before = joules_of(m, 64, [&](simgrid_communicator&c) { step(c, full); }),
                   after = joules_of(m, 64, [&](simgrid_communicator&c) { step(c, slow); });
        INFO(what << ": joules " << after[1] / before[1] - 1 << ", seconds " << after[0] / before[0] - 1);
        CHECK(after[1] + after[2] <= 0.95 * (before[1] + before[2]));
        CHECK(after[0] <= 1.01 * before[0]);
    };
    const pipeline_program program = make_schedule("1f1b", {.ranks = 8, .micro_batches = 32});
    std::vector<stage_costs> costs(8, {0.02, 0.02, 0.02});
    costs.back() = costs.back() / (1 / 1.15);
    const pipeline_actions pipeline = actions_of(program, costs);
    saves(
        "pipeline", [&](simgrid_communicator& c, const auto& plan) { pipeline_step(c, program, pipeline, plan); },
        pipeline.actions);

    std::vector<timed_action> ranks(64, {.seconds = 1, .needs = {}});
    ranks[17].seconds = 1.15;
    saves(
        "straggler",
        [&](simgrid_communicator& c, const auto& plan) {
            const auto rank = static_cast<std::size_t>(c.rank());
            phantom_here->set_power_state(plan[rank]);
            busy_for(ranks[rank].seconds);
            phantom_here->set_power_state(0);
            tensor<float> sum({1'000'000});
            all_reduce(c, sum.span(), {.algorithm = all_reduce_algorithm::ring});
        },
        ranks);
}

TEST_CASE("energy: a rank can ask for the joules so far; without watts there are none", "[simgrid][energy]") {
    CHECK(test::simulated_error(with_kernels(powered(2)), 2, [](simgrid_communicator& c) {
              if (c.rank() > 0) return phantom_here->pass(3);
              busy_for(1);
              const double before = phantom_here->joules();
              busy_for(2);
              const double during = phantom_here->joules() - before, expected = 2 * (700 + 250 + 2 * 4);
              require(std::abs(during - expected) < 1e-6, during, " J instead of ", expected);
          }) == "");
    CHECK(joules_of(test::star(1), 1, [](simgrid_communicator&) { phantom_here->pass(1); }) ==
          std::vector<double>{1, 0, 0, 0, 0, 0});
}

}  // namespace cairn
