#pragma once
// Sums over GF(2⁸) that travel from rank to rank: each adds its block and passes the partial sum on, and the last keeps
// it. Parity of a group of hosts is encoded and lost data are rebuilt by such sums, of which many are on their way at
// once:
//   rank 0: f0·b0  →  rank 1: + f1·b1  →  rank 2: + f2·b2  →  rank 3: result
// A rank sends one block for each sum that it takes part in, however many ranks there are.

#include <cairn/comm/communicator.hpp>
#include <cairn/state/erasure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

inline constexpr int partial_sum_tag = user_tags + 15;

/// What one rank does for one sum.
struct sum_step {
    std::size_t bytes = 0;             // of the sum
    int from = -1;                     // the rank that sends what was added so far; -1: nothing was
    std::span<const std::byte> block;  // this rank's summand, zeros after its end; nothing: zeros
    std::uint8_t factor = 1;           // of the summand
    int to = -1;                       // the rank that goes on; -1: none, the sum is complete …
    std::span<std::byte> result;       // … and stays here
};

/// All ranks run their steps, each in its order. No two wait for each other if some order of all steps has each after
/// the one that sends to it and agrees with the order of every rank, and no rank has more than `at_once` steps between
/// one that sends and the one that receives. Receives are posted that many steps ahead.
template <Communicator C>
void run_partial_sums(C& c, std::span<const sum_step> steps, std::size_t at_once) {
    struct place {
        std::vector<std::byte> room;  // of a sum that is passed on
        typename C::request got, sent;
    };
    const std::size_t ahead = at_once + 1;
    std::vector<place> places(2 * at_once + 1 + ahead);
    const auto place_of = [&](std::size_t step) -> place& { return places[step % places.size()]; };
    const auto sum_of = [&](std::size_t step) {
        const sum_step& s = steps[step];
        return s.to < 0 ? s.result.first(s.bytes) : std::span(place_of(step).room).first(s.bytes);
    };
    std::size_t posted = 0;
    for (std::size_t n = 0; n < steps.size(); ++n) {
        for (; posted < std::min(steps.size(), n + ahead); ++posted) {
            const sum_step& s = steps[posted];
            place& p = place_of(posted);
            p.sent.wait();
            if (s.to >= 0 && p.room.size() < s.bytes) p.room.resize(s.bytes);
            if (s.from >= 0) p.got = c.irecv(sum_of(posted), s.from, partial_sum_tag);
        }
        const sum_step& s = steps[n];
        place& p = place_of(n);
        std::span<const std::byte> passed_on = s.block;
        if (s.from >= 0 || s.to < 0 || s.factor != 1 || s.block.size() != s.bytes) {
            const std::span<std::byte> sum = sum_of(n);
            if (s.from < 0) std::fill(sum.begin(), sum.end(), std::byte{0});
            p.got.wait();
            add_product(sum, s.factor, s.block);
            passed_on = sum;
        }
        if (s.to >= 0) p.sent = c.isend(passed_on, s.to, partial_sum_tag);
    }
    for (place& p : places) p.sent.wait();
}

}  // namespace cairn
