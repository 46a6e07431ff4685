#pragma once
// Writes the list of one rank: "the next forward of this stage", micro-batches counted up for each stage and kind.

#include <cairn/parallel/pipeline/program.hpp>

#include <deque>
#include <utility>
#include <vector>

namespace cairn {

/// A stage of the rank and the micro-batches [begin, end) that pass it.
struct pipeline_lane {
    int stage = 0, begin = 0, end = 0;
};

/// See the top of the file. A call that has no micro-batch left adds nothing and returns false.
class list_writer {
public:
    explicit list_writer(const std::vector<pipeline_lane>& lanes) {
        for (const pipeline_lane& lane : lanes) lanes_.push_back({lane, lane.begin, lane.begin});
    }

    bool forward(std::size_t lane = 0) { return add(lane, action_kind::forward, lanes_[lane].next_forward); }
    bool backward(std::size_t lane = 0) { return add(lane, action_kind::backward, lanes_[lane].next_backward); }
    bool backward_input(std::size_t lane = 0) {
        const int micro_batch = lanes_[lane].next_backward;
        if (!add(lane, action_kind::backward_input, lanes_[lane].next_backward)) return false;
        waiting_.push_back({action_kind::backward_weight, lanes_[lane].of.stage, micro_batch});
        return true;
    }
    /// W of the oldest I that has none yet, of any stage.
    bool backward_weight() {
        if (waiting_.empty()) return false;
        actions_.push_back(waiting_.front());
        waiting_.pop_front();
        return true;
    }
    /// The same of one stage.
    bool backward_weight_of(std::size_t lane) {
        const auto oldest = std::find_if(waiting_.begin(), waiting_.end(),
                                         [&](const action& w) { return w.stage == lanes_[lane].of.stage; });
        if (oldest == waiting_.end()) return false;
        actions_.push_back(*oldest);
        waiting_.erase(oldest);
        return true;
    }
    void remaining_weights() {
        while (backward_weight()) continue;
    }

    action_list take() { return std::move(actions_); }

private:
    struct counted_lane {
        pipeline_lane of;
        int next_forward, next_backward;
    };

    bool add(std::size_t lane, action_kind kind, int& next) {
        if (next >= lanes_[lane].of.end) return false;
        actions_.push_back({kind, lanes_[lane].of.stage, next++});
        return true;
    }

    std::vector<counted_lane> lanes_;
    std::deque<action> waiting_;  // W that follow from the I so far
    action_list actions_;
};

}  // namespace cairn
