#pragma once
// The host's sessions, of layers that compute in float and in bfloat16, compiled once (CMake's cairn_session) instead
// of in each file of the program and of its tests, in parts that compilers work on side by side:
//   compiled_session.cpp, compiled_session_bf16.cpp   builder, training step, loop, of one precision each
//   compiled_models.cpp, compiled_models_bf16.cpp     networks and their layers
//   compiled_optimizers.cpp                           optimizers, preconditioners, K-FAC over ranks
//   compiled_compressors.cpp, compiled_data.cpp       gradient compressors; data formats, objectives, ADMM
// A session's part enters nothing by name (train/registry.hpp): the others do.

#ifdef CAIRN_COMPILES_SESSIONS
#define CAIRN_TARGETS cairn::entered_elsewhere
#endif

#include "compiled_admm.hpp"
#include "compiled_preconditioners.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/train/session.hpp>

#define CAIRN_SESSION_OF(T, instantiated)              \
    instantiated template struct run_parts<cpu, T>;    \
    instantiated template class training_loop<cpu, T>; \
    instantiated template class session<cpu, T>;

namespace cairn {
CAIRN_PRECONDITIONERS(extern, cpu)
CAIRN_ADMM(extern)
}  // namespace cairn

#ifndef CAIRN_COMPILES_SESSIONS
namespace cairn {

CAIRN_SESSION_OF(float, extern)
CAIRN_SESSION_OF(bfloat16, extern)

}  // namespace cairn
#endif
