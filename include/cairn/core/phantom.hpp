#pragma once
// Phantom ranks run the host's own text on memory that is never touched, so that memory, time and messages of a
// program are known without its arithmetic: for plans (train --plan) and for simulations of thousands of ranks in one
// process (comm/simgrid.hpp). On a phantom rank
//   blocks from 4 KiB are addresses in one reserved range that all ranks share; shorter ones are real, and zero;
//   loops over elements do not run: a few doors ask on_phantom_rank() (core/parallel.hpp, products, LAPACK, oneDNN);
//   copies and messages inside the range move nothing, all others move as ever: what the host decides by stays right;
//   a kernel charges its work to the rank's machine (core/kernel_call.hpp), which is the clock, too.
// How a thread becomes one: core/phantom_rank.hpp. Why not a third device: course/decisions.

#include <cairn/core/shape.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace cairn {

/// What one kernel does. Where a machine has measured this kind, format and shape, its time is known.
struct kernel_work {
    const char* kind = "";    // "gemm", "convolution forward", …
    const char* format = "";  // of its elements: "float", "bf16", …
    double flops = 0;         // of the plain algorithm; a multiply-add is two
    double bytes = 0;         // each operand read once, each result written once
    std::array<index_t, 16> shape{};
    int extents = 0;  // used of shape
};

/// Runs jobs in the order of their submission, beside its owner.
class job_queue {
public:
    virtual ~job_queue() = default;
    /// A job is dropped after a failure that wait() has not thrown yet: other ranks are still at the failed one.
    virtual void submit(std::function<void()> job) = 0;
    /// Returns when all jobs are done. Rethrows the first failure; the jobs behind it were dropped.
    virtual void wait() = 0;
    /// Returns when the first so many of all jobs ever submitted are done. Throws as wait().
    virtual void wait_for_first(std::size_t jobs) = 0;
};

/// Where bytes lie: in the file system that all hosts share, or on the disk of the rank's own host.
enum class storage { shared, local };

/// Seconds of the calling actor of a simulation, a rank or its helper; they add up to its time.
struct phantom_seconds {
    double computing = 0;  // at work on its processor
    double stages = 0;     // waiting for what another stage of a pipeline hands on
    double waiting = 0;    // for anything else
};

/// What a phantom rank stands on: its clock, its speed, its helpers.
class phantom_machine {
public:
    virtual ~phantom_machine() = default;
    /// Seconds; what was charged is part of them.
    virtual double now() = 0;
    /// A kernel runs.
    virtual void charge(const kernel_work& work) = 0;
    /// The rank waits, or works at something that is no kernel.
    virtual void pass(double seconds) = 0;
    /// A message between two ranks on different hosts; 0: messages take no time here.
    virtual double message_seconds(double /*bytes*/) { return 0; }
    /// The rank waits for one request of so many bytes; a machine that only counts takes no time.
    virtual void read_storage(storage /*from*/, double /*bytes*/) {}
    virtual void write_storage(storage /*to*/, double /*bytes*/) {}
    /// Whether the machine says how fast that is.
    virtual bool has_storage(storage /*where*/) { return false; }
    /// Room that stays taken. Throws where the machine has none.
    virtual void reserve_storage(storage /*where*/, double /*bytes*/) {}
    /// Joules so far of all ranks and the network between them; 0: unknown.
    virtual double joules() { return 0; }
    /// What the calling actor's time went on.
    virtual phantom_seconds spent() { return {}; }
    /// The rank's kernels run in p-state k from now on.
    virtual void set_power_state(std::size_t /*k*/) {}
    /// A helper of this rank.
    virtual std::unique_ptr<job_queue> start_queue() = 0;
    /// What a kernel would take; 0: kernels take no time here.
    virtual double kernel_seconds(const kernel_work& /*work*/) { return 0; }
};

/// The machine of the calling thread, if it is a phantom rank's; null: the thread is real.
inline constinit thread_local phantom_machine* phantom_here = nullptr;

/// Whether no elements are touched here.
inline bool on_phantom_rank() { return phantom_here != nullptr; }

/// The addresses that blocks of phantom ranks have. Reserved once; empty before.
class phantom_range {
public:
    static constexpr index_t least_block = 4096;  // bytes; shorter blocks are real

    static bool holds(const void* address) {
        return static_cast<std::size_t>(static_cast<const char*>(address) - begin_) < bytes_;
    }

    /// Reserves 16 TiB, or what the system has. Without `rights` a kernel that touches it dies where it does so
    /// (tests); with them it reads and writes what nobody looks at. Throws where there is no address space.
    static void reserve(bool rights = true);
    static char* begin() { return begin_; }
    static index_t bytes() { return static_cast<index_t>(bytes_); }

private:
    static inline constinit char* begin_ = nullptr;
    static inline constinit std::size_t bytes_ = 0;
};

/// Whether the bytes are a phantom rank's, so that their number is all there is of them.
inline bool is_phantom(std::span<const std::byte> data) { return phantom_range::holds(data.data()); }

}  // namespace cairn
