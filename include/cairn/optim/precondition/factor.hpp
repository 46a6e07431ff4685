#pragma once
// The two Kronecker factors of a layer's curvature (Martens and Grosse 2015; convolution: Grosse and Martens 2016):
//   A = E[ā āᵀ]   ā: a row of the layer's input, with a 1 appended where there is a bias
//   G = E[g gᵀ]   g: a row of the gradient of one example's loss with respect to the layer's output
// Expectations are means over the N examples and S positions of a batch; the curvature block is S · (A ⊗ G). Of a mean
// loss over N examples backward gives dy = g / N, so G = N²/(N S) Σ dy dyᵀ.
//
// Where one weight is used at several positions of an example (Eschenhagen et al. 2023):
//   expand   each position is a row of its own, as above                                      S · (A ⊗ G)
//   reduce   rows are joined first: ā = mean over positions, g = sum over positions           A ⊗ G
// A convolution's A is large, kernel points · channels. Taking its kernel's points as uncorrelated and alike, A = I ⊗
// E[x xᵀ], x the channels of one point of the input.
// A lookup's A is diagonal: how often each entry is used. So is that of a factor that is too large: the rest is left
// out.
//
// Running average without start-up bias:  w ← ρ w + 1,  F ← F + (F_batch − F) / w.
//
// Rows and factors are on device D, whose kernels are those of device/cpu/curvature.hpp or device/grid/curvature.hpp.
// Tested against plain loops in tests/optim/kfac_test.cpp.

#include <cairn/core/finite.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/curvature.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn {

enum class weight_sharing { expand, reduce };

/// Which rows statistics are made of: one of every `examples` samples, and of those one of every `positions` positions,
/// from `offset` on.
struct sample_strides {
    index_t examples = 1, positions = 1;
    index_t offset = 0;

    bool is_all() const { return examples == 1 && positions == 1; }
};

/// weight · Σ rowsᵀ rows, added to `sum`: all of it (n, n), or its diagonal (n). With n = width + 1 the rows end in a
/// 1.
/// rows (count, stride ≥ width).
template <class S, class T, Device D>
void add_outer_products(index_t count, index_t width, const S* rows, index_t stride, tensor<T, D>& sum,
                        T weight = T{1}) {
    const index_t n = sum.extent(0);
    const bool diagonal = sum.rank() == 1;
    if (diagonal)
        add_column_squares(D{}, count, width, weight, rows, stride, sum.data());
    else
        add_symmetric_product(D{}, count, width, weight, rows, stride, sum.data(), n);
    if (n > width) add_border(D{}, count, n, weight, rows, stride, diagonal, sum.data());
}

namespace detail {

/// Of 0 … n-1 one in every stride, from `offset` on; at least one.
inline strided_indices picks(index_t n, index_t every, index_t offset) {
    const index_t first = std::min(offset % every, n - 1);
    return {first, every, (n - 1 - first) / every + 1};
}

/// Products of rows that must be copied together first, as U, a block of rows at a time; joined ones, of which there
/// are few, at once.
template <class U, class S, class T, Device D>
void add_chosen_rows_as(const strided_samples<S>& rows, tensor<T, D>& sum, T weight) {
    const index_t count = rows.examples.count * rows.rows_each();
    const index_t block = rows.join ? count : std::clamp<index_t>(numbers_gathered(D{}) / rows.width, 1, count);
    tensor<U, D> copied({block, rows.width}, memory_category::workspace);
    for (index_t begin = 0; begin < count; begin += block) {
        const index_t here = std::min(block, count - begin);
        gather_rows(D{}, rows, begin, here, copied.data());
        add_outer_products(here, rows.width, copied.data(), rows.width, sum, weight);
    }
}
template <class S, class T, Device D>
void add_chosen_rows(const strided_samples<S>& rows, tensor<T, D>& sum, T weight = T{1}) {
    if (rows.join)
        add_chosen_rows_as<T>(rows, sum, weight);  // sums have more digits than rows
    else
        add_chosen_rows_as<S>(rows, sum, weight);
}

/// Rows (examples · positions, stride) that lie in memory, of which `width` numbers count.
template <class S, class T, Device D>
void add_rows_in_memory(index_t examples, index_t positions, const S* data, index_t width, index_t stride, bool join,
                        double scale, const sample_strides& sample, tensor<T, D>& sum, T weight = T{1}) {
    if (!join && sample.is_all()) return add_outer_products(examples * positions, width, data, stride, sum, weight);
    add_chosen_rows(strided_samples<S>{.x = data,
                                       .width = width,
                                       .stride = stride,
                                       .positions = positions,
                                       .examples = picks(examples, sample.examples, sample.offset),
                                       .at = picks(positions, join ? 1 : sample.positions, sample.offset),
                                       .join = join,
                                       .scale = scale},
                    sum, weight);
}

}  // namespace detail

/// How many rows of a layer a sample takes.
template <class T>
index_t rows_taken(const curvature_samples<T>& rows, weight_sharing sharing, const sample_strides& sample) {
    if (rows.examples * rows.positions == 0) return 0;
    const bool join = sharing == weight_sharing::reduce && rows.positions > 1;
    return detail::picks(rows.examples, sample.examples, sample.offset).count *
           (join ? 1 : detail::picks(rows.positions, sample.positions, sample.offset).count);
}

