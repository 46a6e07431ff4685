#pragma once
// NCCL over the emulated GPUs (emulated_cuda.hpp): the functions that comm/nccl.hpp calls, between threads of one
// process, with a GPU each.
//   calls are put into a stream and done later, in the stream's order; a collective when all ranks' streams have come
//   to it, a transfer when the two have; the parts of a group go on side by side
//   a call may answer ncclInProgress, at random: then it is in no stream before a question for the state of the
//   communicator often enough, and until then every other call is refused
//   a split may answer ncclSuccess while it goes on, as NCCL 2.28's do; the communicator that it makes is there once
//   the state of the old one is ncclSuccess; finalizing waits for all ranks
// Stricter than the real one, which would hang or mix up data: ranks whose calls differ (kind, type, count, root,
// operation, bytes of a transfer) get ncclInvalidUsage; memory of another GPU or of the host, a communicator that is
// gone, a stream of another GPU ncclInvalidArgument.

#include <nccl.h>

#include <string>

namespace emulated {

/// How NCCL behaves from now on.
struct nccl_behaviour {
    unsigned in_progress = 2;  // of how many calls one answers ncclInProgress; 0: none but those that always do
    // an abort is ncclRemoteError on the others, as over a network; else they wait for ever
    bool deaths_are_seen = true;
    bool gives_ids = true;
    ncclResult_t joining = ncclSuccess;  // what ranks that join find out later
};
void behave(const nccl_behaviour& how);

/// The communicators of a GPU come to this state.
void break_gpu(int gpu, ncclResult_t state);

/// Calls that put work into streams so far, of a kind: "all-reduce", "broadcast", "reduce", "reduce-scatter",
/// "all-gather", "send", "receive".
int nccl_calls(const std::string& kind);

/// Communicators that were made and neither destroyed nor aborted.
int open_communicators();

}  // namespace emulated
