#pragma once
// nvJPEG as device/cuda/nvjpeg.hpp calls it, over libjpeg, in the streams of the emulated CUDA. Files are read as late
// as nvJPEG may read them: when the stream comes to their work. Memory is that of the caller's allocators, and grows as
// the library's does. Refused, as by nvJPEG: progressive files in a batch, four channels, a batch of another size than
// was prepared, a state that is used while its last file is on its way, memory at addresses that are no multiples of
// 256. Engines write at once, as real ones do, whatever the stream still holds.

#include <nvjpeg.h>

#include <atomic>

namespace emulated {

/// Whether this GPU has engines for JPEG: else NVJPEG_BACKEND_HARDWARE does not start.
inline std::atomic<bool> nvjpeg_engines = false;
/// The next batches, questions whether a file is supported, and files decoded alone that end in an error.
inline std::atomic<int> nvjpeg_bad_batches = 0;
inline std::atomic<int> nvjpeg_bad_questions = 0;
inline std::atomic<int> nvjpeg_bad_files = 0;
/// Whether headers are read as of another width than they have.
inline std::atomic<bool> nvjpeg_reads_other_sizes = false;
/// Files decoded in batches, and alone.
inline std::atomic<int> nvjpeg_together = 0;
inline std::atomic<int> nvjpeg_alone = 0;
/// Handles, states, buffers and others that were made and not yet destroyed.
inline std::atomic<int> nvjpeg_objects = 0;

}  // namespace emulated
