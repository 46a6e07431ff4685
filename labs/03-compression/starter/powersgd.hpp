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
    (void)count, (void)length, (void)rows;
    throw std::logic_error("task 3: orthonormalise is not written yet");
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
        (void)c, (void)m, (void)mean;
        throw std::logic_error("task 3: powersgd::reduce is not written yet");
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
