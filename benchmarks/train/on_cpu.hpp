#pragma once
// A run with its network on the CPU: compiled apart from the program, each precision of the layers in files of its own
// (compiled_session.hpp).

#include <cairn/comm/any.hpp>
#include <cairn/train/configuration.hpp>

#include <nlohmann/json.hpp>

/// Trains; with `options.generated` and no `options.machine` times `options.max_steps` steps, with `profile` a table of
/// the layers too; with `plan` prints what each rank would do. Returns the final figures.
nlohmann::json run_in_float32(cairn::configuration settings, const cairn::session_options& options,
                              cairn::any_communicator world, bool profile, bool plan);
nlohmann::json run_in_bf16(cairn::configuration settings, const cairn::session_options& options,
                           cairn::any_communicator world, bool profile, bool plan);
