#pragma once
// On the emulated GPU, products and convolutions, for which a real one has libraries, are the host's.

#include "device/cuda/emulated_gpu.hpp"

#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/gemm.hpp>

namespace cairn {

template <class T>
void gemm(emulated_gpu, bool trans_a, bool trans_b, index m, index n, index k, T alpha, const T* a, index lda,
          const T* b, index ldb, T beta, T* c, index ldc) {
    const emulated_gpu::opened memory_is;
    gemm(cpu{}, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

template <class T>
void conv_forward(emulated_gpu, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    const emulated_gpu::opened memory_is;
    conv_forward(cpu{}, g, x, w, bias, y);
}
template <class T>
void conv_backward_input(emulated_gpu, const conv_geometry& g, const T* dy, const T* w, T* dx) {
    const emulated_gpu::opened memory_is;
    conv_backward_input(cpu{}, g, dy, w, dx);
}
template <class T>
void conv_backward_weight(emulated_gpu, const conv_geometry& g, const T* x, const T* dy, T* dw, T* db) {
    const emulated_gpu::opened memory_is;
    conv_backward_weight(cpu{}, g, x, dy, dw, db);
}

}  // namespace cairn
