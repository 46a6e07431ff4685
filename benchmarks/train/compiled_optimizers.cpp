#include "compiled_preconditioners.hpp"

namespace cairn {
CAIRN_PRECONDITIONERS(, cpu)
}
