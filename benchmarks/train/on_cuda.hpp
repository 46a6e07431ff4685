#pragma once
// A run with its network on a GPU: compiled by nvcc, apart from the program.

#include <cairn/train/session.hpp>

/// Trains, or with `options.generated` times `options.max_steps` steps, on GPU `gpu` of those that this process sees. Returns the final figures.
/// Setting train.products: exact (float's own products), or tf32 (the tensor cores', rounded to 11 bits). Throws where there is no such GPU.
nlohmann::json run_on_cuda(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           int gpu, bool profile);
