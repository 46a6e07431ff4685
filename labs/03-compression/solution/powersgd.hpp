#pragma once
// Lab 3, task 3: a matrix as the product of two thin ones, by one power iteration a step.
//
// Both factors lie transposed, so that each of their r vectors is a piece of memory: P is r rows of length `rows`, Q is
// r rows of length `cols`.
// In the formulas, P_c and Q_c are row number c of them, M is the matrix of this rank, row-major:
//   P_c = M Q_c               then P is summed over the ranks, and its rows are made orthonormal
//   Q_c = Mᵀ P_c              then Q is summed over the ranks
//   M̂ = 1/p Σ_c P_c Q_cᵀ      about the mean of M over the p ranks
// Q is kept: the next step starts from it.

#include <cairn/comm/collectives/ring.hpp>
#include <cairn/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// Makes `count` rows of `length` values orthonormal, the first one first: from each, its parts along those before it
/// are taken away one after another (modified Gram–Schmidt), then it is divided by its length. All of it in double,
/// stored in float once every row is done. Where at most 10⁻⁶ of a row's length is left, it depended on those before
/// it, or was zero: it becomes zero.
inline void orthonormalise(std::size_t count, std::size_t length, std::span<float> rows) {
    //! solution
    std::vector<double> all(rows.begin(), rows.end());
    const auto dot = [&](std::size_t a, std::size_t b) {
        double sum = 0;
        for (std::size_t i = 0; i < length; ++i) sum += all[a * length + i] * all[b * length + i];
        return sum;
    };
    for (std::size_t c = 0; c < count; ++c) {
        const double before = std::sqrt(dot(c, c));
        for (std::size_t d = 0; d < c; ++d) {
            const double along = dot(c, d);
            for (std::size_t i = 0; i < length; ++i) all[c * length + i] -= along * all[d * length + i];
        }
        const double after = std::sqrt(dot(c, c));
        const double factor = after > 1e-6 * before ? 1 / after : 0;
        for (std::size_t i = 0; i < length; ++i) all[c * length + i] *= factor;
    }
    std::copy(all.begin(), all.end(), rows.begin());
    //! starter
    // (void)count, (void)length, (void)rows;
    // throw std::logic_error("task 3: orthonormalise is not written yet");
    //! end
}

class powersgd {
public:
    /// For matrices of rows × cols. All ranks give the same seed. More than min(rows, cols) vectors would be of no use.
    powersgd(std::size_t rows, std::size_t cols, std::size_t rank, std::uint64_t seed)
        : rows_(rows),
          cols_(cols),
          rank_(std::min({rank, rows, cols})),
          seed_(seed),
          p_(rank_ * rows),
          q_(rank_ * cols) {}

    /// mean ≈ the mean of the matrices m of all ranks, the same bits on each; m and mean do not overlap.
    template <class C>
    void reduce(C& c, std::span<const float> m, std::span<float> mean) {
        //! solution
        draw_zero_rows();
        for (std::size_t k = 0; k < rank_; ++k)
            for (std::size_t i = 0; i < rows_; ++i) {
                double sum = 0;
                for (std::size_t j = 0; j < cols_; ++j)
                    sum += static_cast<double>(m[i * cols_ + j]) * static_cast<double>(q_[k * cols_ + j]);
                p_[k * rows_ + i] = static_cast<float>(sum);
            }
        cairn::ring_all_reduce(c, std::span<float>(p_));
        orthonormalise(rank_, rows_, p_);
        std::vector<double> column(cols_);
        for (std::size_t k = 0; k < rank_; ++k) {
            std::fill(column.begin(), column.end(), 0.0);
            for (std::size_t i = 0; i < rows_; ++i)
                for (std::size_t j = 0; j < cols_; ++j)
                    column[j] += static_cast<double>(m[i * cols_ + j]) * static_cast<double>(p_[k * rows_ + i]);
            std::copy(column.begin(), column.end(), q_.begin() + static_cast<std::ptrdiff_t>(k * cols_));
        }
        cairn::ring_all_reduce(c, std::span<float>(q_));
        const double scale = 1.0 / c.size();
        for (std::size_t i = 0; i < rows_; ++i)
            for (std::size_t j = 0; j < cols_; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < rank_; ++k)
                    sum += static_cast<double>(p_[k * rows_ + i]) * static_cast<double>(q_[k * cols_ + j]);
                mean[i * cols_ + j] = static_cast<float>(scale * sum);
            }
        //! starter
        // (void)c, (void)m, (void)mean;
        // throw std::logic_error("task 3: powersgd::reduce is not written yet");
        //! end
    }

private:
    /// Draws the rows of Q that are zero: all of them before the first step, later those that became zero because the
    /// matrix had a lower rank.
    /// The same numbers on all ranks. Given; call it at the start of a step.
    void draw_zero_rows() {
        const cairn::random_stream random{seed_, cairn::stream_of("powersgd"), step_++};
        for (std::size_t c = 0; c < rank_; ++c) {
            const std::span<float> row = std::span<float>(q_).subspan(c * cols_, cols_);
            if (std::any_of(row.begin(), row.end(), [](float v) { return v != 0; })) continue;
            for (std::size_t j = 0; j < cols_; ++j) row[j] = static_cast<float>(random.normal(c * cols_ + j));
        }
    }

    std::size_t rows_, cols_, rank_;
    std::uint64_t seed_;
    std::uint32_t step_ = 0;
    std::vector<float> p_, q_;  // (rank, rows), (rank, cols)
};

}  // namespace student
