#pragma once
// On the emulated GPU, products, convolutions and decompositions, for which a real one has libraries, are the host's.

#include "device/cuda/emulated_gpu.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/cpu/symmetric.hpp>

#include <concepts>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace cairn {

namespace detail {

template <class T>
tensor<float> widened(const T* x, index_t n) {
    tensor<float> wide({n});
    for (index_t i = 0; i < n; ++i) wide[i] = float{x[i]};
    return wide;
}
template <class T>
void narrow(const tensor<float>& from, T* to) {
    for (index_t i = 0; i < from.size(); ++i) to[i] = T(from[i]);
}

/// What cuDNN, or our use of it, refuses: addresses that are not multiples of 16 bytes; a first call while launches are
/// recorded, for its plan has to be built and tried.
template <class T>
void as_cudnn_wants(conv_phase phase, const conv_geometry& g, const T* x, const T* w, const T* y) {
    const auto together =
        reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(w) | reinterpret_cast<std::uintptr_t>(y);
    require(together % 16 == 0, "convolution ", g.to_string(),
            ": cuDNN wants addresses that are multiples of 16 bytes");
    static std::mutex mutex;
    static auto* const seen = new std::set<std::string>;
    const std::scoped_lock lock(mutex);
    const std::string key = concat(static_cast<int>(phase), ' ', sizeof(T), ' ', g.to_string());
    if (!emulated_gpu::is_recording()) seen->insert(key);
    require(seen->contains(key), "convolution ", g.to_string(),
            ": its plan is chosen while launches are recorded; run it once before");
}

template <class T>
concept Half = std::same_as<T, bfloat16> || std::same_as<T, float16>;

}  // namespace detail

template <class T>
void gemm(emulated_gpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, T alpha, const T* a, index_t lda,
          const T* b, index_t ldb, T beta, T* c, index_t ldc) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        gemm(cpu{}, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    });
}

template <class T>
void gemm_bias(emulated_gpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, T alpha, const T* a,
               index_t lda, const T* b, index_t ldb, T* c, index_t ldc, const T* bias,
               activation act = activation::none, const T* added = nullptr) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        gemm_bias(cpu{}, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, c, ldc, bias, act, added);
    });
}

template <class T>
void linear_gradients(emulated_gpu, index_t rows, index_t out, index_t in, const T* dy, const T* x, T* dw, T* db) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        linear_gradients(cpu{}, rows, out, in, dy, x, dw, db);
    });
}

template <class T>
void add_symmetric_product(emulated_gpu, index_t count, index_t width, T weight, const T* rows, index_t stride, T* c,
                           index_t ldc) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        add_symmetric_product(cpu{}, count, width, weight, rows, stride, c, ldc);
    });
}

template <detail::Half T>
void add_symmetric_product(emulated_gpu, index_t count, index_t width, float weight, const T* rows, index_t stride,
                           float* c, index_t ldc) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide = detail::widened(rows, (count - 1) * stride + width);
        add_symmetric_product(cpu{}, count, width, weight, wide.data(), stride, c, ldc);
    });
}

template <class T>
struct emulated_eigen_decomposition {
    tensor<T, emulated_gpu> values, vectors;
};
template <class T>
emulated_eigen_decomposition<T> eigh(emulated_gpu, const tensor<T, emulated_gpu>& a) {
    const auto d = eigh(cpu{}, a.on_host());
    return {tensor<T, emulated_gpu>::copy_of(d.values), tensor<T, emulated_gpu>::copy_of(d.vectors)};
}
template <class T>
tensor<T, emulated_gpu> orthonormal_columns(emulated_gpu, const tensor<T, emulated_gpu>& a) {
    return tensor<T, emulated_gpu>::copy_of(orthonormal_columns(cpu{}, a.on_host()));
}
template <class T>
tensor<T, emulated_gpu> inverse_of_positive(emulated_gpu, const tensor<T, emulated_gpu>& a) {
    return tensor<T, emulated_gpu>::copy_of(inverse_of_positive(cpu{}, a.on_host()));
}

template <class T>
void conv_forward(emulated_gpu, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    detail::as_cudnn_wants<T>(conv_phase::forward, g, x, w, y);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        conv_forward(cpu{}, g, x, w, bias, y);
    });
}
template <class T>
void conv_backward_input(emulated_gpu, const conv_geometry& g, const T* dy, const T* w, T* dx,
                         const T* bias = nullptr) {
    detail::as_cudnn_wants<T>(conv_phase::backward_input, g, dx, w, dy);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        conv_backward_input(cpu{}, g, dy, w, dx, bias);
    });
}
template <class T>
void conv_backward_weight(emulated_gpu, const conv_geometry& g, const T* x, const T* dy, T* dw, T* db) {
    detail::as_cudnn_wants<T>(conv_phase::backward_weight, g, x, nullptr, dy);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        conv_backward_weight(cpu{}, g, x, dy, dw, db);
    });
}

