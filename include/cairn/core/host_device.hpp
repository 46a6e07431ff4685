#pragma once
// CAIRN_HD marks code for host and GPU: update rules of optimizers, functors of for_each, kernels.
// CAIRN_UNROLL stands before a loop over an array in a GPU's registers: every index must be known at compile time.

#if defined(__CUDACC__)
#define CAIRN_HD __host__ __device__
#define CAIRN_UNROLL _Pragma("unroll")
#else
#define CAIRN_HD
#define CAIRN_UNROLL
#endif
