// Code of course/lectures/06-sharding.md. Ranks are threads; checks and prints what the page says.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/random.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/stash/plan.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace cairn;
using cairn::index_t;

constexpr index_t parameters = 100'000;

// --8<-- [start:adam]
/// The library's Adam on a part of the parameters. m and v have the length of the part alone.
struct adam_part {
    range mine;
    std::vector<float> m = std::vector<float>(std::size_t(mine.count)), v = m;

    void step(std::span<float> theta, std::span<const float> g, int t) {
        const auto rule = cairn::adam{}.rule<float>({.number = t, .lr = 0.001});  // for one number
        for (index_t i = 0; i < mine.count; ++i) {
            const auto at = std::size_t(i), all = std::size_t(mine.begin + i);
            rule(theta[all], g[all], m[at], v[at]);
        }
    }
};
// --8<-- [end:adam]

/// The gradient of a rank in a step: any numbers, of few bits, so that their sum is the same in any order.
void compute_gradient(std::span<float> g, int rank, int t) {
    const random_stream random{7, std::uint32_t(rank), std::uint32_t(t)};
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = std::round(random.uniform(i) * 64 - 32) / 64;
}

void steps() {
    std::vector<float> reference;
    std::int64_t bytes[3] = {};
    for (const int stage : {0, 1, 2})
        run_ranks(4, [&](threads_communicator& world) {
            counting_communicator c(world.split(0, world.rank()));
            std::vector<float> theta(parameters, 1.0f), g(parameters);
            const std::vector<range> parts = shards_of(parameters, c.size());
            adam_part adam{stage == 0 ? range{0, parameters} : parts[std::size_t(c.rank())]};
            for (int t = 1; t <= 3; ++t) {
                compute_gradient(g, c.rank(), t);
                c.reset();
                // --8<-- [start:stages]
                if (stage < 2)
                    ring_all_reduce(c, std::span(g));  // the whole sum on every rank
                else
                    reduce_scatter(c, std::span(g), parts);  // of the sum, this rank's part
                adam.step(theta, g, t);                      // stage 0: all parameters, else this rank's part
                if (stage > 0) all_gather(c, std::span(theta), parts);
                // --8<-- [end:stages]
            }
            if (c.rank() != 0) return;
            std::printf("stage %d: %lld bytes sent a step, %zu of state\n", stage,
                        static_cast<long long>(c.counts().bytes), 8 * adam.m.size());
            bytes[stage] = c.counts().bytes;
            if (stage == 0) reference = theta;
            require(theta == reference, "stage ", stage, " has other parameters");
        });
    // n = 400,000 bytes, p = 4.
    require(bytes[0] == 600'000 && bytes[1] == 900'000 && bytes[2] == 600'000, "other bytes than 2, 3, 2 (p-1)/p n");
}

void recomputation() {
    // --8<-- [start:plans]
    sequential<float> net = resnet_cifar<float, cpu>(20);
    stash_planner<float> planner(net, {32, 32, 32, 3});
    const stash_plan keep = planner.keep_plan(), root = planner.sqrt_plan(), least = planner.smallest_plan();
    for (const stash_plan* plan : {&keep, &root, &least})
        std::printf("%5.1f MiB, %4.1f Gflop again\n", double(plan->predicted_peak) / (1 << 20),
                    plan->recomputed_flops / 1e9);
    // --8<-- [end:plans]
    require(root.predicted_peak < keep.predicted_peak && least.predicted_peak <= root.predicted_peak, "peaks");
}

// --8<-- [start:dither]
/// x as it comes back; u is uniform in ±½, and the decoder draws the same number again.
float packed_and_back(float x, float eb, float u) {
    const float q = std::round(x / (2 * eb) + u);  // a small integer: what is kept
    return (q - u) * (2 * eb);
}
// --8<-- [end:dither]

void dither() {
    const float eb = 0.1f;
    const random_stream random{.seed = 1};
    for (const bool dithered : {false, true})
        for (const float x : {0.03f, 0.1f, 0.14f}) {
            double mean = 0, square = 0, largest = 0;
            const int n = 1'000'000;
            for (int i = 0; i < n; ++i) {
                const double e = packed_and_back(x, eb, dithered ? random.uniform(std::uint64_t(i)) - 0.5f : 0) - x;
                mean += e / n;
                square += e * e / n;
                largest = std::max(largest, std::abs(e));
            }
            std::printf("%s x = %.2f: mean error %+.4f, mean square %.5f, largest %.4f\n",
                        dithered ? "dither, " : "rounding,", x, mean, square, largest);
            require(largest < 0.1001, "the bound");
            require(!dithered || (std::abs(mean) < 3e-4 && std::abs(square - eb * eb / 3) < 2e-5), "dither");
        }
}

/// Var of one number of dW = δᵀ a when a is packed: eb²/3 Σ_r δ_r².
void gradient_variance() {
    const double eb = 0.1;
    const random_stream random{.seed = 2};
    const int rows = 64, draws = 20'000;
    std::vector<double> delta(rows);
    double squares = 0, measured = 0;
    for (std::size_t r = 0; r < delta.size(); ++r) {
        delta[r] = random.normal(r);
        squares += delta[r] * delta[r];
    }
    for (int d = 0; d < draws; ++d) {
        double error = 0;
        const random_stream other{3, std::uint32_t(d)};
        for (std::size_t r = 0; r < delta.size(); ++r) error += delta[r] * eb * (2 * double(other.uniform(r)) - 1);
        measured += error * error / draws;
    }
    require(std::abs(measured / (eb * eb / 3 * squares) - 1) < 0.03, "variance ", measured);
}

int main() {
    steps();
    recomputation();
    dither();
    gradient_variance();
}
