#define CAIRN_TARGETS cairn::target<cairn::cuda, float>
#include "gpu_kernels.hpp"

#include <cairn/train/models.hpp>
