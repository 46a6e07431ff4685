#pragma once
// Reduces gradients over ranks while backward still computes others.
//   any_layer's backward → added(ids) → a bucket has all its gradients → the progress thread reduces it in place
//   finish() submits the rest and waits
// Buckets are submitted in their order on every rank, however the layers finish, so that all ranks reduce the same one
// at the same time. The first step learns how often backward adds to each parameter (twice, where two layers share it)
// and reduces at its end.

#include <cairn/core/clock.hpp>
#include <cairn/core/event.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/parallel/buckets.hpp>
#include <cairn/parallel/progress_thread.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace cairn {

/// Times of the reductions, in seconds.
struct reduction_time {
    double busy = 0;     // the progress thread reduced
    double exposed = 0;  // the training thread waited for it
    double hidden_share() const { return busy > 0 ? std::max(0.0, 1 - exposed / busy) : 0; }
};

/// See the top of the file.
template <class T = float, Device D = cpu>
class gradient_reducer final : public gradient_listener {
public:
    /// Changes the gradients of bucket number `which` in place.
    using bucket_function = std::function<void(int which, std::span<T> gradients)>;

    /// Without `overlap`, everything is reduced in finish(), on the calling thread.
    gradient_reducer(arena<T, D>& weights, std::vector<bucket> buckets, bool overlap, bucket_function reduce)
        : grads_(weights.grads().share()), buckets_(std::move(buckets)), reduce_(std::move(reduce)) {
        for (const auto& [name, p] : weights.parameters()) names_.push_back(name);
        uses_.assign(names_.size(), 0);
        bucket_of_.assign(names_.size(), 0);
        ready_.assign(buckets_.size(), 0);
        for (std::size_t b = 0; b < buckets_.size(); ++b)
            for (int p = buckets_[b].first; p < buckets_[b].last; ++p)
                bucket_of_[static_cast<std::size_t>(p)] = static_cast<int>(b);
        if (overlap) thread_ = std::make_unique<progress_thread>();
        begin();
    }

    /// Runs on a bucket's gradients before they are reduced, on the training thread: division by a loss scale.
    void before_reduce(bucket_function change) { before_reduce_ = std::move(change); }

    /// Until hold({}): a full bucket is not submitted, `filled` is called instead. So a backward that is captured as a
    /// CUDA graph (core/captured_graph.hpp) marks the place, and each replay calls submit_next_bucket() there.
    void hold(std::function<void()> filled) { filled_ = std::move(filled); }

    /// The next bucket is full.
    void submit_next_bucket() {
        require(next_ < buckets_.size(), "gradient reduction: all ", buckets_.size(),
                " buckets of this step were submitted");
        launch(next_++);
    }

    /// A new step: no gradient is there yet.
    void begin() {
        next_ = 0;
        seen_.assign(names_.size(), 0);
        missing_.assign(buckets_.size(), 0);
        for (std::size_t p = 0; p < names_.size(); ++p) missing_[static_cast<std::size_t>(bucket_of_[p])] += uses_[p];
    }

    void added(std::span<const int> parameters) override {
        for (const int id : parameters) {
            const auto p = static_cast<std::size_t>(id), b = static_cast<std::size_t>(bucket_of_[p]);
            ++seen_[p];
            require(!learned_ || seen_[p] <= uses_[p], "gradient reduction: backward adds to ", names_[p], ' ',
                    seen_[p], " times in this step, ", uses_[p],
                    " times in the first one; it may have been reduced already");
            --missing_[b];
        }
        if (!learned_ || !thread_) return;
        while (next_ < buckets_.size() && missing_[next_] == 0)
            if (filled_)
                ++next_, filled_();
            else
                submit_next_bucket();
    }

    /// Reduces what backward has not announced, and returns when every gradient is reduced.
    void finish() {
        if (!learned_) {
            uses_ = seen_;
            learned_ = std::ranges::any_of(seen_, [](int n) { return n > 0; });  // not from a step without samples
        }
        while (next_ < buckets_.size()) submit_next_bucket();
        const stopwatch waiting;
        const trace_scope scope("wait for gradients", "", "communication");
        if (thread_) thread_->wait();
        if (reduced_) reduced_->wait();
        if (thread_) time_.exposed += waiting.seconds();
    }

    const std::vector<bucket>& buckets() const { return buckets_; }
    /// When bucket `which` of this step was handed over, on the clock of now().
    double ready(int which) const { return ready_[static_cast<std::size_t>(which)]; }
    const reduction_time& time() const { return time_; }
    void reset_time() { time_ = {}; }

private:
    std::span<T> gradients_of(std::size_t b) {
        return grads_.span().subspan(static_cast<std::size_t>(buckets_[b].begin),
                                     static_cast<std::size_t>(buckets_[b].size()));
    }

    void launch(std::size_t b) {
        ready_[b] = now();
        if (before_reduce_) before_reduce_(static_cast<int>(b), gradients_of(b));
        auto job = [this, b, gradients = event<D>()] {
            gradients.wait();
            const trace_scope scope("reduce bucket " + std::to_string(b), "", "communication");
            const stopwatch watch;
            reduce_(static_cast<int>(b), gradients_of(b));
            reduced_.emplace();
            time_.busy += watch.seconds();
            if (!thread_) time_.exposed += watch.seconds();
        };
        if (thread_)
            thread_->submit(job);
        else
            job();
    }

    tensor<T, D> grads_;
    std::vector<bucket> buckets_;
    bucket_function reduce_, before_reduce_;
    std::function<void()> filled_;  // called in place of submit_next_bucket()
    std::vector<std::string> names_;
    std::vector<int> uses_;       // of each parameter in one backward
    std::vector<int> seen_;       // in this step
    std::vector<int> bucket_of_;  // each parameter's
    std::vector<int> missing_;    // of each bucket
    std::vector<double> ready_;   // when each bucket was launched
    std::size_t next_ = 0;        // bucket to launch
    bool learned_ = false;
    reduction_time time_;
    std::optional<event<D>> reduced_;          // by the last reduction
    std::unique_ptr<progress_thread> thread_;  // last: stops before what it works on goes
};

}  // namespace cairn
