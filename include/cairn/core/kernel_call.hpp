#pragma once
// One call of a kernel, for whoever wants to know: the counter of work (core/flop_counter.hpp), a phantom rank's
// machine (core/phantom.hpp), a measurement of all kernels. With nobody there it costs two loads.
//   const kernel_call call("gemm", format_name<T>, flops, bytes, {m, n, k});
// A kernel that calls others is counted alone: the outermost call of a thread stands for all inside.

#include <cairn/core/clock.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/core/phantom.hpp>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>

namespace cairn {

/// Called with the work and the seconds of each outermost kernel of this process; null: nobody measures. Set and
/// reset while no kernel runs.
inline std::function<void(const kernel_work&, double)> on_measured_kernel;

/// See the top of the file.
class kernel_call {
public:
    kernel_call(const char* kind, const char* format, double flops, double bytes,
                std::initializer_list<index_t> shape = {}) {
        if (!flop_counter::enabled() && !on_phantom_rank() && !measured()) [[likely]]
            return;
        if (inside_ == 0) announce({kind, format, flops, bytes, {}, static_cast<int>(shape.size())}, shape);
        watched_ = true;
        ++inside_;
    }
    ~kernel_call() {
        if (!watched_) return;
        --inside_;
        if (timed_) on_measured_kernel(timed_->first, now() - timed_->second);
    }
    kernel_call(const kernel_call&) = delete;
    kernel_call& operator=(const kernel_call&) = delete;

private:
    void announce(kernel_work work, std::initializer_list<index_t> shape) {
        std::copy(shape.begin(), shape.end(), work.shape.begin());
        flop_counter::count(work.flops, work.bytes);
        if (on_phantom_rank())
            phantom_here->charge(work);
        else if (measured())
            timed_.emplace(std::move(work), now());
    }
    static bool measured() { return static_cast<bool>(on_measured_kernel); }
    static inline constinit thread_local int inside_ = 0;  // calls that have not ended

    std::optional<std::pair<kernel_work, double>> timed_;  // and when it began
    bool watched_ = false;
};

}  // namespace cairn
