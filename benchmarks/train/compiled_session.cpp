#define CAIRN_COMPILES_SESSIONS
#include "compiled_session.hpp"

namespace cairn {
CAIRN_SESSION_OF(float, )
}
