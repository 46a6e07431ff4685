#pragma once
// Tasks on a thread beside training (device/deferred_tasks.hpp). At once: large ones one after another, each on all
// threads; the others side by side, each on one thread, which wastes less of it.

#include <cairn/core/memory.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/blas_threads.hpp>
#include <cairn/device/deferred_tasks.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cairn {

template <>
class deferred_tasks<cpu> {
public:
    deferred_tasks() = default;
    ~deferred_tasks() {
        if (running_.valid()) running_.wait();
    }
    deferred_tasks(const deferred_tasks&) = delete;
    deferred_tasks& operator=(const deferred_tasks&) = delete;

    void begin(std::vector<double> costs, std::function<void(index_t)> make) {
        costs_ = std::move(costs);
        make_ = std::move(make);
    }
    void make_now() {
        constexpr double large = 0x1p33;  // the cube of 2048
        std::vector<index_t> small;
        for (index_t i = 0; i < static_cast<index_t>(costs_.size()); ++i) {
            if (cost(i) >= large)
                make_(i);
            else
                small.push_back(i);
        }
        std::ranges::stable_sort(small, std::greater<>{}, [this](index_t i) { return cost(i); });
        for (std::size_t i = 0; i < small.size() && on_phantom_rank(); ++i) make_(small[i]);  // its loops do nothing
        parallel_tasks(static_cast<index_t>(small.size()),
                       [&](index_t i) { make_(small[static_cast<std::size_t>(i)]); });
    }
    void make_later() {
        resume();
        const auto make_all = [this] {
            const threads_for_now one(1);  // of this thread: the others are for training
            for (index_t i = 0; i < static_cast<index_t>(costs_.size()); ++i) make_(i);
        };
        if (on_phantom_rank()) {
            if (!helper_) helper_ = phantom_here->start_queue();
            helper_->submit(make_all);
        } else {
            running_ = std::async(std::launch::async, in_pool_of_caller(make_all));
        }
    }
    void make_share(double) {}
    void finish() {
        if (running_.valid()) running_.get();
        if (helper_) helper_->wait();
    }
    void close() {
        finish();
        blas_.reset();
        costs_.clear();
    }
    void resume() {
        if (!blas_) blas_.emplace();
    }

private:
    double cost(index_t i) const { return costs_[static_cast<std::size_t>(i)]; }

    std::vector<double> costs_;
    std::function<void(index_t)> make_;
    std::optional<single_blas_thread> blas_;  // until close(): a resumed run computes likewise
    std::future<void> running_;
    std::unique_ptr<job_queue> helper_;  // of a phantom rank
};

}  // namespace cairn
