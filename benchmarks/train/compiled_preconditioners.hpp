#pragma once
// Preconditioners of sessions on D in any precision, compiled once: for the host in compiled_optimizers.cpp, for GPUs
// in on_cuda_optimizers.cu.

#include <cairn/train/preconditioners.hpp>

#define CAIRN_PRECONDITIONERS(instantiated, D)                          \
    instantiated template class kfac_ranks<any_communicator, float, D>; \
    instantiated template class shampoo<float, D>;                      \
    instantiated template class soap<float, D>;                         \
    instantiated template class muon<float, D>;                         \
    instantiated template class quadratic_step<D>;
