#pragma once
// PowerSGD's products (device/low_rank.hpp) on a grid device: all matrices of a bucket in one launch each. Sums are in
// another order than the host's, the same one in every run.
//   project           a block a row of M; reads M once for r ≤ 4
//   back_project      a block a tile of 64 rows and 128 columns, then the sum over tiles; reads M once for r ≤ 4, and
//                     moves r / 32 of it more
//   reconstruct       a block a row: reads M, writes M̂ and the residual
//   orthonormalise    a block a matrix, in double
// Memory is made with the tables; what follows launches and returns.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/device_list.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/low_rank.hpp>

#include <cmath>
#include <vector>

namespace cairn {

namespace grid {

inline constexpr int low_rank_threads = 128, low_rank_at_once = 4;
inline constexpr index_t tile_rows = 64, tile_columns = 128, tile_threads = 256;

/// A row of a matrix, or of one of its factors.
struct matrix_row {
    low_rank_matrix m;
    index_t row;
};
/// Columns [first, first + tile_columns) of a matrix, rows [chunk · tile_rows, …); `partial`: where the matrix's sums
/// of tiles begin.
struct matrix_tile {
    low_rank_matrix m;
    index_t first, chunk, partial;
};

struct project_row {
    const matrix_row* rows;
    const float *x, *all_q;
    float* all_p;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const low_rank_matrix m = rows[b.block()].m;
        const index_t i = rows[b.block()].row;
        const float* const row = x + m.offset + i * m.cols;
        for (index_t c = 0; c < m.rank; c += low_rank_at_once) {
            const float* const q = all_q + m.q + c * m.cols;
            float sum[low_rank_at_once] = {};
            for (index_t j = b.thread(); j < m.cols; j += b.threads()) {
                const float v = row[j];
                CAIRN_UNROLL
                for (int k = 0; k < low_rank_at_once; ++k)
                    if (c + k < m.rank) sum[k] += v * q[k * m.cols + j];
            }
            for (int k = 0; k < low_rank_at_once && c + k < m.rank; ++k) {
                const float all = block_sum(b, sum[k], b.template shared<float>());
                if (b.thread() == 0) all_p[m.p + (c + k) * m.rows + i] = all;
            }
        }
    }
};

/// partial (chunks, rank, cols) of a matrix: the sums of its tiles.
struct back_project_tile {
    const matrix_tile* tiles;
    const float *x, *all_p;
    float* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        constexpr int lanes = tile_threads / warp_threads, wide = tile_columns / warp_threads;
        const matrix_tile t = tiles[b.block()];
        const low_rank_matrix m = t.m;
        const int across = static_cast<int>(b.thread()) % warp_threads,
                  down = static_cast<int>(b.thread()) / warp_threads;
        const index_t begin = t.chunk * tile_rows, end = begin + tile_rows < m.rows ? begin + tile_rows : m.rows;
        float* const room = b.template shared<float>();  // (lanes, tile_columns)
        for (index_t c = 0; c < m.rank; c += low_rank_at_once) {
            float sum[low_rank_at_once][wide] = {};
            for (index_t i = begin + down; i < end; i += lanes) {
                const float* const row = x + m.offset + i * m.cols + t.first;
                float v[wide];
                CAIRN_UNROLL
                for (int w = 0; w < wide; ++w) {
                    const index_t j = across + w * warp_threads;
                    v[w] = t.first + j < m.cols ? row[j] : 0.0f;
                }
                CAIRN_UNROLL
                for (int k = 0; k < low_rank_at_once; ++k) {
                    const float p = c + k < m.rank ? all_p[m.p + (c + k) * m.rows + i] : 0.0f;
                    CAIRN_UNROLL
                    for (int w = 0; w < wide; ++w) sum[k][w] += p * v[w];
                }
            }
            for (int k = 0; k < low_rank_at_once && c + k < m.rank; ++k) {
                CAIRN_UNROLL
                for (int w = 0; w < wide; ++w) room[down * tile_columns + across + w * warp_threads] = sum[k][w];
                b.sync();
                const index_t j = b.thread();
                if (j < tile_columns && t.first + j < m.cols) {
                    float all = room[j];
                    for (int l = 1; l < lanes; ++l) all += room[l * tile_columns + j];
                    partial[t.partial + (t.chunk * m.rank + c + k) * m.cols + t.first + j] = all;
                }
                b.sync();
            }
        }
    }
};

/// A block sums the tiles of some columns: those of chunk 0.
struct sum_tiles {
    const matrix_tile* strips;
    const float* partial;
    float* all_q;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const matrix_tile t = strips[b.block()];
        const low_rank_matrix m = t.m;
        const index_t chunks = (m.rows + tile_rows - 1) / tile_rows;
        for (index_t c = 0; c < m.rank; ++c)
            for (index_t j = t.first + b.thread(); j < m.cols && j < t.first + tile_columns; j += b.threads()) {
                float sum = 0;
                for (index_t k = 0; k < chunks; ++k) sum += partial[t.partial + (k * m.rank + c) * m.cols + j];
                all_q[m.q + c * m.cols + j] = sum;
            }
    }
};

