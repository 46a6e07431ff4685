#pragma once
// Ranks as threads of one process: labs, tests, debuggers and sanitizers.
//   run_ranks(4, [](threads_communicator& c) { … });      c.rank() is 0 … 3
// How messages travel: comm/thread_world.hpp. Each rank has a memory pool of its own, as a process would.
// The first rank that fails ends all: every wait, now or later, throws an error that names it, and run_ranks throws
// what it threw.

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/thread_world.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/parallel.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
class threads_communicator {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            release();
            world_ = std::exchange(other.world_, nullptr);
            transfer_ = std::exchange(other.transfer_, nullptr);
            context_ = other.context_;
            return *this;
        }
        ~request() { release(); }

        void wait() {
            if (!transfer_) return;
            world_->wait(*transfer_);
            transfer_ = nullptr;
        }
        bool test() {
            if (!transfer_) return true;
            if (!world_->test(*transfer_)) return false;
            transfer_ = nullptr;
            return true;
        }

    private:
        friend class threads_communicator;
        request(detail::thread_world* world, int context, std::shared_ptr<detail::transfer> t)
            : world_(world), context_(context), transfer_(std::move(t)) {}
        void release() {
            if (transfer_ && transfer_->now != detail::transfer::done) world_->cancel(context_, transfer_);
            transfer_ = nullptr;
        }

        detail::thread_world* world_ = nullptr;
        int context_ = 0;
        std::shared_ptr<detail::transfer> transfer_;
    };

    threads_communicator(std::shared_ptr<detail::thread_world> world, int rank)
        : world_(std::move(world)), rank_(rank) {
        for (int r = 0; r < world_->size(); ++r) members_.push_back(r);
    }

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(members_.size()); }
    std::string name() const { return "threads"; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        return post(const_cast<std::byte*>(data.data()), data.size(), peer, tag, true);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        return post(room.data(), room.size(), peer, tag, false);
    }

    [[nodiscard]] threads_communicator split(int colour, int key) {
        struct entry {
            int colour, key, rank;
        };
        // Every rank sends its entry to rank 0, which answers with all entries and an unused context.
        const entry mine{colour, key, rank_};
        std::vector<entry> all(static_cast<std::size_t>(size()));
        int context = 0;
        if (rank_ == 0) {
            all[0] = mine;
            for (int r = 1; r < size(); ++r)
                recv(*this, std::span<entry>(&all[static_cast<std::size_t>(r)], 1), r, max_tag);
            context = world_->new_context();
            for (int r = 1; r < size(); ++r) {
                send(*this, std::span<const entry>(all), r, max_tag);
                send(*this, std::span<const int>(&context, 1), r, max_tag);
            }
        } else {
            send(*this, std::span<const entry>(&mine, 1), 0, max_tag);
            recv(*this, std::span<entry>(all), 0, max_tag);
            recv(*this, std::span<int>(&context, 1), 0, max_tag);
        }
        std::erase_if(all, [&](const entry& e) { return colour < 0 ? e.rank != rank_ : e.colour != colour; });
        std::stable_sort(all.begin(), all.end(), [](const entry& a, const entry& b) { return a.key < b.key; });
        threads_communicator part = *this;
        part.context_ = context;
        part.members_.clear();
        for (const entry& e : all) {
            if (e.rank == rank_) part.rank_ = static_cast<int>(part.members_.size());
            part.members_.push_back(members_[static_cast<std::size_t>(e.rank)]);
        }
        return part;
    }

    /// The ranks of one pretended node.
    [[nodiscard]] threads_communicator split_node() {
        const int width = world_->options().ranks_per_node;
        return split(width > 0 ? world_rank() / width : 0, rank_);
    }

    [[nodiscard]] auto enter(const collective_call& call) {
        struct leaving {
            explicit leaving(threads_communicator& c) : world(c.world_), rank(c.world_rank()) {}
            ~leaving() { world->leave(rank); }
            leaving(const leaving&) = delete;
            leaving& operator=(const leaving&) = delete;
            std::shared_ptr<detail::thread_world> world;
            int rank;
        };
        world_->enter(world_rank(), detail::text_of(call));
        return leaving(*this);
    }

private:
    int world_rank() const { return members_[static_cast<std::size_t>(rank_)]; }

    request post(std::byte* data, std::size_t bytes, int peer, int tag, bool sends) {
        detail::require_transfer(rank_, size(), sends, bytes, peer, tag);
        auto t = std::make_shared<detail::transfer>();
        t->data = data;
        t->bytes = bytes;
        t->owner = world_rank();
        t->peer = members_[static_cast<std::size_t>(peer)];
        t->tag = tag;
        t->sends = sends;
        world_->post(context_, t);
        return {world_.get(), context_, std::move(t)};
    }

    std::shared_ptr<detail::thread_world> world_;
    int rank_ = 0;  // in this communicator
    int context_ = 0;
    std::vector<int> members_;  // ranks of the world
};

static_assert(Communicator<threads_communicator>);

/// Runs body(communicator) on `n` threads and returns when all are through. Throws the error of the first rank that
/// failed, with
/// "rank R: " in front.
template <class Body>
void run_ranks(int n, const thread_ranks& options, Body&& body) {
    require(n >= 1, "run_ranks: ", n, " ranks; at least 1 is needed");
    const auto world = std::make_shared<detail::thread_world>(n, options);
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int kernels = options.kernel_threads > 0 ? options.kernel_threads : std::max(1, cores / n);
    std::mutex failures;
    std::exception_ptr first;
    const auto run = [&](int rank) {
        set_threads(kernels);
        const memory_pool::of_rank memory;
        if (options.memory_limit > 0) (*memory).set_own_limit(options.memory_limit);
        const memory_pool::scope here(*memory);
        threads_communicator c(world, rank);
        try {
            body(c);
        } catch (...) {
            const auto [failure, why] = detail::named_failure(rank, std::current_exception());
            {
                const std::scoped_lock lock(failures);
                if (!first) first = failure;
            }
            world->fail_all(rank, why);
        }
    };
    std::vector<std::thread> others;
    for (int rank = 0; rank < n; ++rank) others.emplace_back(run, rank);
    for (std::thread& t : others) t.join();
    if (first) std::rethrow_exception(first);
}

template <class Body>
void run_ranks(int n, Body&& body) {
    run_ranks(n, thread_ranks{}, std::forward<Body>(body));
}

}  // namespace cairn
