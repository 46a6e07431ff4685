#pragma once
// Shared state of ranks that are threads (comm/threads.hpp): mailboxes, waiting ranks, and the first failure.
// A send looks for a receive that waits already and copies straight into its buffer. Otherwise a small message is
// copied into the mailbox while that has room, and is complete; a larger one waits for its receiver (rendezvous), and
// isend returns at once all the same. Matching happens under one lock, copying outside of it.

#include <cairn/comm/rank_state.hpp>
#include <cairn/core/tensor.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace cairn {

/// How ranks that are threads run.
struct thread_ranks {
    int kernel_threads = 0;                    // of each rank; 0: cores / ranks, at least 1
    int ranks_per_node = 0;                    // what split_node() pretends; 0: all on one
    index_t mailbox_bytes = index_t{1} << 20;  // of messages not yet received, per receiving rank
    index_t memory_limit = 0;                  // bytes that each rank may hold; 0: only all together have a limit
    double time_limit = -1;  // seconds that a rank may wait; 0: for ever; -1: CAIRN_COMM_TIMEOUT, else 60
};

namespace detail {

/// One side of one message.
struct transfer {
    enum state : int { pending, copying, done };

    std::byte* data = nullptr;  // the buffer of a receive; of a send, only read
    std::size_t bytes = 0;
    int owner = 0, peer = 0, tag = 0;  // ranks of the whole world
    bool sends = false;
    std::atomic<int> now{pending};
    std::string failure;            // set before `done`
    bool left = false;              // of a send that is complete already …
    std::vector<std::byte> copied;  // … its data

    std::string text() const { return text_of_transfer(sends, bytes, peer, tag); }
};

/// State shared by all ranks.
class thread_world {
public:
    using pointer = std::shared_ptr<transfer>;

    thread_world(int ranks, const thread_ranks& options) : options_(options), ranks_(static_cast<std::size_t>(ranks)) {
        if (options_.time_limit < 0) options_.time_limit = default_time_limit();
    }

    int size() const { return static_cast<int>(ranks_.size()); }
    const thread_ranks& options() const { return options_; }

    /// Matches t with what waits on the other side, or leaves it there. `context` tells communicators apart.
    void post(int context, const pointer& t) {
        std::unique_lock lock(mutex_);
        throw_if_failed(*t);
        const int from = t->sends ? t->owner : t->peer, to = t->sends ? t->peer : t->owner;
        channel& c = channels_[{context, from, to, t->tag}];
        std::list<pointer>& others = t->sends ? c.receives : c.sends;
        if (!others.empty()) {
            const pointer other = others.front();
            others.pop_front();
            t->now = other->now = transfer::copying;
            if (other->left) ranks_[static_cast<std::size_t>(to)].held -= other->bytes;
            lock.unlock();
            deliver(t->sends ? *t : *other, t->sends ? *other : *t);
            lock.lock();
            t->now = other->now = transfer::done;
            ranks_[static_cast<std::size_t>(other->owner)].changed.notify_all();
            return;
        }
        std::size_t& held = ranks_[static_cast<std::size_t>(to)].held;
        if (t->sends && t->bytes > 0 && held + t->bytes <= static_cast<std::size_t>(options_.mailbox_bytes)) {
            held += t->bytes;
            const auto left = std::make_shared<transfer>();
            left->left = true;
            left->owner = t->owner, left->peer = t->peer, left->tag = t->tag, left->sends = true;
            left->data = t->data;
            if (!phantom_range::holds(t->data)) {
                left->copied.assign(t->data, t->data + t->bytes);
                left->data = left->copied.data();
            }
            left->bytes = t->bytes;
            c.sends.push_back(left);
            t->now = transfer::done;
            return;
        }
        (t->sends ? c.sends : c.receives).push_back(t);
    }

