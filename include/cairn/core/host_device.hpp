#pragma once
// Marks what runs on the host and on a GPU alike: the rules of optimizers, functors of for_each, bodies of kernels.

#if defined(__CUDACC__)
#define CAIRN_HD __host__ __device__
#else
#define CAIRN_HD
#endif
