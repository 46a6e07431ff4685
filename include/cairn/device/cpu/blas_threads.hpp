#pragma once
// OpenBLAS over pthreads, Debian's, has threads of its own: it does not know OpenMP's number of them, and they spin for milliseconds
// after a call, on the cores of ours. So its number follows ours before each call; inside a parallel region it is one.

#include <cairn/core/parallel.hpp>

// Another BLAS does not have these.
extern "C" void openblas_set_num_threads(int) __attribute__((weak));
extern "C" int openblas_get_num_threads(void) __attribute__((weak));

namespace cairn {

/// Gives the BLAS as many threads as a kernel has here.
inline void match_blas_threads() {
    const int n = in_parallel() ? 1 : threads();
    if (openblas_set_num_threads && openblas_get_num_threads() != n) openblas_set_num_threads(n);
}

}  // namespace cairn
