#pragma once
// Launches that repeat every step on the same memory, captured as a graph and launched as a whole. For small networks
// the host's time per launch is most of a step.
//
//   graph_memory<D> memory;
//   captured_graph<D, Result> step(memory);
//   Result r = step([&] { …launches…; return Result{…}; });     // run, run, recorded and launched, launched, …
//
// A step may call host code among its launches. A graph cannot hold it: the capture is cut there, and every replay
// calls the code between the launches of the two parts:
//   step([&](const host_callback& host) { …launches…; host([&] { start_reduction(); }); …launches… });
//
// A captured step keeps the addresses of its tensors, so no other tensor may lie there. The second run logs the
// requests to the pool. The third run takes free ranges of the pool for the same requests and deals blocks out of
// them. Tensors that lie between these ranges stay where they are and cost the step no second memory.

#include <cairn/core/error.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// A device that records what is launched in place of running it.
///   D::recording r                   until r.end() or its destruction; waiting for the device meanwhile is an error
///   r.cut() → graph                  the launches until now; r continues with the next graph
///   graph.launch()                   runs it, in stream order
template <class D>
concept GraphCapture = Device<D> && std::default_initializable<typename D::recording> &&
    requires(typename D::recording& r, const typename D::graph& g) {
    { r.cut() } -> std::same_as<typename D::graph>;
    { r.end() } -> std::same_as<typename D::graph>;
    { g.empty() } -> std::same_as<bool>;
    g.launch();
};

/// Host code among the launches of a step, called at its place in every run. Its own launches must not use tensors that
/// the step allocates.
class host_callback {
public:
    using action = std::function<void()>;

    /// Calls it at once.
    host_callback() = default;
    /// Leaves it to `place`. `recording`: the launches around it are recorded, and nothing of them runs now.
    host_callback(std::function<void(action)> place, bool recording)
        : place_(std::move(place)), recording_(recording) {}

    bool recording() const { return recording_; }
    void operator()(action a) const { place_ ? place_(std::move(a)) : a(); }

private:
    std::function<void(action)> place_;
    bool recording_ = false;
};

namespace detail {

/// Addresses of a captured step: a free range of the pool, and how many of its first bytes belong to the step. The
/// placement of blocks depends on the whole range.
struct range_of_step : memory_range {
    index_t used;
};

/// A pool over memory, or over addresses alone, owned elsewhere.
class pool_in_ranges final : public memory_pool {
public:
    static constexpr index_t endless = index_t{1} << 44;

    /// `whole`: all of each range may be used, to find out how much is needed. At least one range.
    explicit pool_in_ranges(std::vector<range_of_step> ranges, bool whole = false)
        : memory_pool(ranges[0].begin, ranges[0].bytes, endless, "memory of a recorded step", "nothing"),
          ranges_(std::move(ranges)),
          whole_(whole) {
        for (std::size_t i = 1; i < ranges_.size(); ++i) add_range(ranges_[i]);
        if (!whole_) return;
        for (range_of_step& r : ranges_) r.used = 0;
    }

    const std::vector<range_of_step>& ranges() const { return ranges_; }

private:
    bool may_hand_out(char* from, char* to) override {
        auto& r = *std::ranges::find_if(
            ranges_, [&](const range_of_step& one) { return from >= one.begin && to <= one.begin + one.bytes; });
        if (whole_) r.used = std::max(r.used, static_cast<index_t>(to - r.begin));
        return to - r.begin <= r.used;
    }

    std::vector<range_of_step> ranges_;
    bool whole_;
};

/// Meets the requests; false where memory is out.
inline bool meet_again(const std::vector<memory_request>& requests, memory_pool& pool) {
    std::map<const void*, void*> held;
    try {
        for (const memory_request& r : requests) {
            if (r.taken) {
                held[r.block] = pool.allocate(r.bytes, r.use);
            } else if (const auto block = held.find(r.block); block != held.end()) {
                pool.release(block->second, r.bytes, r.use);
                held.erase(block);
            }
        }
    } catch (const error&) {
        return false;
    }
    return true;
}

/// Free ranges of `pool` that can serve the same requests; one at any address if there are none.
inline std::vector<range_of_step> ranges_to_repeat(const std::vector<memory_request>& requests,
                                                   const memory_pool& pool) {
    std::vector<range_of_step> ranges;
    for (const memory_range& r : pool.free_ranges()) ranges.push_back({r, 0});
    if (ranges.empty())
        ranges.push_back({{reinterpret_cast<char*>(pool_in_ranges::endless), pool_in_ranges::endless}, 0});
    pool_in_ranges addresses(std::move(ranges), true);
    require(meet_again(requests, addresses), "no memory for a recorded step beside what is held");
    ranges = addresses.ranges();
    const range_of_step last{ranges.back(), memory_pool::alignment};
    std::erase_if(ranges, [](const range_of_step& r) { return r.used == 0; });
    if (ranges.empty()) ranges.push_back(last);  // nothing was asked for
    return ranges;
}

/// Blocks of a pool at the ranges of a step.
class memory_of_step {
public:
    memory_of_step(const std::vector<memory_request>& requests, memory_pool& pool) : memory_of_step(pool) {
        const auto alone = pool.alone();  // else another thread might take what is found
        ranges_ = ranges_to_repeat(requests, pool);
        for (range_of_step& r : ranges_) {
            void* const block = pool_.allocate(r.used, memory_category::activations, r.begin);
            blocks_.push_back({static_cast<char*>(block), r.used});
            r.begin = static_cast<char*>(block);
        }
    }
    ~memory_of_step() {
        for (const memory_range& b : blocks_) pool_.release(b.begin, b.bytes, memory_category::activations);
    }
    memory_of_step(const memory_of_step&) = delete;
    memory_of_step& operator=(const memory_of_step&) = delete;

