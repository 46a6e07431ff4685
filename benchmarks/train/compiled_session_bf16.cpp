#define CAIRN_COMPILES_SESSIONS
#define CAIRN_TARGETS cairn::target<cairn::cpu, cairn::bfloat16>
#include "compiled_session.hpp"

namespace cairn {
CAIRN_SESSION_OF(bfloat16, )
}
