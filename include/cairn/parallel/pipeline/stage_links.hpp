#pragma once
// Messages between the stages of a pipeline: after sF the activation, to the rank of stage s + 1; after sI or sB the
// gradient of the stage's input, to the rank of stage s − 1. Between two stages of one rank nothing is sent.
//   Sends do not block; each keeps its tensor until it is complete, the last ones until the end of the step.
//   Receives are posted ahead in the order in which the rank's list needs them, and waited for where it does.
// With that any valid list runs, and no list waits longer than its dependencies make it (course/pipelines.md): a
// receive that blocks before a send does, or a send before a receive, deadlocks with most schedules.
// A message has the tag of its boundary and direction; messages of one tag are received in the order of the sender's
// list, which both ranks know. Tensors of a GPU travel by one communicator per tag: NCCL has no tags, and a transfer
// waits for all earlier ones of its communicator, including other ranks' parts of them.

#include <cairn/core/clock.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/pipeline/program.hpp>

#include <algorithm>
#include <list>
#include <map>
#include <utility>
#include <vector>

namespace cairn {

/// Seconds of a step's actions on one rank, and how many of them it waited for other ranks.
struct links_time {
    double all = 0, waited = 0;
};

/// See the top of the file. Of one rank.
template <class T, Device D, Communicator C>
class stage_links {
public:
    /// All stages are on this rank.
    stage_links() = default;

    /// `over`: the ranks of the pipeline; must outlive this. `boundaries`: shapes of what enters each stage, for one
    /// sample (cut.hpp).
    stage_links(channel<C>& over, std::vector<shape> boundaries) : over_(&over), boundaries_(std::move(boundaries)) {
        require_carries<D>(over);
    }

    int rank() const { return over_ ? over_->rank() : 0; }

    /// A new step, with micro-batches of so many samples.
    void begin(const pipeline_program& program, std::vector<index_t> samples) {
        require(program.ranks == (over_ ? over_->size() : 1), "schedule ", program.name, " is for ", program.ranks,
                " ranks, the pipeline has ", over_ ? over_->size() : 1);
        require(!program.mirrored, "schedule ", program.name,
                " needs two copies of every stage: it can be printed and validated, not executed");
        const int inner = program.stages() - 1;
        require(2 * inner <= user_tags, "a pipeline of ", inner + 1, " stages; at most ", user_tags / 2, " have tags");
        watch_.restart();
        time_ = {};
        outgoing_.clear();
        streams_.clear();
        needs_.clear();
        reached_ = posted_ = 0;
        samples_ = std::move(samples);
        make_lanes(program);
        streams_.resize(static_cast<std::size_t>(2 * inner));
        for (int b = 0; b < inner; ++b)
            for (const bool gradient : {false, true}) {
                stream& s = streams_[number_of(b, gradient)];
                s.from = program.rank_of_stage[static_cast<std::size_t>(gradient ? b + 1 : b)];
                s.to = program.rank_of_stage[static_cast<std::size_t>(gradient ? b : b + 1)];
            }
        if (program.ranks == 1) return;
        for (int r = 0; r < program.ranks; ++r)
            for (const action& a : program.actions[static_cast<std::size_t>(r)]) {
                if (a.kind == action_kind::backward_weight) continue;
                const bool gradient = a.kind != action_kind::forward;
                // What it sends, and what it needs.
                const int sent = gradient ? a.stage - 1 : a.stage, needed = gradient ? a.stage : a.stage - 1;
                if (sent >= 0 && sent < inner) streams_[number_of(sent, gradient)].order.push_back(a.micro_batch);
                if (r == rank() && needed >= 0 && needed < inner && is_remote(needed, gradient))
                    needs_.push_back({number_of(needed, gradient), a.micro_batch});
            }
    }

    /// Hands on what crosses the boundary between stages b and b + 1.
    void send(int b, bool gradient, int m, tensor<T, D> t) {
        stream& s = streams_[number_of(b, gradient)];
        if (s.from == s.to) {
            s.arrived[m] = {std::move(t), {}};
            return;
        }
        require(t.shape() == shape_of(b, m), "what crosses from stage ", b, " to ", b + 1, " has shape ", t.shape(),
                ", it was cut for ", shape_of(b, m));
        outgoing_.push_back({std::move(t), {}});
        message& last = outgoing_.back();
        [[maybe_unused]] const auto why = because(lane(tag_of(b, gradient)), cause_of(gradient));
        last.under_way = isend(lane(tag_of(b, gradient)), std::span<const T>(last.data.span()),
                               peer(tag_of(b, gradient)), tag_of(b, gradient));
    }

