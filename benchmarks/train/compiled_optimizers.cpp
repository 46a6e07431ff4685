#define CAIRN_COMPILES_PRECONDITIONERS
#include "compiled_preconditioners.hpp"

namespace cairn {
CAIRN_PRECONDITIONERS()
}
