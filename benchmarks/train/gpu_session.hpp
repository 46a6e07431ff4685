#pragma once
// For *.cu: a session on the current GPU whose layers compute in T. nvcc works on the parts side by side, as compilers
// do on the host's (compiled_session.hpp):
//   on_cuda_session_T.cu       builder, training step, loop of one precision
//   on_cuda_models_T.cu        networks and their layers
//   on_cuda_optimizers.cu      optimizers, preconditioners, K-FAC over ranks
//   on_cuda_compressors.cu     gradient compressors, objectives

#define CAIRN_TARGETS cairn::entered_elsewhere
#include "compiled_preconditioners.hpp"
#include "gpu_kernels.hpp"
#include "on_cuda.hpp"

#include <cairn/train/session.hpp>

namespace cairn {
CAIRN_PRECONDITIONERS(extern, cuda)
}

template <class T>
nlohmann::json run_in(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                      std::optional<cairn::any_communicator> transport, bool profile) {
    const bool timed = options.generated, evaluates = !options.evaluate.empty();
    const std::int64_t steps = options.max_steps;
    cairn::session<cairn::cuda, T> session(std::move(settings), std::move(options), std::move(world),
                                           std::move(transport));
    if (evaluates) return session.evaluate();
    return timed ? session.throughput(steps, profile) : session.train();
}
