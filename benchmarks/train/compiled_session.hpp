#pragma once
// The host's session, compiled once (CMake's cairn_session) instead of in each file of the program and of its tests.

#include <cairn/train/session.hpp>

#ifndef CAIRN_COMPILED_SESSION
#define CAIRN_COMPILED_SESSION extern
#endif

namespace cairn {

CAIRN_COMPILED_SESSION template class builder<cpu, float>;
CAIRN_COMPILED_SESSION template class training_loop<cpu, float>;
CAIRN_COMPILED_SESSION template class session<cpu, float>;

}  // namespace cairn
