#pragma once
// Devices of these tests' sessions: the host and the emulated GPU. The first include of a test that runs one
// there; of every test where they are compiled as one file.

#define CAIRN_TARGETS                                                            \
    cairn::target<cairn::cpu, float>, cairn::target<cairn::emulated_gpu, float>, \
        cairn::target<cairn::emulated_gpu, cairn::bfloat16>, cairn::target<cairn::emulated_gpu, cairn::float16>

#include "device/cuda/emulated_libraries.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/attention.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/crop_flip.hpp>
#include <cairn/device/grid/csr.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/dice.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/embedding.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/relative_attention.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/grid/split_softmax.hpp>
