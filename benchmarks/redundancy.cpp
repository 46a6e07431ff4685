// What it costs that hosts keep copies or parities for one another (state/redundancy.hpp).
//
//   mpirun -np 4 redundancy [--megabytes 34] [--rounds 15]
//   benchmarks/links/cluster 4 1gbit build/release/benchmarks/redundancy
//
//   copy             of each rank's data, on its own host
//   exchange         the data to the right neighbour, by MPI_Sendrecv
//   partner          the same by encode(), with checksum, in pieces
//   xor, rs          one and two parities, encoded
//   reduce-scatter   the parity of xor by MPI_Reduce_scatter with MPI_BXOR: of n parts, of which the own one is empty,
//                    so that no rank keeps the parity of its own data. They are laid out beforehand, not in the time.
//   rebuild          one rank's data from the xor parity
//
// Every round runs all ways in turn; a sample is the slowest rank's. Prints least and median times, and bytes kept by a
// rank. All ranks are one group, as if each had a host of its own. Measured with OpenMPI 4.1.4 on two cores of an AMD
// EPYC, medians in ms of 4 ranks with 34 MB each: in one node exchange 22, partner 28, xor 28, rs 66, reduce-scatter
// 101, rebuild 62; on four hosts at 1 Gbit/s (272 for the bytes alone) 308, 314, 305, 682, 409, 352.

#include <cairn/comm/mpi.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/random.hpp>
#include <cairn/state/redundancy.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if CAIRN_HAS_MPI

namespace {

using namespace cairn;

struct settings {
    double megabytes = 34;
    int rounds = 15;
};

int run(mpi_communicator& world, const settings& s) {
    const int n = world.size(), me = world.rank();
    require(n > 2, "redundancy: two parities need three ranks at least; start as mpirun -np 4");
    host_group group{world.split(0, me), {}};
    for (int r = 0; r < n; ++r) group.hosts.push_back("rank " + std::to_string(r));
    const auto parts = static_cast<std::size_t>(n);
    const std::size_t chunk = static_cast<std::size_t>(s.megabytes * 1e6) / (64 * (parts - 1)) * 64 + 64;
    const std::size_t bytes = chunk * (parts - 1);
    require(bytes < std::size_t{1} << 31, "redundancy: at most 2,000 megabytes, for MPI_Sendrecv's sake");
    std::vector<std::byte> data(bytes), copy(bytes), slots(chunk * parts), part(chunk), by_partner, by_xor, by_rs;
    const random_stream numbers{1, static_cast<std::uint32_t>(me)};
    for (std::size_t i = 0; i < bytes; i += 8) data[i] = static_cast<std::byte>(numbers.bits(i));
    const std::size_t own = chunk * static_cast<std::size_t>(me);
    std::copy_n(data.begin(), own, slots.begin());
    std::copy(data.begin() + static_cast<std::ptrdiff_t>(own), data.end(),
              slots.begin() + static_cast<std::ptrdiff_t>(own + chunk));
    const std::vector<int> counts(parts, static_cast<int>(chunk / 8));
    const version_identity version{};

    struct way {
        const char* name;
        std::function<void()> action;
        std::vector<double> seconds = {};
    };
    std::vector<way> ways{
        {"copy", [&] { std::copy(data.begin(), data.end(), copy.begin()); }},
        {"exchange",
         [&] {
             MPI_Sendrecv(data.data(), static_cast<int>(bytes), MPI_BYTE, (me + 1) % n, 0, copy.data(),
                          static_cast<int>(bytes), MPI_BYTE, (me + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         }},
        {"partner", [&] { by_partner = encode(group, {redundancy::partner}, version, data, std::move(by_partner)); }},
        {"xor",
         [&] {
             by_xor = encode(group, {redundancy::parity, 1}, version, data, std::move(by_xor));
         }},
        {"rs",
         [&] {
             by_rs = encode(group, {redundancy::parity, 2}, version, data, std::move(by_rs));
         }},
        {"reduce-scatter",
         [&] { MPI_Reduce_scatter(slots.data(), part.data(), counts.data(), MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD); }},
        {"rebuild", [&] {
             const bool lost = me == n - 1;
             const auto rebuilt = rebuild(group, version, lost ? rank_parts{} : rank_parts{data, by_xor});
             require(!lost || rebuilt.value() == data, "redundancy: rebuilt data are not what they were");
         }}};
    for (int round = -1; round < s.rounds; ++round)  // the first touches memory, and does not count
        for (way& w : ways) {
            MPI_Barrier(MPI_COMM_WORLD);
            const stopwatch clock;
            w.action();
            double seconds = clock.seconds();
            world.vendor()->all_reduce(std::span<double>(&seconds, 1), reduction::max);
            if (round >= 0) w.seconds.push_back(seconds);
        }
    if (me != 0) return 0;
    std::printf("%d ranks, %.1f MB each, %d rounds\n%-15s %10s %10s\n", n, static_cast<double>(bytes) / 1e6, s.rounds,
                "way", "least ms", "median ms");
    for (way& w : ways) {
        std::ranges::sort(w.seconds);
        std::printf("%-15s %10.1f %10.1f\n", w.name, 1e3 * w.seconds.front(), 1e3 * w.seconds[w.seconds.size() / 2]);
    }
    std::printf("kept by a rank, in MB: partner %.1f, xor %.1f, rs %.1f\n",
                static_cast<double>(by_partner.size()) / 1e6, static_cast<double>(by_xor.size()) / 1e6,
                static_cast<double>(by_rs.size()) / 1e6);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{"Measures copies and parities that hosts keep for one another."};
    app.add_option("--megabytes", s.megabytes, "of each rank")->check(CLI::Range(0.001, 2000.0));
    app.add_option("--rounds", s.rounds, "of all ways")->check(CLI::Range(1, 10000));
    CLI11_PARSE(app, argc, argv);
    return run_mpi(argc, argv, [&](mpi_communicator& world) { return run(world, s); });
}

#else

int main(int, char**) {
    std::fprintf(stderr, "redundancy: built without MPI (Debian: apt-get install libopenmpi-dev openmpi-bin)\n");
    return 1;
}

#endif
