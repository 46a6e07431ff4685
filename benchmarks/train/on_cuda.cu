#include "on_cuda.hpp"

#include <cairn/device/cuda/activation.hpp>
#include <cairn/device/cuda/batch_norm.hpp>
#include <cairn/device/cuda/channels.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/dropout.hpp>
#include <cairn/device/cuda/embedding.hpp>
#include <cairn/device/cuda/for_each.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/layer_norm.hpp>
#include <cairn/device/cuda/pool.hpp>
#include <cairn/device/cuda/reduce.hpp>
#include <cairn/device/cuda/softmax.hpp>

nlohmann::json run_on_cuda(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           int gpu, bool profile) {
    using cairn::cuda;
    cuda::choose(gpu);
    const auto& p = cuda::properties();
    if (world.rank() == 0)
        std::fprintf(stderr, "GPU: %s, %.0f GiB, compute capability %d.%d\n", p.name,
                     static_cast<double>(p.totalGlobalMem) / (1 << 30), p.major, p.minor);
    cairn::gpu_float_products() = settings.choice("train.products", {"exact", "tf32"}, "exact") == "tf32"
                                      ? cairn::float_products::tf32
                                      : cairn::float_products::exact;
    const bool timed = options.generated;
    const std::int64_t steps = options.max_steps;
    cairn::session<cuda> session(std::move(settings), std::move(options), std::move(world));
    return timed ? session.throughput(steps, profile) : session.train();
}
