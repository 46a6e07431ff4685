#include "on_cuda.hpp"

#include <cairn/comm/collectives/gpu_aware.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/nccl.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cuda/gemm.hpp>

#include <set>

namespace {

// parallel.transport: what carries gradients between GPUs. NCCL, where each rank has a GPU of its own; else the host's
// network, by way of the host's memory, or, where it can, from GPU to GPU (train.cpp has asked the MPI). Collective.
std::optional<cairn::any_communicator> transport_of(cairn::configuration& settings, cairn::any_communicator& world) {
    const std::string by = settings.choice("parallel.transport", {"auto", "nccl", "mpi", "host"}, "auto");
    if (world.size() == 1) return {};
    const std::vector<std::string> gpus = cairn::all_gather_text(world, cairn::cuda::identity());
    const auto different = std::set<std::string>(gpus.begin(), gpus.end()).size();
    const bool shared = different < gpus.size();
    cairn::require(by != "nccl" || !shared, "parallel.transport = nccl: ", gpus.size(), " ranks have ", different,
                   " GPUs, but NCCL needs one for each; start fewer ranks, or take host");
    const bool direct = by == "mpi", staged = by == "host" || (shared && !direct);
    if (world.rank() == 0)
        std::fprintf(stderr, "%zu ranks on %zu GPUs; gradients travel by %s\n", gpus.size(), different,
                     direct   ? "MPI, from GPU to GPU"
                     : staged ? "the host's memory"
                              : "NCCL");
    if (direct)
        return cairn::gpu_aware_communicator<cairn::cuda, cairn::any_communicator>(world.split(0, world.rank()));
    if (staged) return cairn::staged_communicator<cairn::cuda, cairn::any_communicator>(world.split(0, world.rank()));
    try {
        return cairn::nccl_communicator(world);
    } catch (const cairn::error& e) {
        cairn::fail(e.what(), "; parallel.transport = host does without NCCL");
    }
}

}  // namespace

nlohmann::json run_on_cuda(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           int local_rank, bool profile) {
    using cairn::cuda;
    cuda::choose(local_rank % cuda::count());
    const auto& p = cuda::properties();
    if (world.rank() == 0)
        std::fprintf(stderr, "GPU: %s, %.0f GiB, compute capability %d.%d\n", p.name,
                     static_cast<double>(p.totalGlobalMem) / (1 << 30), p.major, p.minor);
    const std::string precision = settings.choice("train.precision", {"float32", "bf16", "fp16"}, "float32");
    const char* const usual = precision == "float32" ? "exact" : "tf32";
    cairn::gpu_float_products() = settings.choice("train.matmul_precision", {"exact", "tf32"}, usual) == "tf32"
                                      ? cairn::float_products::tf32
                                      : cairn::float_products::exact;
    auto transport = transport_of(settings, world);
    if (settings.get("optimizer.kind", std::string()) == "kfac")  // each rank preconditions by itself
        cairn::require_equal(world, cairn::concat(p.name, p.major, p.minor),
                             "the kind of GPU, on which K-FAC's last bits depend");
    const auto run = precision == "bf16"   ? run_in<cairn::bfloat16>
                     : precision == "fp16" ? run_in<cairn::float16>
                                           : run_in<float>;
    return run(std::move(settings), std::move(options), std::move(world), std::move(transport), profile);
}
