// Your all-reduce on ranks that are processes: is it right, how long does it take? Not graded. From the root of the repository:
//   mpicxx -std=c++20 -O2 -DCAIRN_HAS_MPI=1 -I include -I my-lab2 labs/02-ring-allreduce/on_mpi.cpp -o my-lab2/on_mpi
//   mpirun -np 4 --oversubscribe my-lab2/on_mpi

#include "all_reduce.hpp"

#include <cairn/comm/mpi.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace {

/// Seconds of the fastest of ten runs on this rank; -1 where a sum is wrong.
template <class Reduce>
double seconds(cairn::mpi_communicator& c, std::size_t n, Reduce&& reduce) {
    double best = 1e9;
    for (int run = 0; run < 10; ++run) {
        std::vector<float> data(n, static_cast<float>(c.rank() + run));  // small whole numbers: sums are exact
        const float sum = static_cast<float>(c.size() * (c.size() - 1) / 2 + run * c.size());
        const cairn::stopwatch clock;
        reduce(c, std::span<float>(data));
        best = std::min(best, clock.seconds());
        if (std::any_of(data.begin(), data.end(), [&](float v) { return v != sum; })) return -1;
    }
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    return cairn::run_mpi(argc, argv, [](cairn::mpi_communicator& c) {
        if (c.rank() == 0) std::printf("%d ranks\n    elements      ring    halving and doubling    (ms)\n", c.size());
        for (std::size_t n = 1; n <= 10'000'000; n *= 10) {
            const double ring = seconds(c, n, [](auto& w, auto data) { student::ring_all_reduce(w, data); });
            const double halving =
                seconds(c, n, [](auto& w, auto data) { student::halving_doubling_all_reduce(w, data); });
            if (ring < 0 || halving < 0) {
                std::printf("rank %d: %s is wrong\n", c.rank(), ring < 0 ? "the ring" : "halving and doubling");
                return 1;
            }
            if (c.rank() == 0) std::printf("%12zu %9.3f %14.3f\n", n, 1e3 * ring, 1e3 * halving);
        }
        return 0;
    });
}