    const std::vector<range_of_step>& ranges() const { return ranges_; }

private:
    explicit memory_of_step(memory_pool& pool) : pool_(pool) {}  // made whole: what a failure leaves goes back

    memory_pool& pool_;
    std::vector<range_of_step> ranges_;
    std::vector<memory_range> blocks_;
};

}  // namespace detail

/// The memory of a stream's captured steps. They share it: steps run one after another, and the results of one are read
/// before the next begins.
template <Device D>
class graph_memory {
public:
    /// For a step with these requests.
    std::shared_ptr<const detail::memory_of_step> meet(const std::vector<memory_request>& requests) {
        if (held_) {
            detail::pool_in_ranges again(held_->ranges());
            if (detail::meet_again(requests, again)) return held_;
        }
        return held_ = std::make_shared<detail::memory_of_step>(requests, D::memory());
    }
    /// Captured steps keep their memory, later ones get other memory.
    void let_go() { held_.reset(); }

private:
    std::shared_ptr<const detail::memory_of_step> held_;
};

/// See the top of the file. Result: copyable handles and numbers in memory of D, read before another step of this
/// memory runs.
template <GraphCapture D, class Result>
class captured_graph {
public:
    explicit captured_graph(graph_memory<D>& where) : where_(where) {}

    /// The result of f, called as f() or f(host_callback). f must make the same launches on the same memory at every
    /// call. A step that cannot be captured runs uncaptured.
    template <class F>
    Result operator()(F&& f) {
        if (!recorded() && refusal_.empty() && runs_ == 2) record(f);
        if (recorded()) {
            for (const part& p : parts_) {
                p.launches.launch();
                if (p.then) p.then();
            }
            return *result_;
        }
        if (!refusal_.empty()) return refused(f);
        return ++runs_ == 1 ? call(f, {}) : noted(f);
    }

    /// Why the step could not be captured; empty if it was, or will be.
    const std::string& refusal() const { return refusal_; }
    bool recorded() const { return !parts_.empty(); }
    /// Graphs that one run launches.
    index_t graphs() const {
        return std::ranges::count_if(parts_, [](const part& p) { return !p.launches.empty(); });
    }

private:
    struct part {
        typename D::graph launches;
        host_callback::action then;
    };

    template <class F>
    static Result call(F& f, const host_callback& host) {
        if constexpr (std::invocable<F&, const host_callback&>)
            return f(host);
        else
            return f();
    }

    template <class F>
    Result noted(F&& f) {
        std::vector<memory_request> requests;
        struct noting {
            ~noting() { D::memory().record_to(nullptr); }
        } const until_here;
        D::memory().record_to(&requests);
        const auto call_apart = [&](const host_callback::action& action) {
            D::memory().record_to(nullptr);  // what it takes is not the recorded step's
            action();
            D::memory().record_to(&requests);
        };
        Result r = call(f, {call_apart, false});
        requests_ = std::move(requests);
        return r;
    }

    template <class F>
    void record(F&& f) {
        try {
            memory_ = where_.meet(std::exchange(requests_, {}));
            pool_ = std::make_unique<detail::pool_in_ranges>(memory_->ranges());
            struct redirected {
                memory_pool* before;
                ~redirected() { pool_instead<D> = before; }
            } const tensors_come{std::exchange(pool_instead<D>, pool_.get())};
            std::vector<part> parts;
            typename D::recording record;
            const auto cut_here = [&](host_callback::action action) {
                parts.push_back({record.cut(), std::move(action)});
            };
            result_.emplace(call(f, {cut_here, true}));
            parts.push_back({record.end(), {}});
            parts_ = std::move(parts);
        } catch (const error& e) {
            refusal_ = e.what();
            result_.reset();
        }
    }

    // What f left half done somewhere is in the block until f runs again.
    template <class F>
    Result refused(F&& f) {
        Result r = call(f, {});
        if (pool_ && pool_->total().live == 0) {
            pool_.reset();
            memory_.reset();
            where_.let_go();
        }
        return r;
    }

    graph_memory<D>& where_;
    int runs_ = 0;
    std::vector<memory_request> requests_;  // of the second run
    std::shared_ptr<const detail::memory_of_step> memory_;
    std::unique_ptr<detail::pool_in_ranges> pool_;  // over memory_
    std::optional<Result> result_;                  // in it
    std::vector<part> parts_;                       // nothing, until it is recorded
    std::string refusal_;
};

}  // namespace cairn
