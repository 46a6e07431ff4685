#pragma once
// A run with its network on a GPU: compiled by nvcc, apart from the program.

#include <cairn/comm/any.hpp>
#include <cairn/train/configuration.hpp>

#include <nlohmann/json.hpp>

#include <optional>

/// Trains, or with `options.generated` times `options.max_steps` steps, on GPU `local_rank` of those that this process
/// sees, counted round. Returns the final figures.
/// Setting train.precision: float32, bf16 or fp16 (layers compute in bfloat16, or in float16 under a loss scale;
/// weights, gradients, statistics, losses and updates are float).
/// train.matmul_precision: exact (float's own products), or tf32 (the tensor cores', of operands rounded to 11 bits;
/// with bf16 and fp16 that is K-FAC's products alone, and the default).
/// parallel.transport: what carries tensors between ranks (on_cuda.cu); one rank needs nothing. Throws where there is
/// no such GPU.
nlohmann::json run_on_cuda(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           int local_rank, bool profile);

/// The same on the current GPU, of layers that compute in T; tensors travel by `transport`, where there are ranks.
/// Compiled for each T in a file of its own (gpu_session.hpp).
template <class T>
nlohmann::json run_in(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                      std::optional<cairn::any_communicator> transport, bool profile);
