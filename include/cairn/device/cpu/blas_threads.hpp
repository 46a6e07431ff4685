#pragma once
// OpenBLAS over pthreads, Debian's, has threads of its own: it does not know OpenMP's number of them, and they spin for
// milliseconds after a call, on the cores of ours. So its number follows ours before each call; inside a parallel
// region it is one.
// The number is one of the whole process, and results depend on it in the last bit: where a thread of its own computes
// with BLAS at the same time as others, each caller has one thread of it: else the bits depended on the order of calls.

#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/openblas_core.hpp>

#include <atomic>

// Another BLAS does not have these.
extern "C" void openblas_set_num_threads(int) __attribute__((weak));
extern "C" int openblas_get_num_threads(void) __attribute__((weak));

namespace cairn {

/// BLAS has one thread as long as one of these lives: made before another thread computes with BLAS, gone when that is
/// done.
class single_blas_thread {
public:
    single_blas_thread() { ++living_; }
    ~single_blas_thread() { --living_; }
    single_blas_thread(const single_blas_thread&) = delete;
    single_blas_thread& operator=(const single_blas_thread&) = delete;

    static bool demanded() { return living_ > 0; }

private:
    static inline std::atomic<int> living_{0};
};

/// Gives the BLAS as many threads as a kernel has here.
inline void match_blas_threads() {
    const int n = in_parallel() || single_blas_thread::demanded() ? 1 : threads();
    if (openblas_set_num_threads && openblas_get_num_threads() != n) openblas_set_num_threads(n);
}

}  // namespace cairn
