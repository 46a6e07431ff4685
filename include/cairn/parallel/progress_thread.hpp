#pragma once
// A thread that runs jobs in the order of their submission: communication while the caller computes. Collectives on it
// are the usual blocking functions; no algorithm needs to be cut into steps for overlap.

#include <cairn/core/memory.hpp>
#include <cairn/core/parallel.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace cairn {

/// See the top of the file. Jobs run on one kernel thread unless `kernel_threads` says otherwise.
class progress_thread {
public:
    explicit progress_thread(int kernel_threads = 1)
        : thread_(in_pool_of_caller([this, kernel_threads] {
              set_threads(kernel_threads);
              work();
          })) {}

    /// Drops the jobs that have not begun, waits for the running one.
    ~progress_thread() {
        {
            const std::scoped_lock lock(mutex_);
            jobs_.clear();
            stop_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;

    /// A job is dropped after a failure that wait() has not thrown yet: other ranks are still at the failed one.
    void submit(std::function<void()> job) {
        {
            const std::scoped_lock lock(mutex_);
            if (failure_) return;
            jobs_.push_back(std::move(job));
        }
        changed_.notify_all();
    }

    /// Returns when all jobs are done. Rethrows the first failure; the jobs behind it were dropped.
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            const std::function<void()> job = std::move(jobs_.front());
            jobs_.pop_front();
            busy_ = true;
            lock.unlock();
            std::exception_ptr failure;
            try {
                job();
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            busy_ = false;
            if (failure) {
                jobs_.clear();
                failure_ = failure;
            }
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    std::exception_ptr failure_;
    bool busy_ = false, stop_ = false;
    std::thread thread_;  // last: starts when the rest is there
};

}  // namespace cairn
