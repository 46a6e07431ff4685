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
// Rows and factors are on device D; on another one than the host, device/grid/curvature.hpp has the kernels.
// Tested against plain loops in tests/optim/kfac_test.cpp.

#include <cairn/core/finite.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/im2col.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/symmetric.hpp>
#include <cairn/device/curvature_samples.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn {

enum class weight_sharing { expand, reduce };

/// Which rows statistics are made of: one of every `examples` samples, and of those one of every `positions` positions, from `offset` on.
struct sample_strides {
    index_t examples = 1, positions = 1;
    index_t offset = 0;

    bool is_all() const { return examples == 1 && positions == 1; }
};

namespace detail {

template <class T>
void add_outer_products_on_host(index_t count, index_t width, const T* rows, index_t stride, tensor<T>& sum, T weight) {
    const index_t n = sum.extent(0);
    const bool diagonal = sum.rank() == 1;
    if (diagonal) {
        for (index_t r = 0; r < count; ++r)
            for (index_t c = 0; c < width; ++c) sum[c] += weight * rows[r * stride + c] * rows[r * stride + c];
    } else {
        add_symmetric_product(cpu{}, count, width, weight, rows, stride, sum.data(), n);
    }
    if (n == width) return;
    sum[sum.size() - 1] += weight * static_cast<T>(count);
    if (diagonal) return;
    tensor<T> columns = tensor<T>::zeros({width}, memory_category::workspace);
    if (stride == width) {
        column_sums(cpu{}, count, width, rows, columns.data(), false);
    } else {
        for (index_t r = 0; r < count; ++r)
            for (index_t c = 0; c < width; ++c) columns[c] += rows[r * stride + c];
    }
    for (index_t c = 0; c < width; ++c) {
        sum[c * n + width] += weight * columns[c];
        sum[width * n + c] += weight * columns[c];
    }
}

}  // namespace detail

/// weight · Σ rowsᵀ rows, added to `sum`: all of it (n, n), or its diagonal (n). With n = width + 1 the rows end in a
/// 1.
/// rows (count, stride ≥ width).
template <class S, class T, Device D>
void add_outer_products(index_t count, index_t width, const S* rows, index_t stride, tensor<T, D>& sum,
                        T weight = T{1}) {
    const index_t n = sum.extent(0);
    const bool diagonal = sum.rank() == 1;
    if constexpr (!std::same_as<D, cpu>) {
        if (diagonal)
            add_column_squares(D{}, count, width, weight, rows, stride, sum.data());
        else
            add_symmetric_product(D{}, count, width, weight, rows, stride, sum.data(), n);
        if (n > width) add_border(D{}, count, n, weight, rows, stride, diagonal, sum.data());
    } else {
        detail::add_outer_products_on_host(count, width, rows, stride, sum, weight);
    }
}

