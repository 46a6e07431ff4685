#pragma once
// Threads: OpenMP where the compiler has it, one thread otherwise. Two rules keep results the same on any thread count:
// work is cut by the size of the data, never by the number of threads, and partial results are added in chunk order.

#include <cairn/core/error.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace cairn {

/// Threads that kernels use. Defaults to OMP_NUM_THREADS or the number of cores.
inline int threads() {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/// Sets the number of threads that kernels use. Throws on n < 1.
inline void set_threads(int n) {
    constexpr int most = 4096;  // the runtime keeps something on the stack for each
    require(n >= 1 && n <= most, "threads: ", n, " asked for; 1 to ", most, " are possible, and this machine has ",
            std::thread::hardware_concurrency(), " cores");
#ifdef _OPENMP
    omp_set_num_threads(n);
#endif
}

/// Sets the number of threads for as long as it lives.
class threads_for_now {
public:
    explicit threads_for_now(int n) : before_(threads()) { set_threads(n); }
    ~threads_for_now() { set_threads(before_); }
    threads_for_now(const threads_for_now&) = delete;
    threads_for_now& operator=(const threads_for_now&) = delete;

private:
    int before_;
};

/// Number of this thread in a parallel region, 0 … threads()-1.
inline int thread_number() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/// Whether the caller is one of several threads of a parallel region.
inline bool in_parallel() {
#ifdef _OPENMP
    return omp_in_parallel() != 0;
#else
    return false;
#endif
}

/// Calls body(chunk, begin, end) for consecutive pieces of [0, n) of `grain` items, spread over the threads in order.
/// An exception in a body is carried to the caller (the first one wins). On a phantom rank no body is called.
template <class Body>
void parallel_chunks(index_t n, index_t grain, Body&& body) {
    if (n <= 0 || on_phantom_rank()) return;
    grain = std::max<index_t>(grain, 1);
    const index_t chunks = (n + grain - 1) / grain;
    if (chunks == 1 || threads() == 1) {
        for (index_t chunk = 0; chunk < chunks; ++chunk) body(chunk, chunk * grain, std::min(n, (chunk + 1) * grain));
        return;
    }
    std::exception_ptr failure;
    std::atomic<bool> failed{false};
    memory_pool& pool = memory_pool::host();  // of the rank for which the threads work
#pragma omp parallel for schedule(static)
    for (index_t chunk = 0; chunk < chunks; ++chunk) {
        if (failed.load(std::memory_order_relaxed)) continue;
        const memory_pool::scope here(pool);
        try {
            body(chunk, chunk * grain, std::min(n, (chunk + 1) * grain));
        } catch (...) {
            if (!failed.exchange(true)) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

/// Calls body(begin, end) for consecutive pieces of [0, n), see parallel_chunks.
template <class Body>
void parallel_for(index_t n, index_t grain, Body&& body) {
    parallel_chunks(n, grain, [&](index_t, index_t begin, index_t end) { body(begin, end); });
}

/// Calls body(i) for i in [0, n), each by the thread that is free next: for tasks of very different length, the longest
/// first.
template <class Body>
void parallel_tasks(index_t n, Body&& body) {
    std::atomic<index_t> next{0};
    parallel_chunks(std::min<index_t>(n, threads()), 1, [&](index_t, index_t, index_t) {
        for (index_t i = next++; i < n; i = next++) body(i);
    });
}

/// add(total, part) of each part = partial(begin, end) of [0, n), in order: the same bits on any thread count. On a
/// phantom rank there are no parts.
template <class Total, class Partial, class Add>
Total parallel_fold(index_t n, index_t grain, Total total, Partial&& partial, Add&& add) {
    if (on_phantom_rank()) return total;
    grain = std::max<index_t>(grain, 1);
    std::vector<Total> parts(static_cast<std::size_t>(n > 0 ? (n + grain - 1) / grain : 0));
    parallel_chunks(n, grain, [&](index_t chunk, index_t begin, index_t end) {
        parts[static_cast<std::size_t>(chunk)] = partial(begin, end);
    });
    for (const Total& part : parts) add(total, part);
    return total;
}

/// Sum over [0, n) of partial(begin, end).
template <class Sum, class Partial>
Sum parallel_sum(index_t n, index_t grain, Partial&& partial) {
    return parallel_fold(n, grain, Sum{}, partial, [](Sum& total, const Sum& part) { total += part; });
}

}  // namespace cairn
