#pragma once
// The part of the CUDA runtime that device/cuda/runtime.hpp and comm/nccl.hpp call, on the host: GPUs of this process
// with memory of their own, streams that run beside the host and beside each other, events. The functions are declared
// by CUDA's own headers, or where there are none by those in stand_ins/; emulated_cuda.cpp defines them.
//   stream   what is put into it runs later, in its order, on a thread of its own; which stream comes next is drawn
//   event    a moment of a stream; a stream or event that was destroyed, or is used on another GPU, is an error
//   memory   of a GPU is a range of addresses that the host can read, too early: it then finds the old content
// Nothing waits for ever: after `patience` seconds a wait of the host fails.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

namespace emulated {

inline constexpr int gpus = 8;
inline constexpr double patience = 60;

/// Guards what streams wait for.
std::mutex& lock();

/// Puts work into a stream. It runs without the lock, on the thread of the streams.
void launch(cudaStream_t stream, std::function<void()> work);

/// Puts into a stream what is done when it says so. It is asked again and again, under the lock, once all before it is
/// done. Call under the lock.
void launch_step(cudaStream_t stream, std::function<bool()> done);

/// Whether all n bytes lie in memory of that GPU.
bool in_memory_of(int gpu, const void* at, std::size_t bytes);

/// Whether what runs on that GPU may read and write all n bytes, in memory of any GPU.
bool may_reach(int gpu, const void* at, std::size_t bytes);

/// The GPU of a stream; -1: there is no such stream.
int gpu_of(cudaStream_t stream);

/// Something that a step waits for may have changed. Call under the lock.
void changed();

/// Below n, drawn from one sequence. Call under the lock.
unsigned drawn(unsigned n);
/// Starts that sequence again.
void seed(unsigned value);

/// What the first piece of work that threw said, and forgets it; empty: none did.
std::string failure();

}  // namespace emulated
