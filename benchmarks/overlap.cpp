// How much of an all-reduce hides behind compute, by who makes it progress. A rank does `--buckets` times: start the
// all-reduce of one bucket, compute for about as long as that takes alone; then it waits for all of them.
//
//   mpirun -np 2 overlap [--megabytes 25] [--buckets 6] [--rounds 7] [--compute 1.0] [--pieces 100]
//   benchmarks/links/cluster 2 1gbit build/release/benchmarks/overlap
//
//   thread   the ring on parallel/progress_thread.hpp, with a communicator of its own
//   points   MPI_Iallreduce, and request.test() between the `--pieces` pieces of each compute
//   end      MPI_Iallreduce, and one wait after everything
//   none     the ring after all compute: nothing is hidden
//
// The work of a compute is fixed, so that cores which are lent to communication show as time. Every round runs all ways
// in turn; a sample is the slowest rank's, figures are medians over the rounds. hidden: 1 - (step - compute) /
// (communication alone by the same algorithm): 0 % is no overlap, below it the overlap costs more than it gives; what
// `none` shows is the noise of the machine. The last line is one JSON object.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/parallel/progress_thread.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if CAIRN_HAS_MPI

namespace {

using namespace cairn;
using cairn::index_t;

struct settings {
    double megabytes = 25, compute = 1;
    int buckets = 6, rounds = 7, pieces = 100;
};

class bench {
    using request = mpi_communicator::request;

public:
    bench(mpi_communicator& world, const settings& s)
        : world_(world), others_(world.split(0, world.rank())), s_(s), numbers_(2048, 1.0f) {
        for (int b = 0; b < s.buckets; ++b)
            buckets_.emplace_back(static_cast<std::size_t>(s.megabytes * 1e6 / sizeof(float)), 0.0f);
    }

    int run() {
        correct();
        const auto communicate_by_ring = [&] { each([&](std::span<float> b, int) { ring_all_reduce(world_, b); }); };
        const auto communicate_by_mpi = [&] {
            std::vector<request> pending;
            each([&](std::span<float> b, int) { pending.push_back(world_.vendor_iall_reduce(b)); });
            for (request& r : pending) r.wait();
        };
        // As much compute as the ring takes, measured where both ranks compute at once.
        communicate_by_ring();
        const double wanted = slowest(communicate_by_ring) / s_.buckets * s_.compute;
        repeats_ = 1000;
        for (int tries = 0; tries < 4; ++tries) {
            const double took = slowest([&] { compute([] {}); });
            repeats_ = std::max<index_t>(
                1, static_cast<index_t>(static_cast<double>(repeats_) * std::clamp(wanted / took, 0.01, 100.0)));
        }

        struct way {
            std::string name;
            std::function<void()> step;
            std::vector<double> seconds{};
        };
        progress_thread thread;
        std::vector<way> ways{
            {"compute", [&] { each([&](std::span<float>, int) { compute([] {}); }); }},
            {"ring alone", communicate_by_ring},
            {"MPI alone", communicate_by_mpi},
            {"thread",
             [&] {
                 each([&](std::span<float> b, int) {
                     thread.submit([this, b] { ring_all_reduce(others_, b); });
                     compute([] {});
                 });
                 thread.wait();
             }},
            {"points",
             [&] {
                 std::vector<request> pending;
                 std::size_t first = 0;  // all before it are complete
                 each([&](std::span<float> b, int) {
                     pending.push_back(world_.vendor_iall_reduce(b));
                     compute([&] {
                         while (first < pending.size() && pending[first].test()) ++first;
                     });
                 });
                 for (request& r : pending) r.wait();
             }},
            {"end",
             [&] {
                 std::vector<request> pending;
                 each([&](std::span<float> b, int) {
                     pending.push_back(world_.vendor_iall_reduce(b));
                     compute([] {});
                 });
                 for (request& r : pending) r.wait();
             }},
            {"none",
             [&] {
                 each([&](std::span<float>, int) { compute([] {}); });
                 communicate_by_ring();
             }},
        };
        for (int round = -1; round < s_.rounds; ++round)  // the first one warms up
            for (way& w : ways) {
                const double seconds = slowest(w.step);
                if (round >= 0) w.seconds.push_back(seconds);
            }
        if (world_.rank() != 0) return 0;

        std::vector<double> times;
        for (const way& w : ways) times.push_back(median(w.seconds));
        std::printf("%d ranks, %d buckets of %g MB, medians of %d rounds\n", world_.size(), s_.buckets, s_.megabytes,
                    s_.rounds);
        nlohmann::json line{{"ranks", world_.size()},   {"buckets", s_.buckets},     {"megabytes", s_.megabytes},
                            {"compute_s", times[0]},    {"ring_alone_s", times[1]},  {"mpi_alone_s", times[2]},
                            {"ways", nlohmann::json{}}, {"spread", nlohmann::json{}}};
        std::printf("%-12s %10s %10s %10s %9s\n", "", "step ms", "least ms", "most ms", "hidden");
        std::string best;
        double least = 0;
        for (std::size_t i = 0; i < ways.size(); ++i) {
            const auto [low, high] = std::ranges::minmax(ways[i].seconds);
            std::printf("%-12s %10.1f %10.1f %10.1f", ways[i].name.c_str(), times[i] * 1e3, low * 1e3, high * 1e3);
            line["spread"][ways[i].name] = {low, high};
            if (i >= 3) {
                const bool by_mpi = ways[i].name == "points" || ways[i].name == "end";
                const double hidden = 1 - (times[i] - times[0]) / times[by_mpi ? 2 : 1];
                std::printf(" %8.0f%%", hidden * 100);
                line["ways"][ways[i].name] = {{"step_s", times[i]}, {"hidden", hidden}};
                if (best.empty() || times[i] < least) best = ways[i].name, least = times[i];
            }
            std::printf("\n");
        }
        line["best"] = best;
        std::printf("best: %s\n%s\n", best.c_str(), line.dump().c_str());
        return 0;
    }

private:
    /// All ways that are compared sum the same.
    void correct() {
        const float sum = static_cast<float>(world_.size() * (world_.size() + 1)) / 2;
        for (const bool by_ring : {true, false}) {
            std::vector<float>& b = buckets_[0];
            std::ranges::fill(b, static_cast<float>(world_.rank() + 1));
            if (by_ring)
                ring_all_reduce(others_, std::span<float>(b));
            else
                world_.vendor_iall_reduce(std::span<float>(b)).wait();
            require(std::ranges::all_of(b, [&](float v) { return v == sum; }), "overlap: a sum is wrong");
            std::ranges::fill(b, 0.0f);
        }
    }

