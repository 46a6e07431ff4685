#pragma once
// The messages between the ranks of a program, and which simple ways of sending them would deadlock. sF sends to the
// rank of s+1, sI and sB send to the rank of s−1, W sends nothing; stages of one rank send nothing to each other.
// Sends that do not block, waited for at the end of the step, never deadlock a program that validate() takes. The
// simpler ways do:
//   blocking   receive, compute, send, each waiting for the other side (MPI_Ssend): deadlocks all but GPipe
//   batched    one batch "send of the last F, I or B and receive of the next": deadlocks interleaved, ZB-V and DualPipe

#include <cairn/parallel/pipeline/action_index.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace cairn {

/// An activation or a gradient between two ranks.
struct pipeline_message {
    action_place sent_after, received_before;
    bool gradient;
};

inline std::vector<pipeline_message> pipeline_messages(const pipeline_program& program) {
    const action_index index(program);
    std::vector<pipeline_message> all;
    for (int rank = 0; rank < program.ranks; ++rank) {
        int position = 0;
        for (const action& a : program.actions[static_cast<std::size_t>(rank)]) {
            const action_place here{rank, position++};
            if (a.kind == action_kind::backward_weight) continue;
            index.for_each_need(a, [&](const action_place& need) {
                if (need.rank != rank) all.push_back({need, here, a.kind != action_kind::forward});
            });
        }
    }
    return all;
}

enum class rendezvous { blocking, batched };

/// Whether all ranks get to their ends where a send ends only when its receive is posted.
inline bool finishes_with(const pipeline_program& program, rendezvous how) {
    const std::vector<pipeline_message> messages = pipeline_messages(program);
    std::vector<std::vector<std::vector<std::size_t>>> in, out;  // messages by rank and position
    for (const action_list& list : program.actions) {
        in.emplace_back(list.size());
        out.emplace_back(list.size());
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto& [from, to, gradient] = messages[i];
        out[static_cast<std::size_t>(from.rank)][static_cast<std::size_t>(from.position)].push_back(i);
        in[static_cast<std::size_t>(to.rank)][static_cast<std::size_t>(to.position)].push_back(i);
    }

    std::vector<std::vector<std::vector<std::size_t>>> batches(
        program.actions.size());                                        // that a rank waits for in turn
    std::vector<std::array<std::size_t, 2>> batch_of(messages.size());  // of the sender, the receiver
    for (std::size_t r = 0; r < batches.size(); ++r) {
        std::vector<std::size_t> open;
        const auto close = [&] {
            for (const std::size_t i : open)
                batch_of[i][static_cast<std::size_t>(messages[i].received_before.rank) == r ? 1 : 0] =
                    batches[r].size();
            batches[r].push_back(std::move(open));
            open.clear();
        };
        for (std::size_t k = 0; k < program.actions[r].size(); ++k) {
            if (program.actions[r][k].kind == action_kind::backward_weight) continue;
            if (how == rendezvous::blocking) close();
            open.insert(open.end(), in[r][k].begin(), in[r][k].end());
            close();
            open = out[r][k];
        }
        close();
    }

    std::vector<std::size_t> at(batches.size(), 0);
    const auto posted = [&](std::size_t i) {
        return at[static_cast<std::size_t>(messages[i].sent_after.rank)] >= batch_of[i][0] &&
               at[static_cast<std::size_t>(messages[i].received_before.rank)] >= batch_of[i][1];
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < batches.size(); ++r)
            for (; at[r] < batches[r].size() && std::ranges::all_of(batches[r][at[r]], posted); ++at[r]) moved = true;
    }
    for (std::size_t r = 0; r < batches.size(); ++r)
        if (at[r] < batches[r].size()) return false;
    return true;
}

}  // namespace cairn
