#pragma once
// The sizes of one matrix product and their errors, with the same words on every device.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

namespace cairn {

/// Sizes of c (m × n) = op(a) (m × k) op(b) (k × n), row-major with rows of lda, ldb and ldc numbers.
struct gemm_size {
    bool trans_a = false, trans_b = false;
    index_t m = 0, n = 0, k = 0;
    index_t lda = 0, ldb = 0, ldc = 0;
};

/// Throws on a negative size or batch, and on a leading dimension shorter than a row.
inline void check(const gemm_size& s, index_t batch = 1) {
    const auto shown = [&] { return concat("gemm of ", s.m, " x ", s.n, " x ", s.k); };
    if (s.m < 0 || s.n < 0 || s.k < 0) fail(shown(), ": negative size");
    if (batch < 0) fail("gemm_batched: batch of ", batch);
    const index_t a = s.trans_a ? s.m : s.k, b = s.trans_b ? s.k : s.n;
    if (s.lda < a) fail(shown(), ": lda is ", s.lda, ", a row of a has ", a);
    if (s.ldb < b) fail(shown(), ": ldb is ", s.ldb, ", a row of b has ", b);
    if (s.ldc < s.n) fail(shown(), ": ldc is ", s.ldc, ", a row of c has ", s.n);
}

}  // namespace cairn
