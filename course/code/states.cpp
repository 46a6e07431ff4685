// Code of course/lectures/11-states.md. Prints its tables.

#include <cairn/comm/threads.hpp>
#include <cairn/core/random.hpp>
#include <cairn/state/interval.hpp>
#include <cairn/state/redundancy.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace cairn;

// --8<-- [start:simulate]
/// Share of the time that is lost when training stands still for every version and `failures` failures come.
double simulated_waste(const checkpoint_costs& c, double every, int failures) {
    const random_stream numbers{1, stream_of("failures")};
    double clock = 0, saved = 0;
    for (int i = 0; i < failures; ++i) {
        const double u = (numbers.bits(static_cast<std::uint64_t>(i)) + 0.5) * 0x1p-32;
        const double up = -c.mtbf * std::log(u);  // until the next failure: exponentially distributed
        const double versions = std::floor(std::max(0.0, up - c.restart) / every);
        saved += versions * (every - c.stall);  // what came after the last of them is lost
        clock += up;
    }
    return 1 - saved / clock;
}
// --8<-- [end:simulate]

void intervals() {
    // --8<-- [start:interval]
    const double failure = 54 * 86400.0 / 419;  // 16,384 GPUs: 419 failures in 54 days
    const checkpoint_costs waits{.stall = 30, .restart = 300, .mtbf = failure};
    const checkpoint_costs copies{.stall = 0.5, .flush = 120, .slow_down = 0.05, .restart = 300, .mtbf = failure};
    std::printf("%22s %18s %18s\n", "a version every", "training waits", "in the background");
    for (const double minutes : {3.0, 6.0, 14.0, 30.0, 60.0, 180.0})
        std::printf("%18.0f min %16.1f %% %16.1f %%\n", minutes, 100 * expected_waste(waits, 60 * minutes),
                    100 * expected_waste(copies, 60 * minutes));
    std::printf("%22s %14.1f min %14.1f min\n", "best", best_interval(waits) / 60, best_interval(copies) / 60);
    // --8<-- [end:interval]
    const double every = best_interval(waits);
    const double formula = expected_waste(waits, every), simulated = simulated_waste(waits, every, 100000);
    std::printf("waste at the best: formula %.4f, simulated %.4f\n", formula, simulated);
    require(std::abs(simulated / formula - 1) < 0.05, "simulated: ", simulated, ", by formula: ", formula);
    require(std::abs(best_interval(waits) - 817.4) < 0.5 && std::abs(best_interval(copies) - 380.5) < 0.5, "intervals");
}

void tiers() {
    // --8<-- [start:tiers]
    const std::vector<checkpoint_costs> tiers{
        {.stall = 0.5, .restart = 10, .mtbf = 3600},                                             // a process dies
        {.stall = 0.2, .flush = 20, .slow_down = 0.1, .restart = 30, .mtbf = 6 * 3600},          // a host dies
        {.stall = 1, .flush = 300, .slow_down = 0.02, .restart = 300, .mtbf = 10 * 24 * 3600}};  // all hosts do
    const std::vector<double> every = tier_intervals(tiers);
    // --8<-- [end:tiers]
    std::printf("own host every %.0f s, other hosts every %.0f s, file system every %.0f s: %.1f %% lost\n", every[0],
                every[1], every[2], 100 * expected_waste(tiers, every));
    checkpoint_costs one = tiers[2];
    one.mtbf = 1 / (1 / tiers[0].mtbf + 1 / tiers[1].mtbf + 1 / tiers[2].mtbf);
    std::printf("file system alone every %.0f s: %.1f %% lost\n", best_interval(one),
                100 * expected_waste(one, best_interval(one)));
    require(expected_waste(tiers, every) < 0.5 * expected_waste(one, best_interval(one)), "tiers pay");
}

std::vector<std::byte> bytes_of(const std::string& text) {
    std::vector<std::byte> bytes(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) bytes[i] = static_cast<std::byte>(text[i]);
    return bytes;
}

void codes() {
    // --8<-- [start:xor]
    const std::vector<std::vector<std::byte>> data{bytes_of("weights"), bytes_of("moments"), bytes_of("squares")};
    std::vector<std::byte> parity(7);
    for (const auto& chunk : data) add_product(parity, 1, chunk);  // parity ^= chunk

    std::vector<std::byte> lost = parity;  // data[1] is gone: it is what the parity and the others add up to
    add_product(lost, 1, data[0]);
    add_product(lost, 1, data[2]);
    // --8<-- [end:xor]
    require(lost == data[1], "xor");

    // --8<-- [start:two]
    const int m = 2;  // parities: any two of five may be lost
    std::vector<std::vector<std::byte>> parities(m, std::vector<std::byte>(7));
    for (int j = 0; j < m; ++j)
        for (int i = 0; i < 3; ++i) add_product(parities[std::size_t(j)], parity_factor(m, j, i), data[std::size_t(i)]);

    for (const lost_chunk& one : solve_lost_chunks(3, {0, 2}, {true, true})) {  // data[0] and data[2] are gone
        std::vector<std::byte> rebuilt(7);
        add_product(rebuilt, one.of_chunk[1], data[1]);
        for (int j = 0; j < m; ++j) add_product(rebuilt, one.of_parity[std::size_t(j)], parities[std::size_t(j)]);
        require(rebuilt == data[std::size_t(one.chunk)], "two lost chunks");
    }
    // --8<-- [end:two]
    std::printf("factors of two parities:\n");
    for (int j = 0; j < m; ++j)
        std::printf("  P_%d = %3d chunk_0 + %3d chunk_1 + %3d chunk_2\n", j, parity_factor(m, j, 0),
                    parity_factor(m, j, 1), parity_factor(m, j, 2));
}

void hosts() {
    // --8<-- [start:hosts]
    run_ranks(4, {.ranks_per_node = 1}, [](threads_communicator& threads) {
        any_communicator world(threads.split(0, threads.rank()));
        const std::string host = "host" + std::to_string(world.rank());
        host_group group = form_host_group(world, host, 4);
        const version_identity version{std::byte{7}};

        const std::vector<std::byte> data = bytes_of("what " + host + " trains");
        const std::vector<std::byte> kept = encode(group, {redundancy::parity, 1}, version, data);

        rank_parts parts{data, kept};
        if (host == "host2") parts = {};  // a new machine with an empty disk
        const auto rebuilt = rebuild(group, version, parts);
        if (host == "host2") require(rebuilt.value() == data, "not what it was");
    });
    // --8<-- [end:hosts]
}

void flips() {
    // --8<-- [start:flip]
    const float weight = 0.05f;
    for (const int bit : {0, 11, 22, 23, 25, 27, 29, 30, 31}) {
        const auto flipped = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) ^ (1u << bit));
        std::printf("bit %2d: %.8g\n", bit, flipped);
    }
    // --8<-- [end:flip]
    require(std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) ^ (1u << 30)) > 1e37f,
            "the highest exponent bit");
}

int main() {
    intervals();
    tiers();
    codes();
    hosts();
    flips();
}