/// residual = M − scale P^T Q;  M becomes `ranks` times that estimate.
struct reconstruct_row {
    const matrix_row* rows;
    const float *all_p, *all_q;
    float scale, ranks;
    float *x, *residual;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const low_rank_matrix m = rows[b.block()].m;
        const index_t i = rows[b.block()].row, at = m.offset + i * m.cols;
        for (index_t j = b.thread(); j < m.cols; j += b.threads()) {
            float sum = 0;
            for (index_t c = 0; c < m.rank; ++c) sum += all_p[m.p + c * m.rows + i] * all_q[m.q + c * m.cols + j];
            const float estimate = scale * sum;
            residual[at + j] = x[at + j] - estimate;
            x[at + j] = estimate * ranks;
        }
    }
};

/// As cairn::orthonormalise, of the factor P or Q of each matrix.
struct orthonormalise_factor {
    const low_rank_matrix* matrices;
    factor_side side;
    float* all;
    double* room;  // as many values as `all` has

    template <class Block>
    CAIRN_HD static double dot(Block& b, index_t n, const double* u, const double* v) {
        double sum = 0;
        for (index_t i = b.thread(); i < n; i += b.threads()) sum += u[i] * v[i];
        return block_sum(b, sum, b.template shared<double>());
    }

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const low_rank_matrix m = matrices[b.block()];
        const index_t length = length_of(m, side), first = begin_of(m, side);
        double* const rows = room + first;
        // A thread has the same elements of every row, so that only sums are shared.
        for (index_t c = 0; c < m.rank; ++c)
            for (index_t i = b.thread(); i < length; i += b.threads())
                rows[c * length + i] = static_cast<double>(all[first + c * length + i]);
        for (index_t c = 0; c < m.rank; ++c) {
            double* const v = rows + c * length;
            const double before = std::sqrt(dot(b, length, v, v));
            for (int twice = 0; twice < 2; ++twice)
                for (index_t d = 0; d < c; ++d) {
                    const double* const w = rows + d * length;
                    const double along = dot(b, length, v, w);
                    for (index_t i = b.thread(); i < length; i += b.threads()) v[i] -= along * w[i];
                }
            const double after = std::sqrt(dot(b, length, v, v));
            const double factor = after > 1e-6 * before ? 1 / after : 0;
            for (index_t i = b.thread(); i < length; i += b.threads()) v[i] *= factor;
        }
        for (index_t c = 0; c < m.rank; ++c)
            for (index_t i = b.thread(); i < length; i += b.threads())
                all[first + c * length + i] = static_cast<float>(rows[c * length + i]);
    }
};

/// As cairn::draw_zero_rows.
struct draw_zero_row {
    const matrix_row* rows;
    factor_side side;
    random_stream random;
    float* all;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const low_rank_matrix m = rows[b.block()].m;
        const index_t length = length_of(m, side);
        const index_t first = begin_of(m, side) + rows[b.block()].row * length;
        float found = 0;
        for (index_t i = b.thread(); i < length; i += b.threads())
            if (all[first + i] != 0) found = 1;
        if (block_max(b, found, b.template shared<float>()) > 0) return;
        for (index_t i = b.thread(); i < length; i += b.threads())
            all[first + i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(first + i)));
    }
};

/// Values outside of matrices: from the bucket, or back to it.
struct copy_run {
    const dense_run* runs;
    const float* from;
    float* to;
    bool gather;
    float factor, ranks;  // of what goes back

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const dense_run r = runs[b.block()];
        for (index_t i = b.thread(); i < r.count; i += b.threads()) {
            if (gather)
                to[r.at + i] = from[r.offset + i];
            else
                to[r.offset + i] = from[r.at + i] * factor * ranks;
        }
    }
};

/// A block for each of `blocks`.
template <GridDevice D, class Body>
void launch_all(D, index_t blocks, int threads, index_t shared, const Body& body) {
    if (blocks > 0) D::launch({.blocks = blocks, .threads = threads, .shared = shared}, body);
}

}  // namespace grid

