#pragma once
// Preconditioners of sessions in any precision, compiled in compiled_optimizers.cpp.

#include <cairn/train/curvature.hpp>

#define CAIRN_PRECONDITIONERS(instantiated)                               \
    instantiated template class kfac_ranks<any_communicator, float, cpu>; \
    instantiated template class shampoo<float, cpu>;                      \
    instantiated template class soap<float, cpu>;                         \
    instantiated template class muon<float, cpu>;                         \
    instantiated template class quadratic_step<cpu>;

#ifndef CAIRN_COMPILES_PRECONDITIONERS
namespace cairn {
CAIRN_PRECONDITIONERS(extern)
}
#endif
