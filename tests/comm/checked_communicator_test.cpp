// Debug mode: ranks that call different things get an error that names both, and never hang.

#include "catch.hpp"

#include "comm/point_to_point_laws.hpp"

#include <cairn/comm/checked_communicator.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>

#include <atomic>

namespace cairn {

namespace {

/// On how many of `ranks` ranks `body` throws an error that contains all of `words`.
template <class Body>
int told(int ranks, std::vector<std::string> words, Body body, double limit = 20) {
    std::atomic<int> count = 0, done = 0;
    run_ranks(ranks, [&](threads_communicator& threads) {
        checked_communicator<threads_communicator> c(threads.split(0, threads.rank()), limit);
        try {
            body(c);
        } catch (const error& e) {
            const std::string text = e.what();
            bool all = true;
            for (const std::string& w : words) all = all && text.find(w) != std::string::npos;
            if (!all) fail("the error says: ", text);
            ++count;
        }
        ++done;
        while (done < ranks) std::this_thread::yield();  // nobody leaves while others look
    });
    return count;
}

}  // namespace

TEST_CASE("communicator laws: checked over self and over threads, 1 to 9 ranks", "[comm][checked]") {
    checked_communicator<self_communicator> self(self_communicator{});
    laws::all(self);
    for (int ranks = 1; ranks <= 9; ++ranks)
        run_ranks(ranks, [](threads_communicator& threads) {
            checked_communicator<threads_communicator> c(threads);
            laws::all(c);
            any_communicator any(std::move(c));
            laws::all(any);
        });
    run_ranks(3, {.mailbox_bytes = 0}, [](threads_communicator& threads) {
        checked_communicator<threads_communicator> c(threads);
        laws::all(c);
    });
}

TEST_CASE("checked: collectives give what they give", "[comm][checked]") {
    for (const int ranks : {1, 2, 4, 5})
        run_ranks(ranks, {.ranks_per_node = 2}, [](threads_communicator& threads) {
            checked_communicator<threads_communicator> c(threads);
            using enum all_reduce_algorithm;
            for (const auto a : {automatic, ring, recursive_doubling, halving_doubling, tree, hierarchical}) {
                std::vector<float> data(1000, static_cast<float>(c.rank() + 1));
                all_reduce(c, std::span<float>(data), {.algorithm = a});
                require(data[999] == static_cast<float>(c.size() * (c.size() + 1) / 2), "sum ", data[999]);
            }
        });
}

TEST_CASE("checked: ranks that call different collectives, counts, types or roots are named on every rank",
          "[comm][checked]") {
    const std::string ring = "rank 0 calls ring all-reduce of 1000 float";
    for (const int other : {1, 3})
        CHECK(told(4, {ring, concat("rank ", other, " calls broadcast of 7 double from rank 2")}, [&](auto& c) {
                  const auto scope = c.rank() == other ? enter(c, {"broadcast", "double", 7, 2})
                                                       : enter(c, {"ring all-reduce", "float", 1000});
              }) == 4);
    CHECK(told(3, {ring, "rank 1 calls ring all-reduce of 999 float"}, [](auto& c) {
              std::vector<float> data(c.rank() ? 999 : 1000);
              ring_all_reduce(c, std::span<float>(data));
          }) == 3);
    CHECK(told(2, {ring, "rank 1 calls ring all-reduce of 1000 int32"}, [](auto& c) {
              std::vector<float> data(1000);
              std::vector<std::int32_t> whole(1000);
              if (c.rank())
                  ring_all_reduce(c, std::span<std::int32_t>(whole));
              else
                  ring_all_reduce(c, std::span<float>(data));
          }) == 2);
    CHECK(told(2, {ring, "rank 1 calls split"}, [](auto& c) {
              std::vector<float> data(1000);
              if (c.rank())
                  static_cast<void>(c.split(0, 0));
              else
                  ring_all_reduce(c, std::span<float>(data));
          }) == 2);
}

TEST_CASE("checked: ranks that never come are named after the time limit", "[comm][checked]") {
    const auto without = [](int absent) {
        return [absent](auto& c) {
            if (c.rank() == absent) return;
            const auto scope = enter(c, {"barrier", "bytes", 0});
        };
    };
    CHECK(told(4, {"rank(s) 2 did not come to barrier of 0 bytes within 0.3 s"}, without(2), 0.3) == 3);
    CHECK(told(3, {"barrier of 0 bytes for rank 0, which does not come"}, without(0), 0.3) == 2);
}

TEST_CASE("checked: a message of another size is an error that names both", "[comm][checked]") {
    for (const std::size_t got : {5u, 9u})
        CHECK(
            told(2, {"rank 0 sends 8 bytes to rank 1 with tag 3, which expects " + std::to_string(got)}, [&](auto& c) {
                std::array<char, 16> room{};
                if (c.rank() == 0)
                    send(c, std::span<char>(room).first(8), 1, 3);
                else
                    recv(c, std::span<char>(room).first(got), 0, 3);
            }) >= 1);
}

TEST_CASE("checked: the environment turns it on", "[comm][checked]") {
    const char* before = std::getenv("CAIRN_COMM_DEBUG");
    const std::string kept = before ? before : "";
    setenv("CAIRN_COMM_DEBUG", "1", 1);
    CHECK(checked_if_asked(self_communicator{}).name() == "checked self");
    setenv("CAIRN_COMM_DEBUG", "0", 1);
    CHECK(checked_if_asked(self_communicator{}).name() == "self");
    before ? setenv("CAIRN_COMM_DEBUG", kept.c_str(), 1) : unsetenv("CAIRN_COMM_DEBUG");
}

}  // namespace cairn
