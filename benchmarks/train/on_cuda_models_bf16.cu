#define CAIRN_TARGETS cairn::target<cairn::cuda, cairn::bfloat16>
#include "gpu_kernels.hpp"

#include <cairn/train/models.hpp>
