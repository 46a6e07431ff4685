// Simulated ranks: the laws of every communicator, and how a simulation ends.

#include "comm/point_to_point_laws.hpp"
#include "simgrid/simulated.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/checked_communicator.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/wait_for.hpp>

namespace cairn {

TEST_CASE("communicator laws: simulated ranks, any message eager or none", "[simgrid]") {
    for (const index_t eager : {0, 4096, 1 << 30})
        for (const int ranks : {1, 2, 3, 5, 8}) {
            machine_description m = test::star((ranks + 1) / 2);
            m.ranks_per_host = 2;
            m.inside = link_model(1e-6, 1e-10, 0);
            m.eager = eager;
            CHECK(test::simulated_error(m, ranks, [](simgrid_communicator& c) { laws::all(c); }) == "");
        }
}

TEST_CASE("communicator laws: any, counting and checked over simulated ranks", "[simgrid]") {
    for (const int ranks : {1, 2, 3})
        CHECK(test::simulated_error(test::star(ranks), ranks, [](simgrid_communicator& c) {
                  any_communicator any(c.split(0, c.rank()));
                  laws::all(any);
                  counting_communicator<simgrid_communicator> counted(c.split(0, c.rank()));
                  laws::all(counted);
                  checked_communicator<simgrid_communicator> checked(c.split(0, c.rank()), 1);
                  laws::all(checked);
              }) == "");
}

TEST_CASE("simulated: split_node, and ranks that wait for one that computes", "[simgrid]") {
    machine_description m = test::star(3);
    m.ranks_per_host = 2;
    m.inside = link_model(1e-6, 1e-10, 0);
    const double seconds = test::simulated_seconds(m, 5, [](simgrid_communicator& c) {
        auto node = c.split_node();
        require(node.size() == (c.rank() < 4 ? 2 : 1) && node.rank() == c.rank() % 2, "node ", node.rank(), " of ",
                node.size());
        if (c.rank() == 1) phantom_here->pass(7200);
        wait_for(c, 1, 0.001);
    });
    CHECK(seconds == Approx(7200).epsilon(1e-5));
}

TEST_CASE("simulated: what is phantom travels as its size, what is not with its bytes", "[simgrid]") {
    const auto told = test::simulated(
        test::star(2), 2,
        [](simgrid_communicator& c) {
            tensor<float> large({1'000'000});
            std::array<int, 3> small{c.rank(), 2, 3};
            require(is_phantom(std::as_bytes(large.span())), "a large tensor is phantom");
            if (c.rank() == 0) {
                send(c, std::span<const int>(small), 1, 1);
                send(c, std::span<const float>(large.span()), 1, 2);
            } else {
                recv(c, std::span<int>(small), 0, 1);
                recv(c, large.span(), 0, 2);
                require(small[0] == 0, "the bytes did not come");
            }
        },
        [](const simulation& s) {
            return concat(text_of(s.seconds), ' ', s.ranks[0].messages, ' ', s.ranks[0].bytes, ' ', s.ranks[1].messages,
                          ' ', s.ranks[1].peak);
        });
    CHECK(told == concat(text_of(2e-5 + 4'000'012 * 1e-9), " 2 4000012 0 4000000"));
}

TEST_CASE("simulated: the first rank that fails ends all, and is named", "[simgrid]") {
    CHECK(test::simulated_error(test::star(4), 4, [](simgrid_communicator& c) {
              int x = 0;
              auto coming = irecv(c, std::span<int>(&x, 1), 2, 1);
              if (c.rank() == 2) fail("out of paper");  // what it waits for is cancelled
              coming.wait();
          }) == "rank 2: out of paper");
    CHECK(test::simulated_error(test::star(2), 2, [](simgrid_communicator& c) {
              const auto jobs = phantom_here->start_queue();  // the helper is left where it waits
              jobs->submit([&] {
                  int x = 0;
                  recv(c, std::span<int>(&x, 1), 1 - c.rank(), 1);
              });
              phantom_here->pass(1);
              fail("before the helper is through");
          }) == "rank 0: before the helper is through");
}

TEST_CASE("simulated: ranks that wait for each other are named, with collective, peer, tag and bytes", "[simgrid]") {
    const std::string why = test::simulated_error(test::star(12), 12, [](simgrid_communicator& c) {
        const auto scope = enter(c, {"ring all-reduce", "float", 1000, -1, "bucket 3"});
        std::vector<float> room(250);
        recv(c, std::span<float>(room), (c.rank() + 1) % c.size(), 7);
    });
    CHECK(test::contains(why,
                         "rank 0 waits in ring all-reduce of 1000 float (bucket 3) for its receive of 1000 bytes "
                         "from rank 1, tag 7; rank 1 waits in"));
    CHECK(test::contains(why, "and 4 more"));
}

TEST_CASE("simulated: wrong sizes, peers and tags, and ranks that do not fit", "[simgrid]") {
    for (const index_t eager : {0, 6, 100})  // both sides alike, or one alone
        for (const int first : {0, 1}) {
            machine_description m = test::star(2);
            m.eager = eager;
            CHECK(test::contains(test::simulated_error(m, 2,
                                                       [first](simgrid_communicator& c) {
                                                           std::array<char, 8> room{};
                                                           if (c.rank() != first) phantom_here->pass(1);
                                                           if (c.rank() == 0)
                                                               send(c, std::span<char>(room), 1, 3);
                                                           else
                                                               recv(c, std::span<char>(room).first(5), 0, 3);
                                                           barrier(c);
                                                       }),
                                 "rank 0 sends 8 bytes to rank 1 with tag 3, which expects 5"));
        }
    const auto on_two = [](auto body) { return test::simulated_error(test::star(2), 2, body); };
    CHECK(
        test::contains(on_two([](simgrid_communicator& c) { send(c, std::span<int>(), 2, 1); }), "there is no rank 2"));
    CHECK(test::contains(on_two([](simgrid_communicator& c) { send(c, std::span<int>(), 0, -1); }), "tag -1"));
    CHECK(test::simulated_error(test::star(2), 3, [](simgrid_communicator&) {}) ==
          "machine star: 3 ranks asked for; 2 hosts of 1 have room for 2");
    CHECK(test::contains(test::message_of([] {
                             in_child_process([]() -> std::string {
                                 run_simulated(test::star(1), 1, [](simgrid_communicator&) {});
                                 run_simulated(test::star(1), 1, [](simgrid_communicator&) {});
                                 return "";
                             });
                         }),
                         "a second simulation in this process"));
}

}  // namespace cairn
