#pragma once
// Work that is launched once a step, the same launches on the same memory every time, recorded and then launched as a
// whole: the host's time a launch is most of a step of a small network.
//
//   graph_memory<D> memory;
//   captured_graph<D, Result> step(memory);
//   Result r = step([&] { …launches…; return Result{…}; });     // run, run, recorded and launched, launched, …
//
// A step may call host code among its launches, which a graph cannot hold: the record is cut there, and each time the
// code is called between the launches of the two parts:
//   step([&](const host_callback& host) { …launches…; host([&] { tell_somebody(); }); …launches… });
//
// A recorded step keeps the memory that its tensors had: what is made in between must not lie there. So the second run
// notes what is asked of the pool, and the third one gets a block of exactly the size that the same requests need, and
// deals it out in the same way.

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
///   D::recording r                   until r.end(), or until it goes; who waits for the device meanwhile gets an error
///   r.cut() → graph                  what was launched until now; r goes on with the next graph
///   graph.launch()                   runs it, in the order of what else is launched
template <class D>
concept GraphCapture = Device<D> && std::default_initializable<typename D::recording> &&
    requires(typename D::recording& r, const typename D::graph& g) {
    { r.cut() } -> std::same_as<typename D::graph>;
    { r.end() } -> std::same_as<typename D::graph>;
    { g.empty() } -> std::same_as<bool>;
    g.launch();
};

/// Host code among the launches of a step: called where it stands, at every run. What it launches is made of nothing
/// that the step allocates.
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

/// A pool over memory, or over addresses alone, owned elsewhere. Where its blocks lie does not depend on how
/// much there is.
class pool_in_block final : public memory_pool {
public:
    static constexpr index_t endless = index_t{1} << 44;

    explicit pool_in_block(char* begin, index_t bytes = endless)
        : memory_pool(begin, endless, bytes, "memory of a recorded step", "nothing"), end_(begin + bytes) {}

    /// Bytes from the beginning to the end of what was ever handed out.
    index_t used() const { return touched_end() - begin(); }

private:
    bool commit(char* to) override { return to <= end_; }

    char* end_;
};

/// Bytes of memory in which a pool can meet the same requests.
inline index_t bytes_to_repeat(const std::vector<memory_request>& requests) {
    constexpr std::uintptr_t anywhere = std::uintptr_t{1} << 44;
    pool_in_block addresses(reinterpret_cast<char*>(anywhere));
    std::map<const void*, void*> held;
    for (const memory_request& r : requests) {
        if (r.taken) {
            held[r.block] = addresses.allocate(r.bytes, r.use);
        } else if (const auto block = held.find(r.block); block != held.end()) {
            addresses.release(block->second, r.bytes, r.use);
            held.erase(block);
        }
    }
    return std::max(addresses.used(), memory_pool::alignment);
}

}  // namespace detail

/// Where recorded steps of one stream work. They run one after the other, and what one of them leaves is read before
/// the next: they share a block.
template <Device D>
class graph_memory {
public:
    tensor<std::uint8_t, D> block(index_t bytes) {
        if (block_.size() < bytes) block_ = tensor<std::uint8_t, D>({bytes}, memory_category::activations);
        return block_.share();
    }
    /// Steps that are recorded keep the block, the next ones get another.
    void let_go() { block_.reset(); }

private:
    tensor<std::uint8_t, D> block_;
};

/// See the top of the file. Result: handles and numbers in memory of D that can be copied, and are read before another
/// step of this memory runs.
template <GraphCapture D, class Result>
class captured_graph {
public:
    explicit captured_graph(graph_memory<D>& where) : where_(where) {}

    /// What f returns, called as f() or as f(host_callback); f must launch the same on the same memory at every call.
    /// Where it cannot be recorded it runs as it is.
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

    /// Why it could not be recorded; empty if it was, or will be.
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
        bytes_ = detail::bytes_to_repeat(requests);
        return r;
    }

    template <class F>
    void record(F&& f) {
        try {
            block_ = where_.block(bytes_);
            pool_ = std::make_unique<detail::pool_in_block>(reinterpret_cast<char*>(block_.data()), bytes_);
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
            block_.reset();
            where_.let_go();
        }
        return r;
    }

    graph_memory<D>& where_;
    int runs_ = 0;
    index_t bytes_ = 0;
    tensor<std::uint8_t, D> block_;
    std::unique_ptr<detail::pool_in_block> pool_;  // over block_
    std::optional<Result> result_;                 // in it
    std::vector<part> parts_;                      // nothing, until it is recorded
    std::string refusal_;
};

}  // namespace cairn
