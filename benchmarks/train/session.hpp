#pragma once
// A training session where the network is: on the CPU or on a GPU, on ranks whose tensors are never touched, or on the
// ranks of a described machine.

#include "on_cpu.hpp"
#include "on_cuda.hpp"
#include "simulate.hpp"

#include <cairn/comm/mpi.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/train/configuration.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

/// Throws where MPI cannot be handed memory of GPUs: parallel.transport = mpi.
inline void require_mpi_between_gpus() {
#if CAIRN_HAS_MPI
    const std::string why = cairn::why_mpi_takes_no_gpu_memory();
#else
    const std::string why = "this program was built without MPI";
#endif
    cairn::require(
        why.empty(), "parallel.transport = mpi hands memory of GPUs to MPI, but ", why,
        "; run with an MPI that was built with CUDA (Open MPI: ompi_info --parsable | grep cuda_support), or take "
        "parallel.transport = nccl or host");
}

/// Where the network is: train.device.
inline nlohmann::json run_session(cairn::configuration settings, const cairn::session_options& options,
                                  cairn::any_communicator world, int local_rank, bool profile, bool plan) {
    const std::string transport = settings.choice("parallel.transport", {"auto", "nccl", "mpi", "host"}, "auto");
    if (settings.choice("train.device", {"cpu", "cuda"}, "cpu") == "cuda") {
        if (transport == "mpi" && world.size() > 1) require_mpi_between_gpus();
        cairn::require(!plan, "--plan is for train.device = cpu");
#if CAIRN_HAS_CUDA
        return run_on_cuda(std::move(settings), options, std::move(world), local_rank, profile);
#else
        (void)local_rank;
        cairn::fail(
            "train.device = cuda: this program was built for the CPU alone; cmake --preset cuda && cmake --build "
            "--preset "
            "cuda --target train makes build/cuda/benchmarks/train, or take train.device = cpu");
#endif
    }
    cairn::require(settings.choice("train.matmul_precision", {"exact", "tf32"}, "exact") == "exact",
                   "train.matmul_precision = tf32 is for train.device = cuda; the CPU's products are exact");
    const std::string precision = settings.choice("train.precision", {"float32", "bf16", "fp16"}, "float32");
    cairn::require(precision != "fp16",
                   "train.precision = fp16 is for train.device = cuda; the CPU has float32 and bf16");
    cairn::require(transport == "auto",
                   "parallel.transport is for train.device = cuda; ranks of the CPU have their own memory only");
    if (precision == "float32") return run_in_float32(std::move(settings), options, std::move(world), profile, plan);
#if CAIRN_HAS_BF16
    return run_in_bf16(std::move(settings), options, std::move(world), profile, plan);
#else
    cairn::fail(
        "train.precision = bf16: this program was built for float32 alone; cmake --build --preset release --target "
        "train makes build/release/benchmarks/train, or take train.precision = float32");
#endif
}

/// What `ranks` ranks would hold and do, as threads whose tensors are never touched.
inline std::vector<nlohmann::json> needs_of_ranks(const cairn::configuration& settings,
                                                  const cairn::session_options& options, int ranks) {
    std::vector<nlohmann::json> needs(static_cast<std::size_t>(std::max(1, ranks)));
    cairn::thread_ranks threads;
    threads.kernel_threads = cairn::threads();
    cairn::run_ranks(static_cast<int>(needs.size()), threads, [&](cairn::threads_communicator& world) {
        cairn::counted_machine machine;
        const cairn::phantom_rank here(machine);
        const int rank = world.rank();
        needs[static_cast<std::size_t>(rank)] = run_session(settings, options, world.split(0, rank), 0, false, true);
    });
    return needs;
}

/// `trace_ranks`: in trace.json; empty: the first of each host.
inline nlohmann::json simulate_session(const cairn::configuration& settings, const cairn::session_options& options,
                                       const cairn::machine_description& machine, const simulated_run& asked,
                                       bool throughput, const std::vector<int>& trace_ranks) {
    return simulate(machine, asked, [&](auto simulated, const begun_run& begun) {
        cairn::session_options of_rank = options;
        of_rank.on_start = begun.begin_steps;
        if (!throughput) of_rank.machine = begun.machine;
        of_rank.trace_ranks = trace_ranks.empty() ? begun.first_of_hosts : trace_ranks;
        of_rank.slack = begun.slack;
        return run_session(settings, of_rank, std::move(simulated), 0, false, false);
    });
}
