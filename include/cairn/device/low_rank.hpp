#pragma once
// Which parts of a bucket are matrices, and what the kernels of PowerSGD (cpu/low_rank.hpp, grid/low_rank.hpp) do with
// all of them at once:
//   low_rank_tables<D>(plan)                                 what kernels on D read and all memory that they need
//   add_residual(d, n, g, e, x)                              x = g + e; false where a value is not finite, which the
//                                                            host alone looks for
//   gather_dense(d, t, x, dense)                             what is no matrix, from the bucket
//   scatter_dense(d, t, dense, ranks, x)                     x = dense / ranks · ranks there
//   draw_zero_rows(d, t, side, random, factors)              rows of factors that are zero become normal numbers, the
//                                                            same on all ranks
//   orthonormalise(d, t, side, factors)                      rows of each factor, in double; those that depend on
//                                                            earlier ones become zero
//   project(d, t, x, q, p)                                   P_c = M Q_cᵀ
//   back_project(d, t, x, p, q)                              Q_c = P_c M
//   reconstruct(d, t, p, q, ranks, x, residual)              M̂ = Σ_c P_cᵀ Q_c / ranks;  residual = M − M̂;
//                                                            M becomes ranks · M̂

#include <cairn/core/host_device.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

#include <vector>

namespace cairn {

/// One matrix of a bucket and its factors.
struct low_rank_matrix {
    index_t offset = 0;  // of the first value in the bucket
    index_t rows = 0, cols = 0, rank = 0;
    index_t p = 0, q = 0;  // where its factors begin in all P, all Q
};

/// A run of a bucket that is sent as it is, from `offset` to `at` among all of these.
struct dense_run {
    index_t offset = 0, count = 0, at = 0;
};

struct low_rank_plan {
    std::vector<low_rank_matrix> matrices;
    std::vector<dense_run> dense;
    index_t n = 0, p_size = 0, q_size = 0, dense_size = 0;
};

/// Which factor of each matrix.
enum class factor_side { p, q };

CAIRN_HD inline index_t length_of(const low_rank_matrix& m, factor_side side) {
    return side == factor_side::p ? m.rows : m.cols;
}
CAIRN_HD inline index_t begin_of(const low_rank_matrix& m, factor_side side) {
    return side == factor_side::p ? m.p : m.q;
}

template <Device D>
class low_rank_tables;

}  // namespace cairn
