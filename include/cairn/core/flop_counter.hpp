#pragma once
// Counts the work of kernels: floating-point operations of the plain algorithm, and bytes that the design moves to and
// from memory. A layer's cost() is tested against these counters. Off by default: a kernel then pays one relaxed load.
//
// Conventions: a multiply-add is two operations. A convolution counts the operations of the direct algorithm in every
// phase, also where another algorithm runs (Winograd's rate is an effective one). Bytes: each operand read once, each
// result written once.

#include <atomic>
#include <cstdint>

namespace cairn::flop_counter {

/// Operations and bytes since the last reset.
struct totals {
    std::uint64_t flops = 0;
    std::uint64_t bytes = 0;
};

namespace detail {
inline std::atomic<bool> counting{false};
inline std::atomic<std::uint64_t> flops{0};
inline std::atomic<std::uint64_t> bytes{0};
}  // namespace detail

/// Whether count() adds anything.
inline bool enabled() { return detail::counting.load(std::memory_order_relaxed); }

/// Turns counting on or off for the whole process.
inline void enable(bool on) { detail::counting.store(on, std::memory_order_relaxed); }

/// Adds the work of one kernel call. Called by the outermost kernel only: a convolution that calls GEMM counts itself
/// alone.
inline void count(double flops, double bytes) {
    if (!enabled()) [[likely]]
        return;
    detail::flops.fetch_add(static_cast<std::uint64_t>(flops), std::memory_order_relaxed);
    detail::bytes.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
}

inline totals total() { return {detail::flops.load(), detail::bytes.load()}; }

inline void reset() {
    detail::flops = 0;
    detail::bytes = 0;
}

/// Counts from its construction to its destruction; read total() in between. Counters start at zero.
class scope {
public:
    scope() : before_(enabled()) {
        reset();
        enable(true);
    }
    ~scope() { enable(before_); }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

private:
    bool before_;
};

}  // namespace cairn::flop_counter
