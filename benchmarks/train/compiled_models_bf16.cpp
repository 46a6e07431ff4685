#define CAIRN_TARGETS cairn::target<cairn::cpu, cairn::bfloat16>
#include <cairn/core/bfloat16.hpp>
#include <cairn/train/models.hpp>
