#define CAIRN_TARGETS cairn::target<cairn::cuda, float>
#include "gpu_kernels.hpp"

#include <cairn/train/compressors.hpp>
#include <cairn/train/objectives.hpp>
