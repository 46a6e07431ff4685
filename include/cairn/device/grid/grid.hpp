#pragma once
// The seam between the text of a kernel and the device that runs it. A kernel is a function object
//
//   struct scale_rows {
//       const float* v; float* a; index_t columns;
//       template <class Block> CAIRN_HD void operator()(Block& b) const {
//           for (index_t c = b.thread(); c < columns; c += b.threads()) a[b.block() * columns + c] *= v[c];
//       }
//   };
//   D::launch({.blocks = rows, .threads = 256}, scale_rows{v, a, columns});
//
// which every thread of every block calls. A block gives
//   thread() threads() block() blocks()      where this thread is
//   sync()                                   waits for all threads of the block; all of them call it alike
//   shuffle_xor(v, mask)                     v of thread() ^ mask within its 32 neighbours; all threads of the block
//                                            call it alike
//   add(to, n)                               *to += n, of whole numbers; whatever others add at the same time
//   shared<T>()                              the memory of this block, grid_size::shared bytes
// A kernel whose blocks may have more than 256 threads says so: static constexpr int most_threads = 512. GPUs compile
// it for so many, whose registers it shares.
// A device that launches such kernels is a GridDevice. cuda (runtime.hpp) is one; tests run the same ones, thread by
// thread, on an emulated one, whose memory the host cannot touch outside of launches and copies
// (tests/device/cuda/emulated_gpu.hpp).

#include <cairn/core/host_device.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cairn {

struct grid_size {
    static constexpr index_t most_shared = 99 << 10;  // what a block can have on every GPU since 8.0

    index_t blocks = 1;
    int threads = 256;   // a block, a multiple of 32, at most the kernel's most_threads
    index_t shared = 0;  // bytes of memory that the threads of a block share
};

/// Of the memory that NVIDIA's libraries are given: cudaMalloc's, where the pools give memory_pool::alignment.
inline constexpr index_t library_alignment = 256;

/// The first address from `at` on that is a multiple of it.
template <class T>
T* library_aligned(T* at) {
    constexpr auto n = static_cast<std::uintptr_t>(library_alignment);
    return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(at) + n - 1) / n * n);
}

/// A device that runs kernels on a grid. launch() may return before the kernel has run; copies and later launches see
/// its results.
template <class D>
concept GridDevice = Device<D> && requires(void* at, index_t bytes) {
    D::copy_within(at, at, bytes);
    D::set_bytes(at, 0, bytes);
    { D::multiprocessors() } -> std::convertible_to<int>;
};

inline constexpr int warp_threads = 32;

/// The most threads that a block of this kernel may have.
template <class Body>
inline constexpr int most_threads = 256;
template <class Body>
    requires requires { Body::most_threads; }
inline constexpr int most_threads<Body> = Body::most_threads;

namespace grid {

/// Blocks that keep every multiprocessor busy with `items`, each thread taking `per_thread` of them at least; the
/// kernel strides over the rest.
template <GridDevice D>
index_t blocks_for(index_t items, int threads, index_t per_thread = 1) {
    const index_t wanted = (items + threads * per_thread - 1) / (threads * per_thread);
    return std::clamp<index_t>(wanted, 1, index_t{D::multiprocessors()} * 32);
}

/// a / b and a mod b of numbers that are not negative: in 32 bits where they fit, which a GPU does several times as
/// fast.
CAIRN_HD inline index_t quotient(index_t a, index_t b) {
    if (((a | b) >> 32) == 0)
        return static_cast<index_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b));
    return a / b;
}
CAIRN_HD inline index_t remainder(index_t a, index_t b) { return a - quotient(a, b) * b; }

/// Divides by a number below 2³¹ that is known before the launch: what is below 2³¹ by a product and a shift (Granlund
/// and Montgomery 1994), for a GPU divides in some twenty instructions.
class fixed_divisor {
public:
    explicit fixed_divisor(index_t by) : by_(static_cast<std::uint32_t>(std::max<index_t>(by, 1))) {
        while (std::uint64_t{1} << shift_ < by_) ++shift_;
        factor_ = static_cast<std::uint32_t>((((std::uint64_t{1} << shift_) - by_) << 32) / by_ + 1);
    }
    CAIRN_HD index_t operator()(index_t n) const {
        if (n >> 31 != 0) return n / by_;
        const auto low = static_cast<std::uint32_t>(n);
        return (static_cast<std::uint32_t>(std::uint64_t{low} * factor_ >> 32) + low) >> shift_;
    }
    /// n becomes the quotient; returns the remainder.
    CAIRN_HD int take(index_t& n) const {
        const index_t above = (*this)(n), rest = n - above * by_;
        n = above;
        return static_cast<int>(rest);
    }

private:
    std::uint32_t by_, factor_, shift_ = 0;
};

/// The type that sums of T run in: float for what float holds exactly enough of, else double.
template <class T>
using sum_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Σ of v over the threads of a warp, for all of them.
template <class Block, class T>
CAIRN_HD T warp_sum(Block& b, T v) {
    for (int mask = warp_threads / 2; mask > 0; mask /= 2) v += b.shuffle_xor(v, mask);
    return v;
}

/// Σ of v over the threads of a block, for all of them. `scratch`: one T a warp. The order of the sum does not depend
/// on timing.
template <class Block, class T>
CAIRN_HD T block_sum(Block& b, T v, T* scratch) {
    v = warp_sum(b, v);
    const int warps = static_cast<int>(b.threads()) / warp_threads;
    if (warps == 1) return v;
    if (b.thread() % warp_threads == 0) scratch[b.thread() / warp_threads] = v;
    b.sync();
    T all = scratch[0];
    for (int w = 1; w < warps; ++w) all += scratch[w];
    b.sync();  // scratch may be used again
    return all;
}

/// Σ of v over the threads before this one; `all`: over all of them. `scratch`: one T a warp.
template <class Block, class T>
CAIRN_HD T sum_before(Block& b, T v, T* scratch, T& all) {
    T before{};
    for (int mask = 1; mask < warp_threads; mask *= 2) {  // of the threads of a warp that share the bits above
        const T other = b.shuffle_xor(v, mask);
        if (b.thread() & mask) before += other;
        v += other;
    }
    const int warps = static_cast<int>(b.threads()) / warp_threads, mine = static_cast<int>(b.thread()) / warp_threads;
    if (b.thread() % warp_threads == 0) scratch[mine] = v;
    b.sync();
    all = T{};
    for (int w = 0; w < warps; ++w) {
        if (w < mine) before += scratch[w];
        all += scratch[w];
    }
    b.sync();  // scratch may be used again
    return before;
}

/// Largest v of the threads of a block, for all of them. A NaN loses: check for it separately.
template <class Block, class T>
CAIRN_HD T block_max(Block& b, T v, T* scratch) {
    for (int mask = warp_threads / 2; mask > 0; mask /= 2) {
        const T other = b.shuffle_xor(v, mask);
        v = v > other ? v : other;
    }
    const int warps = static_cast<int>(b.threads()) / warp_threads;
    if (warps == 1) return v;
    if (b.thread() % warp_threads == 0) scratch[b.thread() / warp_threads] = v;
    b.sync();
    T all = scratch[0];
    for (int w = 1; w < warps; ++w) all = scratch[w] > all ? scratch[w] : all;
    b.sync();
    return all;
}

}  // namespace grid

}  // namespace cairn
