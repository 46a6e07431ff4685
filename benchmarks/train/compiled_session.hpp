#pragma once
// The host's sessions, of layers that compute in float and in bfloat16, each compiled once (CMake's cairn_session)
// instead of in each file of the program and of its tests.

#include <cairn/core/bfloat16.hpp>
#include <cairn/train/session.hpp>

#define CAIRN_SESSION_OF(T, instantiated)              \
    instantiated template class builder<cpu, T>;       \
    instantiated template class training_loop<cpu, T>; \
    instantiated template class session<cpu, T>;

#ifndef CAIRN_COMPILES_SESSIONS
namespace cairn {

CAIRN_SESSION_OF(float, extern)
CAIRN_SESSION_OF(bfloat16, extern)

}  // namespace cairn
#endif