    void wait(const transfer& t) {
        // No yielding: on busy cores it costs a whole time slice; a sleeping thread runs first when woken up.
        for (int i = 0; i < spins; ++i)
            if (t.now == transfer::done) return check(t);
        std::unique_lock lock(mutex_);
        rank_state& me = ranks_[static_cast<std::size_t>(t.owner)];
        me.waits_for = &t;
        const auto ready = [&] { return t.now == transfer::done || (failed_rank_ >= 0 && t.now == transfer::pending); };
        bool in_time = true;
        if (options_.time_limit > 0)
            in_time = me.changed.wait_for(lock, std::chrono::duration<double>(options_.time_limit), ready);
        else
            me.changed.wait(lock, ready);
        if (!in_time) {  // the first to give up says so before it lets go: the others still wait, and are named
            const std::string why = concat("rank ", t.owner, " of ", size(), " waited ", options_.time_limit, " s in ",
                                           place(t.owner), " for its ", t.text(), "; ", who_waits());
            me.waits_for = nullptr;
            note_failure(t.owner, why);
            fail(why);
        }
        me.waits_for = nullptr;
        if (t.now == transfer::done) return check(t);
        throw_if_failed(t);
    }

    bool test(const transfer& t) {
        if (t.now != transfer::done) {
            std::this_thread::yield();
            const std::scoped_lock lock(mutex_);
            if (t.now == transfer::pending) throw_if_failed(t);
            return false;
        }
        check(t);
        return true;
    }

    /// Takes an unfinished transfer back.
    void cancel(int context, const pointer& t) {
        std::unique_lock lock(mutex_);
        const int from = t->sends ? t->owner : t->peer, to = t->sends ? t->peer : t->owner;
        channel& c = channels_[{context, from, to, t->tag}];
        (t->sends ? c.sends : c.receives).remove(t);
        ranks_[static_cast<std::size_t>(t->owner)].changed.wait(lock, [&] { return t->now != transfer::copying; });
    }

    void fail_all(int rank, const std::string& why) {
        const std::scoped_lock lock(mutex_);
        note_failure(rank, why);
        for (rank_state& r : ranks_) r.changed.notify_all();
    }

    int new_context() { return next_context_++; }
    void enter(int rank, std::string what) {
        const std::scoped_lock lock(mutex_);
        ranks_[static_cast<std::size_t>(rank)].calls.push_back(std::move(what));
    }
    void leave(int rank) {
        const std::scoped_lock lock(mutex_);
        ranks_[static_cast<std::size_t>(rank)].calls.pop_back();
    }

private:
    static constexpr int spins = 200;

    struct channel {
        std::list<pointer> sends, receives;
    };
    struct rank_state {
        std::condition_variable changed;
        std::size_t held = 0;  // bytes in its mailbox
        const transfer* waits_for = nullptr;
        std::vector<std::string> calls;
    };

    static void deliver(transfer& from, transfer& to) {
        if (from.bytes != to.bytes) {
            from.failure = to.failure = concat("rank ", from.owner, " sends ", from.bytes, " bytes to rank ", to.owner,
                                               " with tag ", from.tag, ", which expects ", to.bytes);
            return;
        }
        cpu::copy_within(to.data, from.data, static_cast<index_t>(from.bytes));
    }

    /// The first failure is the one that counts.
    void note_failure(int rank, const std::string& why) {
        if (failed_rank_ >= 0) return;
        failed_rank_ = rank;
        failure_ = why;
    }
    void check(const transfer& t) const {
        if (!t.failure.empty()) fail(t.failure);
    }
    void throw_if_failed(const transfer& t) const {
        if (failed_rank_ >= 0)
            fail("rank ", t.owner, " of ", size(), " cannot finish its ", t.text(), ": rank ", failed_rank_,
                 " failed: ", failure_);
    }
    std::string place(int rank) const {
        const auto& calls = ranks_[static_cast<std::size_t>(rank)].calls;
        return calls.empty() ? "no collective" : calls.back();
    }
    std::string who_waits() const {
        std::string all;
        for (int r = 0; r < size(); ++r) {
            const transfer* t = ranks_[static_cast<std::size_t>(r)].waits_for;
            all += concat(r ? ", " : "", "rank ", r,
                          t ? concat(" waits in ", place(r), " for its ", t->text()) : " does not wait");
        }
        return all;
    }

    thread_ranks options_;
    std::mutex mutex_;
    std::vector<rank_state> ranks_;
    std::map<std::tuple<int, int, int, int>, channel> channels_;  // by context, sender, receiver, tag
    std::atomic<int> next_context_{1};
    int failed_rank_ = -1;
    std::string failure_;
};

}  // namespace detail

}  // namespace cairn
