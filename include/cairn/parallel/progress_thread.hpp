#pragma once
// A thread that runs jobs in the order of their submission: communication while the caller computes. Collectives on it
// are the usual blocking functions; no algorithm needs to be cut into steps for overlap. A phantom rank's machine has
// helpers of its own (core/phantom.hpp), which take the thread's place.

#include <cairn/core/memory.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/phantom.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace cairn {

namespace detail {

/// Jobs on a thread.
class thread_queue final : public job_queue {
public:
    explicit thread_queue(int kernel_threads)
        : thread_(in_pool_of_caller([this, kernel_threads] {
              set_threads(kernel_threads);
              work();
          })) {}

    ~thread_queue() override {
        {
            const std::scoped_lock lock(mutex_);
            jobs_.clear();
            stop_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    void submit(std::function<void()> job) override {
        {
            const std::scoped_lock lock(mutex_);
            if (failure_) return;
            jobs_.push_back(std::move(job));
        }
        changed_.notify_all();
    }

    void wait() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    void wait_for_first(std::size_t jobs) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_ >= jobs || (jobs_.empty() && !busy_); });
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
            ++done_;
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
    std::size_t done_ = 0;  // jobs
    bool busy_ = false, stop_ = false;
    std::thread thread_;  // last: starts when the rest is there
};

}  // namespace detail

/// Runs jobs beside the calling rank, on `kernel_threads`.
inline std::unique_ptr<job_queue> start_helper(int kernel_threads = 1) {
    if (on_phantom_rank()) return phantom_here->start_queue();
    return std::make_unique<detail::thread_queue>(kernel_threads);
}

/// See the top of the file. Jobs run on one kernel thread unless `kernel_threads` says otherwise. Its end drops the
/// jobs that have not begun, and waits for the running one.
class progress_thread {
public:
    explicit progress_thread(int kernel_threads = 1) : jobs_(start_helper(kernel_threads)) {}

    /// A job is dropped after a failure that wait() has not thrown yet: other ranks are still at the failed one.
    void submit(std::function<void()> job) { jobs_->submit(std::move(job)); }

    /// Returns when all jobs are done. Rethrows the first failure; the jobs behind it were dropped.
    void wait() { jobs_->wait(); }

private:
    std::unique_ptr<job_queue> jobs_;
};

}  // namespace cairn