    /// The same on the other side. Waits.
    tensor<T, D> receive(int b, bool gradient, int m) {
        stream& s = streams_[number_of(b, gradient)];
        if (s.from != s.to) {
            ++reached_;
            post_ahead();
        }
        const auto at = s.arrived.find(m);
        require(at != s.arrived.end(), gradient ? "gradient" : "activation", " of micro-batch ", m, " between stages ",
                b, " and ", b + 1, " was never handed on");
        message got = std::move(at->second);
        s.arrived.erase(at);
        if (s.from == s.to) return std::move(got.data);
        with_context(concat("waiting for the ", gradient ? "gradient" : "activation", " of micro-batch ", m,
                            " between stages ", b, " and ", b + 1, " from rank ", s.from, " of the pipeline"),
                     [&] {
                         const trace_scope scope(gradient ? "recv gradient" : "recv activation", "", "communication");
                         const stopwatch waiting;
                         [[maybe_unused]] const auto why = because(lane(tag_of(b, gradient)), cause_of(gradient));
                         got.under_way.wait();
                         time_.waited += waiting.seconds();
                     });
        return std::move(got.data);
    }

    /// Between two actions: posts receives, lets tensors go that have been sent.
    void progress() {
        post_ahead();
        std::erase_if(outgoing_, [](message& m) { return m.under_way.test(); });
    }

    /// The end of a step.
    void finish() {
        const stopwatch waiting;
        for (message& m : outgoing_) m.under_way.wait();
        outgoing_.clear();
        time_.waited += waiting.seconds();
        time_.all = watch_.seconds();
    }

    /// Of the last step, from begin to finish.
    const links_time& time() const { return time_; }

private:
    static constexpr std::size_t ahead = 2;  // receives that are posted before the list needs them

    struct message {
        tensor<T, D> data;
        typename C::request under_way;  // goes before its data
    };
    struct stream {
        int from = 0, to = 0;
        std::vector<int> order;          // micro-batches, as the sender's list has them
        std::size_t posted = 0;          // of them
        std::map<int, message> arrived;  // by micro-batch: posted, and not yet taken
    };
    struct need {
        std::size_t stream;
        int micro_batch;
    };

    static std::size_t number_of(int b, bool gradient) { return static_cast<std::size_t>(tag_of(b, gradient)); }
    static int tag_of(int b, bool gradient) { return 2 * b + (gradient ? 1 : 0); }
    bool is_remote(int b, bool gradient) const {
        const stream& s = streams_[number_of(b, gradient)];
        return s.from != s.to;
    }
    shape shape_of(int b, int m) const {
        return boundaries_[static_cast<std::size_t>(b + 1)].with(0, samples_[static_cast<std::size_t>(m)]);
    }

    void post_ahead() {
        for (; posted_ < std::min(needs_.size(), reached_ + ahead); ++posted_) {
            const need& n = needs_[posted_];
            stream& s = streams_[n.stream];
            const auto until = static_cast<std::size_t>(std::ranges::find(s.order, n.micro_batch) - s.order.begin());
            while (s.posted < std::min(until + 1, s.order.size())) post(n.stream);
        }
    }

    void post(std::size_t which) {
        stream& s = streams_[which];
        const int m = s.order[s.posted++];
        message& next = s.arrived[m];
        next.data = tensor<T, D>(shape_of(static_cast<int>(which / 2), m), memory_category::activations);
        const int tag = static_cast<int>(which);
        next.under_way = irecv(lane(tag), next.data.span(), peer(tag), tag);
        if (!lanes_.empty()) next.under_way.test();  // begun by itself: together with the next one it ends with that
    }

    // Collective, once: of a tag's two ranks.
    void make_lanes(const pipeline_program& program) {
        if (!lanes_.empty() || program.ranks == 1 || !buffers_on_gpu(over_->device)) return;
        for (int tag = 0; tag < 2 * (program.stages() - 1); ++tag) {
            const bool uses_it = rank() == program.rank_of_stage[static_cast<std::size_t>(tag / 2)] ||
                                 rank() == program.rank_of_stage[static_cast<std::size_t>(tag / 2 + 1)];
            lanes_.push_back(over_->device.split(uses_it ? 0 : -1, rank()));
        }
    }
    static const char* cause_of(bool gradient) { return gradient ? "gradients of activations" : "activations"; }
    C& lane(int tag) { return lanes_.empty() ? over_->device : lanes_[static_cast<std::size_t>(tag)]; }
    // Of a stream of two ranks, the other one's number on its lane.
    int peer(int tag) {
        const stream& s = streams_[static_cast<std::size_t>(tag)];
        return lanes_.empty() ? s.from + s.to - rank() : 1 - lane(tag).rank();
    }

    channel<C>* over_ = nullptr;
    std::vector<C> lanes_;  // by tag, of a GPU's tensors
    std::vector<shape> boundaries_;
    std::vector<index_t> samples_;
    std::vector<stream> streams_;           // by tag
    std::vector<need> needs_;               // of this rank's list, in order
    std::size_t reached_ = 0, posted_ = 0;  // of needs_
    std::list<message> outgoing_;
    stopwatch watch_;
    links_time time_;
};

}  // namespace cairn
