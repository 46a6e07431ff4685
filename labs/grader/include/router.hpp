#pragma once
// The judge's side of the messages between ranks: matches sends with receives, counts, keeps the virtual clock, and
// knows which rank waits for what. Knows nothing of pipes.

#include "frames.hpp"
#include "judge.hpp"

#include <deque>
#include <map>
#include <set>

namespace lab {

class router {
public:
    router(int ranks, alpha_beta net)
        : net_(net), ranks_(static_cast<std::size_t>(ranks)), contexts_{everybody(ranks)} {}

    /// What is to be written to a worker.
    std::function<void(int rank, to_worker kind, std::uint32_t number, std::span<const std::byte> payload)> write;

    /// One frame of a rank's worker, other than reply and ask. Throws fault where the frame makes no sense.
    void take(int rank, const frame_header& header, std::span<const std::byte> payload);
    void returned(int rank) {
        at(rank).state = "has returned";
        at(rank).waits = false;
        at(rank).over = true;
    }

    bool waits(int rank) const { return ranks_[static_cast<std::size_t>(rank)].waits; }
    /// What every rank waits for: for the message of a deadlock.
    std::string states() const;
    std::vector<sent> counts() const;

private:
    struct transfer {
        bool sends = false, matched = false, awaited = false;
        std::uint32_t context = 0;
        int peer = 0, tag = 0;
        std::uint64_t size = 0;
        bytes data;  // of a send; moved into its receive
        std::int64_t chain = 0;
        double posted = 0, finished = 0;
    };
    struct rank_state {
        sent count;
        std::map<std::uint32_t, transfer> open;  // by request
        std::map<std::tuple<std::uint32_t, int, int, bool>, std::deque<std::uint32_t>>
            unmatched;                    // context, peer, tag, sends
        std::vector<std::string> inside;  // collectives
        std::string state = "computes";
        std::uint64_t held = 0;  // bytes of sends that nobody has received
        bool waits = false, over = false;
    };
    struct split_call {
        int colour = 0, key = 0;
    };
    struct context {
        std::vector<int> members;
        std::map<int, split_call> splitting;
    };

    static context everybody(int ranks) {
        context all;
        for (int r = 0; r < ranks; ++r) all.members.push_back(r);
        return all;
    }
    rank_state& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    void post(int rank, std::uint32_t number, transfer t);
    void match(int sender, std::uint32_t sent_number, int receiver, std::uint32_t received_number);
    void complete(int rank, std::uint32_t number);
    void split(int rank, std::uint32_t number, split_call call);
    static std::string described(const transfer& t, const std::vector<std::string>& inside);

    alpha_beta net_;
    std::vector<rank_state> ranks_;
    std::vector<context> contexts_;
};

}  // namespace lab
