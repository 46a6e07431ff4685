#pragma once
// One call of a kernel, for whoever wants to know: the counter of work (core/flop_counter.hpp), a phantom rank's
// machine (core/phantom.hpp), a measurement of all kernels. With nobody there it costs two loads.
//   const kernel_call call("gemm", format_name<T>, flops, bytes, {m, n, k});
// A kernel that calls others is counted alone: the outermost call of a thread stands for all inside.

#include <cairn/core/clock.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/core/phantom.hpp>

#include <algorithm>
#include <initializer_list>

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
        watched_ = true;
        if (inside_++) return;
        work_ = {kind, format, flops, bytes, {}, static_cast<int>(shape.size())};
        std::copy(shape.begin(), shape.end(), work_.shape.begin());
        flop_counter::count(flops, bytes);
        if (on_phantom_rank())
            phantom_here->charge(work_);
        else if (measured())
            begin_ = now();
    }
    ~kernel_call() {
        if (!watched_) return;
        if (--inside_ == 0 && begin_ >= 0) on_measured_kernel(work_, now() - begin_);
    }
    kernel_call(const kernel_call&) = delete;
    kernel_call& operator=(const kernel_call&) = delete;

private:
    static bool measured() { return static_cast<bool>(on_measured_kernel); }
    static inline constinit thread_local int inside_ = 0;  // calls that have not ended

    kernel_work work_;
    double begin_ = -1;
    bool watched_ = false;
};

}  // namespace cairn
