#pragma once
// For *.cu: the kernels of training on a GPU. Before what enters the names of workload files for the targets of a file.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cuda/attention_plans.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/linalg.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/crop_flip.hpp>
#include <cairn/device/grid/csr.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/dice.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/embedding.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/relative_attention.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/grid/split_softmax.hpp>