namespace detail {

/// Of 0 … n-1 one in every stride, from `offset` on; at least one.
inline strided_indices picks(index_t n, index_t every, index_t offset) {
    const index_t first = std::min(offset % every, n - 1);
    return {first, every, (n - 1 - first) / every + 1};
}

/// Copies `width` numbers of each of some rows, which are `stride` apart; a copy for add_copied_rows.
template <class T>
auto copy_strided(const T* data, index_t width, index_t stride, index_t positions) {
    return [=](index_t example, index_t first, index_t count, T* to) {
        for (index_t i = 0; i < count; ++i)
            std::copy_n(data + (example * positions + first + i) * stride, width, to + i * width);
    };
}

/// Numbers that the host copies at a time, a few megabytes: GEMM is fast. Tests make it small.
inline index_t most_gathered = index_t{1} << 20;

/// Rows that must be copied together first: of chosen samples and positions, or joined over the positions, times
/// `scale`.
/// copy(example, first position, count, to). Their products count `weight` times.
template <class T, class Copy>
void add_copied_rows(index_t examples, index_t positions, index_t width, Copy&& copy, bool join, double scale,
                     const sample_strides& sample, tensor<T>& sum, T weight = T{1}) {
    const strided_indices chosen = picks(examples, sample.examples, sample.offset),
                          at = picks(positions, join ? 1 : sample.positions, sample.offset);
    const index_t count = chosen.count * at.count, block = std::clamp<index_t>(most_gathered / width, 1, count);
    tensor<T> rows({block, width}, memory_category::workspace);
    tensor<T> joined;  // (chosen examples, width)
    if (join) joined = tensor<T>::zeros({chosen.count, width}, memory_category::workspace);
    for (index_t begin = 0; begin < count; begin += block) {
        const index_t here = std::min(block, count - begin);
        parallel_for(here, std::max<index_t>(1, 16384 / width), [&](index_t first, index_t last) {
            for (index_t r = first, run = 1; r < last; r += run) {
                const index_t example = (begin + r) / at.count, i = (begin + r) % at.count;
                if (at.step == 1) run = std::min(last - r, at.count - i);
                copy(chosen[example], at[i], run, rows.data() + r * width);
            }
        });
        if (!join) {
            add_outer_products(here, width, rows.data(), width, sum, weight);
            continue;
        }
        // A column is one thread's: its rows are added in order, however they are cut.
        parallel_for(width, std::max<index_t>(16, 16384 / here), [&](index_t first, index_t last) {
            for (index_t r = 0; r < here; ++r) {
                T* const to = joined.data() + (begin + r) / at.count * width;
                for (index_t c = first; c < last; ++c) to[c] += rows[r * width + c];
            }
        });
    }
    if (!join) return;
    for (T& v : joined.span()) v *= static_cast<T>(scale);
    add_outer_products(chosen.count, width, joined.data(), width, sum, weight);
}

/// Numbers that a device copies at a time. Tests make it small.
inline index_t most_copied = index_t{1} << 26;

/// The same on a device, in which one launch copies a block of rows: as U, which the products take.
template <class U, class S, class T, Device D>
void add_chosen_rows_as(const strided_samples<S>& rows, tensor<T, D>& sum, T weight) {
    const index_t count = rows.examples.count * rows.rows_each();
    const index_t block = std::clamp<index_t>(most_copied / rows.width, 1, count);
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
    if constexpr (std::same_as<D, cpu>)
        add_copied_rows(examples, positions, width, copy_strided(data, width, stride, positions), join, scale, sample,
                        sum, weight);
    else
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

/// Counts (entries) of chosen ids.
template <class T>
void count_lookups(cpu, const strided_indices& examples, const strided_indices& at, index_t positions,
                   const std::int32_t* ids, index_t /*entries*/, T* counts) {
    for (index_t e = 0; e < examples.count; ++e)
        for (index_t t = 0; t < at.count; ++t) counts[ids[examples[e] * positions + at[t]]] += T{1};
}

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
    } else if constexpr (std::same_as<D, cpu>) {
        const auto patches = [&](index_t e, index_t t, index_t count, T* to) {
            im2col::gather(g, x, e * positions + t, e * positions + t + count, to);
        };
        detail::add_copied_rows(examples, positions, rows.in, patches, join, mean, sample, *inputs);
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

    /// Takes scale · batch into the average, with decay ρ, and empties the batch. From the identity on and with the
    /// weight 1 − ρ, if `from_identity`. A batch that is not finite is dropped: returns false.
    bool update(double scale, double decay, bool from_identity = false) {
        const bool good = count_nonfinite(D{}, batch().size(), batch().data()) == 0;
        if (good) {
            if (from_identity && batches_ == 0) add_to_diagonal(D{}, size(), step(), T{1}, average().data());
            ++batches_;
            const double weight = from_identity
                                      ? 1 / (1 - decay)
                                      : (1 - std::pow(decay, static_cast<double>(batches_))) / (1 - decay);  // Σ ρ^age
            const T part = static_cast<T>(1 / weight), of_batch = static_cast<T>(scale / weight);
            for_each(functors::move_mean<T>{part, of_batch}, average(), batch());
        }
        clear_batch();
        return good;
    }

    /// Mean of the diagonal.
    double mean_diagonal() const {
        if (average_.empty()) return 0;
        return diagonal_sum(D{}, size(), step(), average_.data()) / static_cast<double>(size());
    }

private:
    index_t step() const { return is_diagonal() ? 1 : size() + 1; }  // from one number of the diagonal to the next

    cairn::shape shape_{0};
    tensor<T, D> batch_, average_;
    std::int64_t batches_ = 0;
};

}  // namespace cairn
