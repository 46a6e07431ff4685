// The counting communicator, and by it the formulas of the collectives: messages, bytes and rounds of a rank.

#include "catch.hpp"

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>

#include <sstream>

namespace cairn {

namespace {

/// Counts of every rank after one run of `action` on n floats.
template <class Action>
std::vector<communication_counts> counted(int ranks, index_t n, Action action) {
    std::vector<communication_counts> all(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](threads_communicator& threads) {
        counting_communicator<threads_communicator> c(threads);
        std::vector<float> data(static_cast<std::size_t>(n), 1.0f);
        action(c, std::span<float>(data));
        all[static_cast<std::size_t>(c.rank())] = c.counts();
    });
    return all;
}

}  // namespace

TEST_CASE("counting: a ring sends 2 (p-1) parts a rank, in 2 (p-1) rounds", "[comm][counting]") {
    for (const int p : {2, 3, 4, 5, 8}) {
        const index_t n = 840;  // every p divides it
        for (const communication_counts& c : counted(p, n, [](auto&w, auto data) { ring_all_reduce(w, data); })) {
            CHECK(c.messages == 2 * (p - 1));
            CHECK(c.bytes == 2 * (p - 1) * n / p * 4);
            CHECK(c.received_bytes == c.bytes);
            CHECK(c.rounds == 2 * (p - 1));
            CHECK(c.reduced_bytes == (p - 1) * n / p * 4);
        }
    }
}

TEST_CASE("counting: recursive doubling sends lg p whole arrays in lg p rounds", "[comm][counting]") {
    for (const int p : {2, 4, 8})
        for (const communication_counts& c :
             counted(p, 100, [](auto&w, auto data) { recursive_doubling_all_reduce(w, data); })) {
            const int lg = p == 2 ? 1 : p == 4 ? 2 : 3;
            CHECK(c.messages == lg);
            CHECK(c.bytes == lg * 400);
            CHECK(c.rounds == lg);
        }
}

TEST_CASE("counting: halving and doubling sends the ring's bytes in 2 lg p rounds", "[comm][counting]") {
    for (const int p : {2, 4, 8})
        for (const communication_counts& c :
             counted(p, 800, [](auto&w, auto data) { halving_doubling_all_reduce(w, data); })) {
            const int lg = p == 2 ? 1 : p == 4 ? 2 : 3;
            CHECK(c.bytes == 2 * (p - 1) * 800 / p * 4);
            CHECK(c.rounds == 2 * lg);
        }
}

TEST_CASE("counting: a broadcast takes lg p rounds", "[comm][counting]") {
    const auto all = counted(8, 10, [](auto& w, auto data) { broadcast(w, data, 0); });
    std::int64_t messages = 0, rounds = 0;
    for (const auto& c : all) {
        messages += c.messages;
        rounds = std::max(rounds, c.rounds);
    }
    CHECK(messages == 7);
    CHECK(all[0].messages == 3);
    CHECK(rounds >= 3);
}

TEST_CASE("counting: names, model time, peak, reset", "[comm][counting]") {
    run_ranks(2, [](threads_communicator& threads) {
        counting_communicator<threads_communicator> c(threads);
        std::vector<float> data(1000);
        ring_all_reduce(c, std::span<float>(data));
        const call_counts ring = c.calls().at("ring all-reduce");
        require(ring.times == 1 && ring.messages == 2 && ring.bytes == 4000, "the collective was not counted");
        std::ostringstream text;
        c.print(text);
        require(text.str().find("ring all-reduce: 1 times, 2 messages, 4000 bytes sent") != std::string::npos,
                text.str());
        require(c.counts().peak_bytes >= 4000, "peak ", c.counts().peak_bytes);
        auto part = c.split(0, 0);
        std::vector<float> got(1000);
        sendrecv(part, std::span<const float>(data), 1 - part.rank(), std::span<float>(got), 1 - part.rank(), 1);
        require(c.counts().messages == 3, "a part counts into the same numbers");
        {
            const auto why = because(part, "gradients");
            ring_all_reduce(part, std::span<float>(data), reduction::sum, "of a bucket");
            part.isend(std::as_bytes(std::span(data)), 1 - part.rank(), 2).wait();
            recv(part, std::span<float>(got), 1 - part.rank(), 2);
        }
        ring_all_reduce(c, std::span<float>(data), reduction::sum, "factors");
        require(c.by_cause() == traffic{{"factors", {2, 4000}},
                                        {"gradients", {3, 8000}},
                                        {"messages", {1, 4000}},
                                        {"ring all-reduce", {2, 4000}}},
                "causes are the outermost labels, else names");
        require(!c.calls().contains(""), "a cause is no call");
        c.reset();
        require(c.counts().messages == 0 && c.calls().empty() && c.by_cause().empty(), "reset");
    });
}

}  // namespace cairn
