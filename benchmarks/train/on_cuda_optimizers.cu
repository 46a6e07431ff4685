#define CAIRN_TARGETS cairn::target<cairn::cuda, float>
#include "gpu_kernels.hpp"

#include "compiled_preconditioners.hpp"

namespace cairn {
CAIRN_PRECONDITIONERS(, cuda)
}
