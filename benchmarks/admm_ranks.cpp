// pdADMM on one rank and on two, ranks that are threads with one kernel thread each: seconds of an iteration, processor
// time of each rank, and bytes sent, compared with their formula.
//
//     admm_ranks [--samples N] [--widths 784,256,256,10] [--cut LAYERS] [--rounds R]
//
// Samples and labels are drawn. A rank that waits sleeps, so that processor time is work: the share of the balance
// bound is the largest processor time of the two over the time of an iteration, with memory bandwidth shared alike.

#include <cairn/admm/pdadmm.hpp>
#include <cairn/admm/split_chain.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/models/mlp.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <utility>
#include <vector>

#include <time.h>

namespace {

using namespace cairn;
using cairn::index_t;

double processor_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct problem {
    std::vector<index_t> widths;
    tensor<float> x;
    tensor<std::int32_t> labels;
};

problem drawn(index_t samples, const std::vector<index_t>& widths) {
    problem p{widths, tensor<float>({samples, widths.front()}), tensor<std::int32_t>({samples})};
    const random_stream random{1, 1, 0};
    for (index_t i = 0; i < p.x.size(); ++i) p.x[i] = static_cast<float>(random.uniform(static_cast<std::uint64_t>(i)));
    for (index_t i = 0; i < samples; ++i) p.labels[i] = static_cast<std::int32_t>(i % p.widths.back());
    return p;
}

struct timing {
    double wall = 0;
    std::vector<double> busy;  // of each rank
    index_t bytes = 0;         // of all ranks
};

/// Of an iteration; the first `cut` layers are on rank 0.
timing measure(const problem& p, int ranks, int cut) {
    constexpr int warm = 2, counted = 8;
    const auto n = p.x.extent(0);
    timing t{.busy = std::vector<double>(static_cast<std::size_t>(ranks))};
    std::vector<index_t> bytes(t.busy.size());
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 300}, [&](threads_communicator& c) {
        sequential<float> net = mlp<float>(p.widths);
        arena<float> weights(net.parameters(), 1);
        std::vector<admm::split_layer<float>> mine;
        int number = 0;
        for (auto& layer : admm::split_chain(net, {1, p.widths.front()}, "pdadmm"))
            if (const bool first = number++ < cut; ranks == 1 || first == (c.rank() == 0))
                mine.push_back(std::move(layer));
        admm::pdadmm<float, threads_communicator> algorithm(std::move(mine), {.mu = 2e-5 * static_cast<double>(n)},
                                                            p.x.share(), {p.labels.share(), {}}, &c);
        for (int i = 0; i < warm; ++i) algorithm.iterate();
        const auto me = static_cast<std::size_t>(c.rank());
        const index_t sent = algorithm.bytes_sent();
        const stopwatch watch;
        const double before = processor_seconds();
        for (int i = 0; i < counted; ++i) algorithm.iterate();
        t.busy[me] = (processor_seconds() - before) / counted;
        bytes[me] = (algorithm.bytes_sent() - sent) / counted;
        if (me == 0) t.wall = watch.seconds() / counted;
    });
    t.bytes = std::accumulate(bytes.begin(), bytes.end(), index_t{0});
    return t;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"pdADMM on one rank and on two"};
    index_t samples = 10000;
    std::vector<index_t> widths{784, 256, 256, 10};
    int cut = 1, rounds = 3;
    app.add_option("--samples", samples)->check(CLI::Range(10, 1 << 20));
    app.add_option("--widths", widths, "of samples, hidden layers and classes")->delimiter(',');
    app.add_option("--cut", cut, "layers of the first rank");
    app.add_option("--rounds", rounds)->check(CLI::Range(1, 100));
    CLI11_PARSE(app, argc, argv);
    try {
        require(cut >= 1 && cut + 1 < std::ssize(widths), "--cut ", cut, ": both ranks need a layer of ",
                widths.size() - 1);
        const problem p = drawn(samples, widths);
        for (int r = 0; r < rounds; ++r) {
            const timing one = measure(p, 1, cut), two = measure(p, 2, cut);
            const double most = *std::max_element(two.busy.begin(), two.busy.end());
            const index_t formula = 2 * samples * widths[static_cast<std::size_t>(cut)] * 4;
            std::printf(
                "{\"one_rank_s\":%.4f,\"two_ranks_s\":%.4f,\"busy_s\":[%.4f,%.4f],\"times_faster\":%.3f,"
                "\"share_of_bound\":%.3f,\"bytes\":%td,\"formula_bytes\":%td}\n",
                one.wall, two.wall, two.busy[0], two.busy[1], one.wall / two.wall, most / two.wall, two.bytes, formula);
            std::fflush(stdout);
        }
    } catch (const std::exception& e) {
        std::cerr << "admm_ranks: " << e.what() << '\n';
        return 1;
    }
}
