#pragma once
// For *.cu: a session on the current GPU whose layers compute in T. Each precision is compiled in a file of its own,
// side by side, which says so in CAIRN_TARGETS (train/registry.hpp).

#ifndef CAIRN_TARGETS
#define CAIRN_TARGETS                                                               \
    cairn::target<cairn::cuda, float>, cairn::target<cairn::cuda, cairn::bfloat16>, \
        cairn::target<cairn::cuda, cairn::float16>
#endif

// Before what enters the names of workload files for these targets.
#include <cairn/device/cuda/attention_plans.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/linalg.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/crop_flip.hpp>
#include <cairn/device/grid/csr.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/dice.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/embedding.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/grid/split_softmax.hpp>
#include <cairn/train/session.hpp>

#include "on_cuda.hpp"

template <class T>
nlohmann::json run_in(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                      std::optional<cairn::any_communicator> transport, bool profile) {
    const bool timed = options.generated;
    const std::int64_t steps = options.max_steps;
    cairn::session<cairn::cuda, T> session(std::move(settings), std::move(options), std::move(world),
                                           std::move(transport));
    return timed ? session.throughput(steps, profile) : session.train();
}

nlohmann::json run_in_bf16(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           std::optional<cairn::any_communicator> transport, bool profile);
nlohmann::json run_in_fp16(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           std::optional<cairn::any_communicator> transport, bool profile);
