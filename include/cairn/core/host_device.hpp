#pragma once
// Marks what runs on the host and on a GPU alike: the rules of optimizers, functors of for_each, kernels.
// CAIRN_UNROLL stands before a loop over an array that a GPU keeps in registers, which it can only where every index is
// known.

#if defined(__CUDACC__)
#define CAIRN_HD __host__ __device__
#define CAIRN_UNROLL _Pragma("unroll")
#else
#define CAIRN_HD
#define CAIRN_UNROLL
#endif