    template <class Action>
    void each(Action&& action) {
        for (int b = 0; b < s_.buckets; ++b) action(std::span<float>(buckets_[static_cast<std::size_t>(b)]), b);
    }

    /// Work of a fixed size in the first cache; between() after each of its pieces.
    template <class Between>
    void compute(Between&& between) {
        for (int piece = 0; piece < s_.pieces; ++piece) {
            for (index_t i = 0; i < repeats_; ++i)
                for (float& x : numbers_) x = x * 0.9999f + 1e-4f;
            between();
        }
    }

    /// Seconds that the slowest rank takes.
    double slowest(const std::function<void()>& action) {
        barrier(world_);
        const stopwatch clock;
        action();
        double seconds = clock.seconds();
        world_.vendor()->all_reduce(std::span<double>(&seconds, 1), reduction::max);
        return seconds;
    }

    mpi_communicator& world_;
    mpi_communicator others_;
    const settings& s_;
    std::vector<std::vector<float>> buckets_;
    std::vector<float> numbers_;
    index_t repeats_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{"Measures how much of an all-reduce hides behind compute."};
    app.add_option("--megabytes", s.megabytes, "of a bucket")->check(CLI::PositiveNumber);
    app.add_option("--buckets", s.buckets, "in a step")->check(CLI::Range(1, 1000));
    app.add_option("--rounds", s.rounds, "steps of each way")->check(CLI::Range(1, 10000));
    app.add_option("--compute", s.compute, "compute of a bucket over its communication")->check(CLI::PositiveNumber);
    app.add_option("--pieces", s.pieces, "of a compute, with a test between them")->check(CLI::Range(1, 1000000));
    CLI11_PARSE(app, argc, argv);
    return run_mpi(argc, argv, [&](mpi_communicator& world) {
        set_threads(1);
        return bench(world, s).run();
    });
}

#else

int main(int, char**) {
    std::fprintf(stderr, "overlap: built without MPI (Debian: apt-get install libopenmpi-dev openmpi-bin)\n");
    return 1;
}

#endif