/// Adds a convolution's input points of group `group` to the sum of x xᵀ (channels, channels): the factor of each of
/// its kernel's points where these are taken as uncorrelated (Grosse and Martens 2016, section 4.2). Their mean counts
/// as many rows as the output has.
template <class S, class T, Device D>
void add_points_of_layer(const curvature_samples<S>& rows, index_t group, tensor<T, D>& sum,
                         const sample_strides& sample = {}) {
    const conv_geometry& g = rows.conv;
    const index_t width = g.c_in / g.groups, points = g.in_points();
    curvature_samples<S> inputs = rows;
    inputs.positions = points;
    const index_t counted = rows_taken(rows, {}, sample), taken = rows_taken(inputs, {}, sample);
    if (counted == 0 || taken == 0) return;
    const T weight = static_cast<T>(static_cast<double>(counted) / static_cast<double>(taken));
    detail::add_rows_in_memory(rows.examples, points, rows.x + group * width, width, g.c_in, false, 1, sample, sum,
                               weight);
}

/// Adds a layer's rows of group `group`, as many as rows_taken says, to the sums of ā āᵀ and of dy dyᵀ; either may be
/// null.
template <class S, class T, Device D>
void add_rows_of_layer(const curvature_samples<S>& rows, index_t group, tensor<T, D>* inputs, tensor<T, D>* outputs,
                       weight_sharing sharing = weight_sharing::expand, const sample_strides& sample = {}) {
    const index_t examples = rows.examples, positions = rows.positions;
    if (examples * positions == 0) return;
    const bool join = sharing == weight_sharing::reduce && positions > 1;
    const auto add = [&](const S* data, index_t width, index_t stride, double scale, tensor<T, D>* sum) {
        if (sum) detail::add_rows_in_memory(examples, positions, data, width, stride, join, scale, sample, *sum);
    };
    const bool conv = rows.kind == rows_kind::convolution;
    const conv_geometry& g = rows.conv;
    if (outputs) add(rows.dy + (conv ? group * rows.out : 0), rows.out, conv ? g.c_out : rows.out, 1, outputs);
    if (!inputs) return;
    const double mean = 1 / static_cast<double>(positions);
    const S* const x = rows.x + (conv ? group * (g.c_in / g.groups) : 0);
    const strided_indices chosen = detail::picks(examples, sample.examples, sample.offset),
                          at = detail::picks(positions, join ? 1 : sample.positions, sample.offset);
    if (rows.kind == rows_kind::lookup) {
        count_lookups(D{}, chosen, at, positions, rows.ids, rows.in, inputs->data());
    } else if (!conv || im2col::is_pointwise(g)) {
        add(x, rows.in, conv ? g.c_in : rows.in, mean, inputs);
    } else {
        detail::add_chosen_rows(strided_samples<S>{.x = x,
                                                   .width = rows.in,
                                                   .patches = true,
                                                   .conv = g,
                                                   .positions = positions,
                                                   .examples = chosen,
                                                   .at = at,
                                                   .join = join,
                                                   .scale = mean},
                                *inputs);
    }
}

/// A factor: the sum of the batch at hand, and the running average of the batches before. Both take memory once they
/// are needed.
template <class T, Device D = cpu>
class running_factor {
public:
    running_factor() = default;
    explicit running_factor(index_t n, bool diagonal = false) : shape_(diagonal ? shape{n} : shape{n, n}) {}

    /// (n, n), symmetric, or the diagonal (n).
    const cairn::shape& extents() const { return shape_; }
    index_t size() const { return shape_[0]; }
    bool is_diagonal() const { return shape_.rank() == 1; }

    /// Σ rowsᵀ rows of the batch at hand.
    tensor<T, D>& batch() {
        if (batch_.empty()) batch_ = tensor<T, D>::zeros(shape_, memory_category::workspace);
        return batch_;
    }
    bool has_batch() const { return !batch_.empty(); }
    void clear_batch() { batch_.reset(); }

    const tensor<T, D>& average() const { return average_; }
    tensor<T, D>& average() {
        if (average_.empty()) average_ = tensor<T, D>::zeros(shape_, memory_category::optimizer);
        return average_;
    }
    bool has_average() const { return !average_.empty(); }
    void release_average() { average_.reset(); }
    /// In the average so far. A reference, so that a saved state can set it.
    std::int64_t& batches() { return batches_; }
    std::int64_t batches() const { return batches_; }

    /// How many numbers of the batch are not finite, into *out (device memory).
    void nonfinite_into(double* out) { count_nonfinite_into(D{}, batch().size(), batch().data(), out); }
    /// Takes scale · batch, which is finite, into the average, with decay ρ, and empties the batch. From the identity
    /// on and with the weight 1 − ρ, if `from_identity`.
    void update(double scale, double decay, bool from_identity = false) {
        if (from_identity && batches_ == 0) add_to_diagonal(D{}, size(), step(), T{1}, average().data());
        ++batches_;
        const double weight = from_identity
                                  ? 1 / (1 - decay)
                                  : (1 - std::pow(decay, static_cast<double>(batches_))) / (1 - decay);  // Σ ρ^age
        const T part = static_cast<T>(1 / weight), of_batch = static_cast<T>(scale / weight);
        for_each(functors::move_mean<T>{part, of_batch}, average(), batch());
        clear_batch();
    }

    /// Sum of the average's diagonal, into *out (device memory); where there is no average, *out stays.
    void trace_into(double* out) const {
        if (!average_.empty()) diagonal_sum_into(D{}, size(), step(), average_.data(), out);
    }

private:
    index_t step() const { return is_diagonal() ? 1 : size() + 1; }  // from one number of the diagonal to the next

    cairn::shape shape_{0};
    tensor<T, D> batch_, average_;
    std::int64_t batches_ = 0;
};

}  // namespace cairn
