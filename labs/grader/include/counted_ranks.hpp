#pragma once
// For labs whose ranks are threads: what a submission gets to communicate with. It counts, and only the test can read
// or reset the counts.

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>

#include <span>
#include <string>
#include <utility>

namespace lab {

using counted = cairn::counting_communicator<cairn::threads_communicator>;

/// Counts into the numbers of the `counted` that it is made from. Satisfies cairn::Communicator.
class rank_of_test {
public:
    using request = counted::request;

    explicit rank_of_test(counted c) : counts_(std::move(c)) {}

    int rank() const { return counts_.rank(); }
    int size() const { return counts_.size(); }
    std::string name() const { return "threads"; }
    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        return counts_.isend(data, peer, tag);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) { return counts_.irecv(room, peer, tag); }
    [[nodiscard]] rank_of_test split(int colour, int key) { return rank_of_test(counts_.split(colour, key)); }
    [[nodiscard]] auto enter(const cairn::collective_call& call) { return counts_.enter(call); }

private:
    counted counts_;
};

}  // namespace lab
