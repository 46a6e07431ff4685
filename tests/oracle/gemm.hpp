#pragma once
// The matrix product by three plain loops: the definition that every GEMM is compared with. Sums are in double.

#include <cairn/core/shape.hpp>

namespace oracle {

/// c (m × n) = alpha op(a) op(b) + beta c, row-major, op(a) m × k, op(b) k × n. With beta 0, c is not read.
template <class T>
void gemm(bool trans_a, bool trans_b, cairn::index_t m, cairn::index_t n, cairn::index_t k, T alpha, const T* a,
          cairn::index_t lda, const T* b, cairn::index_t ldb, T beta, T* c, cairn::index_t ldc) {
    for (cairn::index_t i = 0; i < m; ++i)
        for (cairn::index_t j = 0; j < n; ++j) {
            double sum = 0;
            for (cairn::index_t l = 0; l < k; ++l)
                sum += static_cast<double>(trans_a ? a[l * lda + i] : a[i * lda + l]) *
                       static_cast<double>(trans_b ? b[j * ldb + l] : b[l * ldb + j]);
            const double before = beta == T{} ? 0.0 : static_cast<double>(beta) * static_cast<double>(c[i * ldc + j]);
            c[i * ldc + j] = static_cast<T>(static_cast<double>(alpha) * sum + before);
        }
}

}  // namespace oracle
