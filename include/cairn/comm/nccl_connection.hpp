#pragma once
// NCCL as a library: the only file that includes <nccl.h>. Its names for our element types and reductions, transfers
// that are launched together, and a connection: a communicator of NCCL's with a stream of its own, which polls what is
// under way, and aborts on errors and when the time limit is over.

#include <cairn/comm/rank_state.hpp>
#include <cairn/comm/vendor_collectives.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

template <VendorElement T>
constexpr ncclDataType_t nccl_type() {
    if constexpr (std::same_as<T, float>)
        return ncclFloat32;
    else if constexpr (std::same_as<T, double>)
        return ncclFloat64;
    else if constexpr (std::same_as<T, float16>)
        return ncclFloat16;
    else if constexpr (std::same_as<T, bfloat16>)
        return ncclBfloat16;
    else
        return ncclInt32;
}

inline ncclRedOp_t nccl_op(reduction r) {
    return r == reduction::sum ? ncclSum : r == reduction::max ? ncclMax : ncclMin;
}

/// Transfers, or one collective, that are launched together.
struct nccl_batch {
    struct transfer {
        bool sends;
        std::byte* data;
        std::size_t bytes;
        int peer, tag;
        bool cancelled = false;

        std::string text() const { return text_of_transfer(sends, bytes, peer, tag); }
    };
    std::vector<transfer> transfers;
    std::string collective;  // instead
    bool launched = false;
    cudaEvent_t done = nullptr;

    nccl_batch() { cairn::check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "making an event"); }
    nccl_batch(const nccl_batch&) = delete;
    ~nccl_batch() { cudaEventDestroy(done); }

    bool finished() const {
        const cudaError_t state = dealt_with(cudaEventQuery(done));
        if (state == cudaErrorNotReady) return false;
        cairn::check(state, "waiting for a transfer");
        return true;
    }
};

/// A communicator of NCCL's with a stream of its own.
struct nccl_handle : rank_state {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    int gpu = cuda::current();
    std::shared_ptr<nccl_batch> open;  // transfers that have not been waited for
    std::string aborted;               // why
    int unwinding = std::uncaught_exceptions();

    nccl_handle() = default;
    nccl_handle(const nccl_handle&) = delete;
    ~nccl_handle() {
        if (std::uncaught_exceptions() > unwinding) abort("it went with an error");  // the others hear of it
        try {
            if (comm) {
                settle(ncclCommFinalize(comm), "leaving");
                ncclCommDestroy(std::exchange(comm, nullptr));
            }
        } catch (const error& e) {  // aborted: the other ranks are not waited for
            std::fprintf(stderr, "%s\n", e.what());
        }
        if (stream) cudaStreamDestroy(stream);
    }

    std::string me() const { return concat("NCCL: rank ", rank, " of ", size, ": "); }
    std::string place() const { return calls.empty() ? "" : " in " + text_of(calls.back()); }

    /// So that nothing of this communicator stays on the GPU. Only the first reason is kept.
    void abort(const std::string& why) {
        if (!comm) return;
        aborted = why;
        ncclCommAbort(std::exchange(comm, nullptr));
    }
    template <class... What>
    [[noreturn]] void give_up(const What&... what) {
        const std::string why = concat(what...);
        abort(why);
        fail(me(), why, "; the communicator is aborted");
    }

    void require_alive() const {
        if (comm) return;
        require(!aborted.empty(), me(), "NCCL has made no communicator, and no error says why");
        fail(me(), "the communicator was aborted before: ", aborted);
    }
    /// An error in words, and where the reason may be the machine, how to learn it.
    std::string text_of_error(ncclResult_t state) const {
        const bool of_machine = state == ncclInternalError || state == ncclSystemError;
        return concat(ncclGetErrorString(state), " (", ncclGetLastError(comm), ')',
                      of_machine ? "; NCCL_DEBUG=WARN prints NCCL's reason; without a network, NCCL_SOCKET_IFNAME=lo"
                                   " keeps it to this machine"
                                 : "");
    }
    void require_usable() const {
        require_alive();
        require(cuda::current() == gpu, me(), "this thread's GPU is ", cuda::current(), ", the communicator's ", gpu,
                "; call cuda::choose(", gpu, ") in it");
    }

    /// Throws NCCL's asynchronous error, if there is one.
    void look(const std::string& what) {
        require_alive();
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        if (asked != ncclSuccess) state = asked;
        if (state != ncclSuccess && state != ncclInProgress) give_up(what, place(), ": ", text_of_error(state));
    }

    /// Asks done() until it says so.
    template <class Done>
    void poll(Done&& done, const std::string& what) {
        const auto begin = std::chrono::steady_clock::now();
        for (;;) {
            require_alive();  // what an abort has ended is not done
            if (done()) return;
            look(what);
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
            if (limit > 0 && waited.count() > limit)
                give_up(
                    what, place(), " has taken ", limit,
                    " s: is another rank gone, or does it call something else? (CAIRN_COMM_TIMEOUT sets the limit)");
            if (waited.count() > 20e-6)
                std::this_thread::sleep_for(std::chrono::microseconds(waited.count() < 0.01 ? 20 : 500));
        }
    }

    /// Takes the result of a call; communicators do not block, so one that is in progress is polled.
    void settle(ncclResult_t result, const std::string& what) {
        if (result == ncclInProgress) {
            poll(
                [&] {
                    ncclResult_t state = ncclInProgress;
                    return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess;
                },
                what);
        } else if (result != ncclSuccess) {
            give_up(what, place(), ": ", text_of_error(result));
        }
    }

    /// calls_of_nccl() puts work into this communicator's stream, after what the calling thread has launched;
    /// batch.done is when it is done.
    template <class Calls>
    void launch(nccl_batch& batch, const std::string& what, Calls&& calls_of_nccl) {
        require_usable();
        cairn::check(cudaEventRecord(batch.done, cuda::stream()), "recording an event");
        cairn::check(cudaStreamWaitEvent(stream, batch.done, 0), "waiting for an event");
        settle(calls_of_nccl(), what);
        cairn::check(cudaEventRecord(batch.done, stream), "recording an event");
        batch.launched = true;
    }

    /// Calls of NCCL that go on side by side. each() makes one of them.
    template <class Each>
    static ncclResult_t group(std::size_t n, Each&& each) {
        const auto good = [](ncclResult_t r) { return r == ncclSuccess || r == ncclInProgress; };
        ncclResult_t result = ncclGroupStart();
        for (std::size_t i = 0; i < n && good(result); ++i) result = each(i);
        const ncclResult_t ended = ncclGroupEnd();  // also after a failure, or this thread launches nothing any more
        return good(result) ? ended : result;
    }

    void launch_transfers(nccl_batch& batch) {
        if (batch.launched) return;
        launch(batch, "messages", [&] {
            return group(batch.transfers.size(), [&](std::size_t i) {
                const auto& t = batch.transfers[i];
                if (t.cancelled) return ncclSuccess;
                return t.sends ? ncclSend(t.data, t.bytes, ncclUint8, t.peer, comm, stream)
                               : ncclRecv(t.data, t.bytes, ncclUint8, t.peer, comm, stream);
            });
        });
    }

    /// Before anything that all ranks do together: the others may wait for what this rank has begun.
    void launch_open() {
        if (open) launch_transfers(*open);
    }
};

}  // namespace detail

}  // namespace cairn
