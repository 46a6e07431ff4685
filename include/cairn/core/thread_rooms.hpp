#pragma once
// Workspace of a parallel loop: a room for each of its threads, taken before the loop begins, so that the peak of
// memory does not depend on which threads happen to run at the same time.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

namespace cairn {

/// Rooms of `elements` uninitialised T. One room where the loop runs on one thread: inside another parallel region, or
/// not `threaded`.
template <class T>
class thread_rooms {
public:
    explicit thread_rooms(index_t elements, bool threaded = true)
        : stride_((elements + apart - 1) / apart * apart),
          rooms_(threaded && !in_parallel() ? threads() : 1),
          all_({stride_ * rooms_}, memory_category::workspace) {}

    /// Of the calling thread.
    T* here() { return all_.data() + (rooms_ == 1 ? 0 : thread_number()) * stride_; }

private:
    static constexpr index_t apart = 64 / static_cast<index_t>(sizeof(T));  // a cache line
    index_t stride_;
    int rooms_;
    tensor<T> all_;
};

}  // namespace cairn
