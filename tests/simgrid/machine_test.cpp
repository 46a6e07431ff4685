// What a simulated rank stands on: its processor, its helpers, its network, and what is its own on a shared thread.

#include "simgrid/simulated.hpp"

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/parallel/progress_thread.hpp>

namespace cairn {

namespace {

/// One second of a core.
void compute(double seconds) { phantom_here->charge({.kind = "reduce", .bytes = seconds * 1e10}); }

}  // namespace

TEST_CASE("simulated: ranks on two cores take 1, 1, 1.5 and 2 seconds", "[simgrid]") {
    const double expected[] = {1, 1, 1.5, 2};
    for (int p = 1; p <= 4; ++p) {
        machine_description together = test::star(1), apart = test::star(4);
        together.ranks_per_host = 4, together.inside = link_model(1e-6, 1e-10, 0);
        together.cores = apart.cores = 2;
        apart.hosts_per_processor = 4;
        for (const machine_description& m : {together, apart})
            CHECK(test::simulated_seconds(m, p, [](simgrid_communicator&) { compute(1); }) ==
                  Approx(expected[p - 1]).epsilon(1e-6));
    }
}

TEST_CASE("simulated: a rank that waits polls, and messages take the processor", "[simgrid]") {
    machine_description m = test::star(2, 1e-5, 1e-9, 3e-10);
    m.hosts_per_processor = 2;  // of one core
    m.polling = 0.25;
    m.copy = 2e-9;
    const double seconds = test::simulated_seconds(m, 2, [](simgrid_communicator& c) {
        tensor<float> data({25'000'000});
        if (c.rank() == 0) {
            compute(1);
            send(c, std::span<const float>(data.span()), 1, 1);
        } else {
            recv(c, data.span(), 0, 1);
        }
    });
    // The receiver polls with a quarter of the core from the start, and copies 0.2 s beside the computing: until 8/15 s
    // both have 3/8 of it, until 1.6 s the sender the rest. The message takes 0.1 s, in which the sender's copy has
    // half of the core between two that poll; then 3/4 for the 0.15 s that are left of it.
    CHECK(seconds == Approx(1.6 + 0.1 + 0.15 / 0.75).epsilon(1e-5));
}

TEST_CASE("simulated: now() holds what was charged, and charges are spent before a message", "[simgrid]") {
    const double seconds = test::simulated_seconds(test::star(2), 2, [](simgrid_communicator& c) {
        const double begin = now();
        compute(2);
        require(std::abs(now() - begin - 2) < 1e-9, "the clock says ", now() - begin);
        char x = 0;
        if (c.rank() == 0) send(c, std::span<const char>(&x, 1), 1, 1);
        if (c.rank() == 1) recv(c, std::span<char>(&x, 1), 0, 1);
        compute(1);
    });
    CHECK(seconds == Approx(3.00001).epsilon(1e-6));
}

TEST_CASE("simulated: a kernel without a rate is named", "[simgrid]") {
    CHECK(test::contains(
        test::simulated_error(test::star(1), 1,
                              [](simgrid_communicator&) { phantom_here->charge({.kind = "gemm", .format = "bf16"}); }),
        "rank 0: machine star: no rate for the kernel 'gemm' in format 'bf16'"));
}

TEST_CASE("simulated: a helper communicates while its rank computes", "[simgrid]") {
    machine_description m = test::star(2);
    m.cores = 2;
    const auto steps = [](simgrid_communicator& c) {
        simgrid_communicator own = c.split(0, c.rank());
        progress_thread helper;
        tensor<float> data({250'000'000});  // a second on the wire
        std::string order;
        for (int i = 0; i < 2; ++i) {
            helper.submit([&] {
                if (c.rank() == 0) send(own, std::span<const float>(data.span()), 1, 1);
                if (c.rank() == 1) recv(own, data.span(), 0, 1);
                order += 'm';
            });
            compute(1);
        }
        const double before = now();
        require(std::abs(before - 2) < 0.001, "the rank computed until ", before);
        helper.wait();
        require(order == "mm", "jobs ran as ", order);
    };
    CHECK(test::simulated_seconds(m, 2, steps) == Approx(2).epsilon(1e-3));
}

TEST_CASE("simulated: a helper's failure reaches its rank, and drops the jobs behind it", "[simgrid]") {
    CHECK(test::simulated_error(test::star(1), 1, [](simgrid_communicator&) {
              progress_thread helper;
              int ran = 0;
              helper.submit([] { fail("no more ink"); });
              helper.submit([&] { ++ran; });
              const std::string why = test::message_of([&] { helper.wait(); });
              require(why == "no more ink" && ran == 0, why, ", and ", ran, " jobs after it");
              helper.submit([&] { ++ran; });
              helper.wait();
              require(ran == 1, "the helper does not go on");
          }) == "");
}

TEST_CASE("simulated: memory, trace and exceptions of ranks on one thread are their own", "[simgrid]") {
    CHECK(test::simulated_error(test::star(3), 3, [](simgrid_communicator& c) {
              trace::global().enable(true);
              memory_pool* const pool = &memory_pool::host();
              const trace_scope outer(concat("rank", c.rank()), "", "compute");
              const tensor<float> kept({10'000 * (c.rank() + 1)});
              try {
                  fail("error of rank ", c.rank());
              } catch (const error&) {
                  barrier(c);  // the others come here, too
                  require(test::message_of([] { throw; }) == concat("error of rank ", c.rank()), "another's exception");
                  if (c.rank() == 1) compute(1);
                  barrier(c);
              }
              struct waits_while_unwinding {
                  ~waits_while_unwinding() {
                      barrier(c);
                      told = std::uncaught_exceptions();
                  }
                  simgrid_communicator& c;
                  int& told;
              };
              int told = -1;
              test::message_of([&] {
                  const waits_while_unwinding w{c, told};
                  if (c.rank() > 0) fail("unwinds");
              });
              require(told == (c.rank() > 0 ? 1 : 0), told, " exceptions under way");
              barrier(c);
              require(std::uncaught_exceptions() == 0 && !std::current_exception(), "an exception is left");
              require(&memory_pool::host() == pool && pool->total().live == kept.bytes(), "another rank's memory");
              { const trace_scope inner("inner", "", "compute"); }
              barrier(c);
              const auto events = trace::global().events();
              const auto mine = concat("rank", c.rank(), "/inner");
              require(std::ranges::count(events, mine, &trace_event::path) == 1, "no event ", mine);
          }) == "");
}

TEST_CASE("simulated: messages take what the machine's points say, on every topology", "[simgrid]") {
    machine_description m = test::star(8);
    m.between = link_model({{0, 2e-6}, {1000, 3e-6}, {10'000, 2e-5}, {1'000'000, 1.2e-4}, {2'000'000, 4e-4}});
    m.topology.hop = 1e-7;
    machine_description torus = m, tree = m;
    torus.topology.joined = network_topology::kind::torus;
    torus.topology.dimensions = {4, 2};
    tree.topology = {network_topology::kind::fat_tree, {}, {4, 2}, {1, 2}, {1, 1}, 1e-7};
    for (const machine_description& one : {m, torus, tree})
        for (const double bytes : {1.0, 500.0, 1000.0, 4000.0, 10'000.0, 5e5, 1e6, 1.5e6, 5e6}) {
            const auto message_to = [&](int peer) {
                return test::simulated_seconds(one, 8, [=](simgrid_communicator& c) {
                    tensor<std::uint8_t> data({static_cast<index_t>(bytes)});
                    if (c.rank() == 0) send(c, std::span<const std::uint8_t>(data.span()), peer, 1);
                    if (c.rank() == peer) recv(c, data.span(), 0, 1);
                });
            };
            INFO(bytes << " bytes, topology " << static_cast<int>(one.topology.joined));
            CHECK(message_to(1) == Approx(m.between.exchange(bytes)).epsilon(1e-6));
            const double further = one.topology.joined == network_topology::kind::star ? 0 : 2e-7;  // two cables more
            CHECK(message_to(6) == Approx(m.between.exchange(bytes) + further).epsilon(1e-6));
        }
}

TEST_CASE("simulated: flows that share a cable share its bandwidth", "[simgrid]") {
    const double seconds = test::simulated_seconds(test::star(3), 3, [](simgrid_communicator& c) {
        tensor<float> data({250'000'000});
        if (c.rank() > 0) send(c, std::span<const float>(data.span()), 0, 1);
        if (c.rank() > 0) return;
        tensor<float> other({250'000'000});
        auto first = irecv(c, data.span(), 1, 1), second = irecv(c, other.span(), 2, 1);
        first.wait();
        second.wait();
    });
    CHECK(seconds == Approx(2.00001).epsilon(1e-6));
}

TEST_CASE("SimGrid: its own settings give its documented example", "[simgrid]") {
    namespace s4u = simgrid::s4u;
    const auto told = in_child_process([]() -> std::string {  // 100 kB over 10 ms and 1 Mbit/s
        std::string name = "cairn";
        char* arguments[] = {name.data(), nullptr};
        int count = 1;
        auto* const engine = new s4u::Engine(&count, arguments);
        auto* const zone = s4u::create_full_zone("zone");
        s4u::Host* const hosts[] = {zone->create_host("a", 1e9)->seal(), zone->create_host("b", 1e9)->seal()};
        auto* const link = zone->create_link("link", 1e6 / 8)->set_latency(0.01)->seal();
        zone->add_route(hosts[0]->get_netpoint(), hosts[1]->get_netpoint(), nullptr, nullptr, {s4u::LinkInRoute(link)},
                        true);
        zone->seal();
        s4u::Actor::create("a", hosts[0], [] { s4u::Mailbox::by_name("m")->put(new int(1), 100'000); });
        s4u::Actor::create("b", hosts[1], [] { delete s4u::Mailbox::by_name("m")->get<int>(); });
        engine->run();
        return text_of(s4u::Engine::get_clock());
    });
    CHECK(std::stod(told) == Approx(0.996079).epsilon(1e-6));
    const double ours = test::simulated_seconds(test::star(2, 0.01, 8e-6), 2, [](simgrid_communicator& c) {
        tensor<std::uint8_t> data({100'000});
        if (c.rank() == 0) send(c, std::span<const std::uint8_t>(data.span()), 1, 1);
        if (c.rank() == 1) recv(c, data.span(), 0, 1);
    });
    CHECK(ours == Approx(0.81).epsilon(1e-9));
}

}  // namespace cairn
