#define CAIRN_COMPILED_optimizers_float
#include "compiled_preconditioners.hpp"

namespace cairn {
CAIRN_PRECONDITIONERS(, cpu)
}