// The same of bfloat16 and float16: computed in float, and rounded once.
template <detail::Half T>
void gemm(emulated_gpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, float alpha, const T* a,
          index_t lda, const T* b, index_t ldb, float beta, T* c, index_t ldc) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_a = detail::widened(a, trans_a ? (k - 1) * lda + m : (m - 1) * lda + k),
                            wide_b = detail::widened(b, trans_b ? (n - 1) * ldb + k : (k - 1) * ldb + n);
        tensor<float> wide_c = detail::widened(c, (m - 1) * ldc + n);
        gemm(cpu{}, trans_a, trans_b, m, n, k, alpha, wide_a.data(), lda, wide_b.data(), ldb, beta, wide_c.data(), ldc);
        detail::narrow(wide_c, c);
    });
}
/// Into float: not rounded.
template <detail::Half T>
void gemm(emulated_gpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, float alpha, const T* a,
          index_t lda, const T* b, index_t ldb, float beta, float* c, index_t ldc) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_a = detail::widened(a, trans_a ? (k - 1) * lda + m : (m - 1) * lda + k),
                            wide_b = detail::widened(b, trans_b ? (n - 1) * ldb + k : (k - 1) * ldb + n);
        gemm(cpu{}, trans_a, trans_b, m, n, k, alpha, wide_a.data(), lda, wide_b.data(), ldb, beta, c, ldc);
    });
}
template <detail::Half T>
void gemm_bias(emulated_gpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, float alpha, const T* a,
               index_t lda, const T* b, index_t ldb, T* c, index_t ldc, const T* bias,
               activation act = activation::none, const T* added = nullptr) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_a = detail::widened(a, trans_a ? (k - 1) * lda + m : (m - 1) * lda + k),
                            wide_b = detail::widened(b, trans_b ? (n - 1) * ldb + k : (k - 1) * ldb + n),
                            wide_bias = bias ? detail::widened(bias, n) : tensor<float>{},
                            wide_added = added ? detail::widened(added, (m - 1) * ldc + n) : tensor<float>{};
        tensor<float> wide_c = detail::widened(c, (m - 1) * ldc + n);
        gemm_bias(cpu{}, trans_a, trans_b, m, n, k, alpha, wide_a.data(), lda, wide_b.data(), ldb, wide_c.data(), ldc,
                  bias ? wide_bias.data() : nullptr, act, added ? wide_added.data() : nullptr);
        detail::narrow(wide_c, c);
    });
}
template <detail::Half T>
void linear_gradients(emulated_gpu, index_t rows, index_t out, index_t in, const T* dy, const T* x, float* dw,
                      float* db) {
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_dy = detail::widened(dy, rows * out), wide_x = detail::widened(x, rows * in);
        linear_gradients(cpu{}, rows, out, in, wide_dy.data(), wide_x.data(), dw, db);
    });
}
template <detail::Half T>
void conv_forward(emulated_gpu, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    detail::as_cudnn_wants<T>(conv_phase::forward, g, x, w, y);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_x = detail::widened(x, g.x_elements()), wide_w = detail::widened(w, g.w_elements()),
                            wide_bias = bias ? detail::widened(bias, g.c_out) : tensor<float>{};
        tensor<float> wide_y({g.y_elements()});
        conv_forward(cpu{}, g, wide_x.data(), wide_w.data(), wide_bias.data(), wide_y.data());
        detail::narrow(wide_y, y);
    });
}
template <detail::Half T>
void conv_backward_input(emulated_gpu, const conv_geometry& g, const T* dy, const T* w, T* dx,
                         const T* bias = nullptr) {
    detail::as_cudnn_wants<T>(conv_phase::backward_input, g, dx, w, dy);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_dy = detail::widened(dy, g.y_elements()), wide_w = detail::widened(w, g.w_elements());
        tensor<float> wide_dx({g.x_elements()});
        const tensor<float> wide_bias = bias ? detail::widened(bias, g.c_in) : tensor<float>{};
        conv_backward_input(cpu{}, g, wide_dy.data(), wide_w.data(), wide_dx.data(), wide_bias.data());
        detail::narrow(wide_dx, dx);
    });
}
template <detail::Half T>
void conv_backward_weight(emulated_gpu, const conv_geometry& g, const T* x, const T* dy, float* dw, float* db) {
    detail::as_cudnn_wants<T>(conv_phase::backward_weight, g, x, nullptr, dy);
    emulated_gpu::run([=] {
        const emulated_gpu::opened memory_is;
        const tensor<float> wide_x = detail::widened(x, g.x_elements()), wide_dy = detail::widened(dy, g.y_elements());
        conv_backward_weight(cpu{}, g, wide_x.data(), wide_dy.data(), dw, db);
    });
}

}  // namespace cairn
