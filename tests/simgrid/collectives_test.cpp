// Collectives on simulated ranks: their numbers, their messages and their time.

#include "collectives/laws.hpp"
#include "simgrid/simulated.hpp"

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/parallel/link.hpp>

namespace cairn {

TEST_CASE("simulated collectives: numbers of the host are reduced as everywhere", "[simgrid]") {
    for (const int p : {1, 2, 3, 4, 5, 8}) {
        std::vector<laws::expected<float>> made;
        for (const index_t n : {0, 1, 7, 1000, 20'011}) made.emplace_back(p, n);
        CHECK(test::simulated_error(test::star(p), p,
                                    [&](simgrid_communicator& c) { laws::all_laws<float>(c, made); }) == "");
    }
}

TEST_CASE("simulated all-reduces take their closed forms on a star", "[simgrid]") {
    constexpr index_t n = 1'000'000;
    using enum all_reduce_algorithm;
    for (const double gamma : {3e-10, 3e-15})
        for (const int p : {2, 3, 4, 7, 8, 12, 16, 31, 64})
            for (const all_reduce_algorithm algorithm : {ring, halving_doubling, recursive_doubling}) {
                const machine_description m = test::star(p, 1e-5, 1e-9, gamma);
                const double seconds = test::simulated_seconds(m, p, [&](simgrid_communicator& c) {
                    tensor<float> data({n});
                    all_reduce(c, data.span(), {.algorithm = algorithm});
                });
                INFO(name_of(algorithm) << " on " << p << ", gamma " << gamma);
                CHECK(seconds == Approx(all_reduce_seconds(m.between, algorithm, 4.0 * n, p)).epsilon(0.001));
            }
}

namespace {

/// Each collective once, over tensors of n elements.
template <Communicator C>
void every_collective(C& c, index_t n) {
    const auto zeros = [&](index_t count) { return tensor<float>::zeros({count}); };
    for (const auto& [algorithm, name] : all_reduce_names)
        if (algorithm != all_reduce_algorithm::vendor && algorithm != all_reduce_algorithm::automatic)
            all_reduce(c, zeros(n).span(), {.algorithm = algorithm});
    all_gather(c, zeros(n).span());
    reduce_scatter(c, zeros(n).span());
    broadcast(c, zeros(n).span(), c.size() / 2);
    const tensor<float> out = zeros(n * c.size());
    tensor<float> in = zeros(n * c.size());
    all_to_all(c, std::span<const float>(out.span()), in.span());
    barrier(c);
    all_gather_text(c, std::string(static_cast<std::size_t>(10 * c.rank()), 'x'));
}

}  // namespace

TEST_CASE("simulated collectives send the messages and bytes that threads send", "[simgrid]") {
    for (int p = 1; p <= 8; ++p)
        for (const index_t n : {500, 5'003, 40'000}) {  // real, phantom, in one segment
            std::vector<std::string> counted(static_cast<std::size_t>(p));
            run_ranks(p, [&](threads_communicator& threads) {
                counting_communicator<threads_communicator> c(threads);
                every_collective(c, n);
                counted[static_cast<std::size_t>(c.rank())] =
                    concat(c.counts().messages, " messages, ", c.counts().bytes, " bytes");
            });
            machine_description m = test::star(1);  // one node, as threads are
            m.ranks_per_host = p, m.inside = m.between;
            const auto told = test::simulated(
                m, p, [&](simgrid_communicator& c) { every_collective(c, n); },
                [](const simulation& s) {
                    std::vector<std::string> ranks;
                    for (const simulated_rank& r : s.ranks)
                        ranks.push_back(concat(r.messages, " messages, ", r.bytes, " bytes"));
                    return listed(ranks);
                });
            CHECK(told == listed(counted));
        }
}

TEST_CASE("simulated: large phantom parts go in one message, through room as small as ever", "[simgrid]") {
    const auto told = test::simulated(
        test::star(4), 4,
        [](simgrid_communicator& c) {
            tensor<float> data({10'000'000});
            ring_all_reduce(c, data.span());
            broadcast(c, data.span(), 1);  // to ranks 2 and 3, and rank 2's to rank 0
        },
        [](const simulation& s) {
            return concat(s.ranks[0].messages, ' ', s.ranks[1].messages, ' ', s.ranks[0].peak - 40'000'000);
        });
    CHECK(told == concat("6 8 ", 2 * reduce_segment));
}

TEST_CASE("simulated: automatic is the algorithm that the machine's link makes fastest", "[simgrid]") {
    const auto fastest = [](index_t n, int p) {
        const machine_description m = test::star(p);
        double least = 1e300;
        for (const auto& [algorithm, name] : all_reduce_names)
            if (algorithm != all_reduce_algorithm::vendor && algorithm != all_reduce_algorithm::automatic)
                least = std::min(least, all_reduce_seconds(m.between, algorithm, 4.0 * static_cast<double>(n), p));
        return least;
    };
    for (const index_t n : {2'000, 20'000, 10'000'000})
        CHECK(test::simulated_seconds(test::star(16), 16, [n](simgrid_communicator& c) {
                  tensor<float> data({n});
                  all_reduce(c, data.span());
              }) == Approx(fastest(n, 16)).epsilon(0.001));
}

TEST_CASE("simulated: a measured link is the machine's, and takes no time", "[simgrid]") {
    const double seconds = test::simulated_seconds(test::star(1000), 1000, [](simgrid_communicator& c) {
        const exchange_model link = measure_link(c);
        require(std::abs(link.alpha - (1e-5 + 1.024e-9)) < 1e-12, "alpha ", link.alpha);
        require(std::abs(link.beta - 1e-9) < 1e-12, "beta ", link.beta);
    });
    CHECK(seconds == 0);
}

TEST_CASE("a simulation repeats to the bit, on one thread and on many", "[simgrid]") {
    const auto run = [](const std::string& contexts) {
        return test::simulated(
            test::star(6), 6,
            [](simgrid_communicator& c) {
                phantom_here->charge({.kind = "reduce", .bytes = 1e7 * (1 + c.rank() % 3)});
                every_collective(c, 30'001);
            },
            [](const simulation& s) {
                std::string all;
                for (const simulated_rank& r : s.ranks)
                    all += concat(text_of(r.end), ' ', text_of(r.waited), ' ', text_of(r.computed), ' ', r.peak, '\n');
                return all;
            },
            contexts);
    };
    const std::string first = run(test::contexts);
    CHECK(run(test::contexts) == first);
    CHECK(run("thread") == first);
}

}  // namespace cairn
