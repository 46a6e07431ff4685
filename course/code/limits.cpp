// Code of course/lectures/00-limits.md: the worked example, computed.

#include <cairn/comm/collectives/cost_model.hpp>

#include <cmath>
#include <cstdio>

using namespace cairn;

// --8<-- [start:model]
/// Seconds of a data-parallel step: computing, and what of the all-reduce backward does not hide.
struct step_model {
    double compute;  // forward, backward and update of one rank
    double bytes;    // of all gradients
    link_model link;
    double hidden = 0;  // share of the all-reduce that runs during backward

    double seconds(int ranks) const {
        return compute + (1 - hidden) * all_reduce_seconds(link, all_reduce_algorithm::ring, bytes, ranks);
    }
};
// --8<-- [end:model]

int main() {
    // --8<-- [start:example]
    const double gradients = 4 * 11.17e6;  // ResNet-18: 44.7 MB
    const double compute = 128 / 282.7;    // the whole batch on these two cores, which all ranks share
    for (const double megabit : {100.0, 1000.0}) {
        const step_model step{compute, gradients, link_model(100e-6, 8 / (megabit * 1e6), 0)};
        std::printf("%4.0f Mbit/s: %.2f s a step, %.2f s of them all-reduce\n", megabit, step.seconds(4),
                    step.seconds(4) - compute);
    }
    // --8<-- [end:example]

    // The page's numbers.
    const auto close = [](double x, double y) { return std::abs(x - y) <= 0.005 * y; };
    const auto reduce = [&](double bits, int p, double alpha) {
        return all_reduce_seconds(link_model(alpha, 8 / bits, 0), all_reduce_algorithm::ring, gradients, p);
    };
    require(close(2.0 * 3 / 4 * gradients, 67.0e6), "bytes a rank sends");
    require(close(reduce(100e6, 4, 100e-6), 5.36) && close(reduce(1e9, 4, 100e-6), 0.537), "all-reduce on four hosts");
    const auto strong = [&](double bits, int p, double alpha) {
        return compute / (compute / p + reduce(bits, p, alpha));
    };
    require(close(strong(1e9, 2, 50e-6), 0.776), "two ranks at 1 Gbit/s: ", strong(1e9, 2, 50e-6));
    require(close(strong(10e9, 8, 20e-6), 3.79), "eight ranks at 10 Gbit/s: ", strong(10e9, 8, 20e-6));
    std::printf("strong scaling: %.3f on 2 ranks at 1 Gbit/s, %.3f on 8 at 10 Gbit/s\n", strong(1e9, 2, 50e-6),
                strong(10e9, 8, 20e-6));
}