template <GridDevice D>
class low_rank_tables<D> {
public:
    explicit low_rank_tables(const low_rank_plan& plan) {
        std::vector<grid::matrix_row> all_rows, all_factor_rows;
        std::vector<grid::matrix_tile> all_tiles, all_strips;
        std::vector<dense_run> all_runs;
        index_t sums = 0;
        for (const low_rank_matrix& m : plan.matrices) {
            products += static_cast<double>(m.rows * m.cols * m.rank);
            bytes += 4.0 * static_cast<double>(m.rows * m.cols);
            for (index_t i = 0; i < m.rows; ++i) all_rows.push_back({m, i});
            for (index_t c = 0; c < m.rank; ++c) all_factor_rows.push_back({m, c});
            const index_t chunks = (m.rows + grid::tile_rows - 1) / grid::tile_rows;
            for (index_t j = 0; j < m.cols; j += grid::tile_columns) {
                all_strips.push_back({m, j, 0, sums});
                for (index_t k = 0; k < chunks; ++k) all_tiles.push_back({m, j, k, sums});
            }
            sums += chunks * m.rank * m.cols;
        }
        constexpr index_t piece = 4096;
        for (const dense_run& d : plan.dense)
            for (index_t at = 0; at < d.count; at += piece)
                all_runs.push_back({d.offset + at, std::min(piece, d.count - at), d.at + at});
        matrices.fill(plan.matrices);
        rows.fill(all_rows);
        factor_rows.fill(all_factor_rows);
        tiles.fill(all_tiles);
        strips.fill(all_strips);
        runs.fill(all_runs);
        partial = tensor<float, D>::zeros({sums}, memory_category::communication);
        room = tensor<double, D>::zeros({std::max(plan.p_size, plan.q_size)}, memory_category::communication);
    }

    grid::device_list<low_rank_matrix, D> matrices;
    grid::device_list<grid::matrix_row, D> rows, factor_rows;
    grid::device_list<grid::matrix_tile, D> tiles, strips;  // strips: the tiles of chunk 0
    grid::device_list<dense_run, D> runs;                   // in pieces
    tensor<float, D> partial;                               // sums of tiles
    tensor<double, D> room;                                 // of orthonormalise
    double products = 0, bytes = 0;                         // of all matrices
};

template <GridDevice D>
bool add_residual(D d, index_t n, const float* g, const float* e, float* x) {
    for_each(d, n, functors::sum{}, x, g, e);
    return true;
}
template <GridDevice D>
void gather_dense(D d, const low_rank_tables<D>& t, const float* x, float* dense) {
    grid::launch_all(d, t.runs.size(), grid::low_rank_threads, 0,
                     grid::copy_run{t.runs.data(), x, dense, true, 1.0f, 1.0f});
}
template <GridDevice D>
void scatter_dense(D d, const low_rank_tables<D>& t, const float* dense, int ranks, float* x) {
    const auto r = static_cast<float>(ranks);
    grid::launch_all(d, t.runs.size(), grid::low_rank_threads, 0,
                     grid::copy_run{t.runs.data(), dense, x, false, 1.0f / r, r});
}
template <GridDevice D>
void draw_zero_rows(D d, const low_rank_tables<D>& t, factor_side side, const random_stream& random, float* factors) {
    grid::launch_all(d, t.factor_rows.size(), grid::low_rank_threads, 16 * sizeof(float),
                     grid::draw_zero_row{t.factor_rows.data(), side, random, factors});
}
template <GridDevice D>
void orthonormalise(D d, low_rank_tables<D>& t, factor_side side, float* factors) {
    grid::launch_all(d, t.matrices.size(), grid::tile_threads, 16 * sizeof(double),
                     grid::orthonormalise_factor{t.matrices.data(), side, factors, t.room.data()});
}
template <GridDevice D>
void project(D d, const low_rank_tables<D>& t, const float* x, const float* q, float* p) {
    flop_counter::count(2.0 * t.products, t.bytes);
    grid::launch_all(d, t.rows.size(), grid::low_rank_threads, 16 * sizeof(float),
                     grid::project_row{t.rows.data(), x, q, p});
}
template <GridDevice D>
void back_project(D d, low_rank_tables<D>& t, const float* x, const float* p, float* q) {
    flop_counter::count(2.0 * t.products, t.bytes);
    grid::launch_all(d, t.tiles.size(), grid::tile_threads,
                     grid::tile_threads / warp_threads * grid::tile_columns * static_cast<index_t>(sizeof(float)),
                     grid::back_project_tile{t.tiles.data(), x, p, t.partial.data()});
    grid::launch_all(d, t.strips.size(), grid::low_rank_threads, 0,
                     grid::sum_tiles{t.strips.data(), t.partial.data(), q});
}
template <GridDevice D>
void reconstruct(D d, const low_rank_tables<D>& t, const float* p, const float* q, int ranks, float* x,
                 float* residual) {
    flop_counter::count(2.0 * t.products, 3 * t.bytes);
    const auto r = static_cast<float>(ranks);
    grid::launch_all(d, t.rows.size(), grid::low_rank_threads, 0,
                     grid::reconstruct_row{t.rows.data(), p, q, 1.0f / r, r, x, residual});
}

}  // namespace cairn
