#pragma once
// Makes the calling thread a phantom rank (core/phantom.hpp).
//   counted_machine machine;
//   const phantom_rank here(machine);            // its pool, its clock
//   …build and train as ever…
//   machine.total();  here.memory().total().peak;

#include <cairn/core/error.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <sys/mman.h>

namespace cairn {

inline void phantom_range::reserve(bool rights) {
    static std::mutex one_at_a_time;  // ranks that are threads of one process begin together
    const std::scoped_lock lock(one_at_a_time);
    if (begin_) return;
    for (std::size_t bytes = std::size_t{1} << 44; bytes >= std::size_t{1} << 36; bytes /= 2) {
        void* const range = mmap(nullptr, bytes, rights ? PROT_READ | PROT_WRITE : PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) continue;
        begin_ = static_cast<char*>(range);
        bytes_ = bytes;
        return;
    }
    fail("phantom ranks need 64 GiB of addresses at least, none of them backed; the system gave none (ulimit -v?)");
}

/// Memory of one phantom rank: counted like any other, and not there.
class phantom_pool final : public memory_pool {
public:
    /// `limit`: bytes that the rank may hold.
    explicit phantom_pool(index_t limit = no_limit)
        : memory_pool(phantom_range::begin(), phantom_range::bytes(), limit, "memory of a phantom rank",
                      "the memory of its machine") {
        use_system(phantom_range::least_block);
    }

private:
    void* allocate_alone(index_t bytes) noexcept override {
        void* const block = memory_pool::allocate_alone(bytes);
        if (block) std::memset(block, 0, static_cast<std::size_t>(bytes));
        return block;
    }
};

/// While it lives, the calling thread is a phantom rank of `machine`.
class phantom_rank {
public:
    explicit phantom_rank(phantom_machine& machine, index_t memory_limit = memory_pool::no_limit)
        : pool_(memory_limit), scope_(pool_), before_(std::exchange(phantom_here, &machine)) {}
    ~phantom_rank() { phantom_here = before_; }
    phantom_rank(const phantom_rank&) = delete;
    phantom_rank& operator=(const phantom_rank&) = delete;

    phantom_pool& memory() { return pool_; }

private:
    struct reserved {
        reserved() { phantom_range::reserve(); }
    } range_;  // before the pool over it
    phantom_pool pool_;
    memory_pool::scope scope_;
    phantom_machine* before_;
};

/// A machine that only adds up: no time passes but what the caller sets, helpers run their jobs at once.
class counted_machine : public phantom_machine {
public:
    struct sum {
        double calls = 0, flops = 0, bytes = 0;
        sum& operator+=(const sum& other) {
            calls += other.calls, flops += other.flops, bytes += other.bytes;
            return *this;
        }
        sum& operator-=(const sum& other) {
            calls -= other.calls, flops -= other.flops, bytes -= other.bytes;
            return *this;
        }
    };

    double now() override { return seconds_; }
    void charge(const kernel_work& work) override { kinds_[work.kind] += {1, work.flops, work.bytes}; }
    void pass(double seconds) override { seconds_ += seconds; }
    std::unique_ptr<job_queue> start_queue() override { return std::make_unique<at_once>(); }

    sum total() const {
        sum all;
        for (const auto& [kind, of_kind] : kinds_) all += of_kind;
        return all;
    }
    const std::map<std::string, sum>& kinds() const { return kinds_; }

private:
    class at_once final : public job_queue {
        void submit(std::function<void()> job) override {
            if (failure_) return;
            try {
                job();
            } catch (...) {
                failure_ = std::current_exception();
            }
        }
        void wait() override {
            if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        }
        void wait_for_first(std::size_t) override { wait(); }
        std::exception_ptr failure_;
    };

    double seconds_ = 0;
    std::map<std::string, sum> kinds_;
};

}  // namespace cairn
