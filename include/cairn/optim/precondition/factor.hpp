#pragma once
// The two Kronecker factors of a layer's curvature (Martens and Grosse 2015; convolution: Grosse and Martens 2016):
//   A = E[ā āᵀ]   ā: a row of the layer's input, with a 1 appended where there is a bias
//   G = E[g gᵀ]   g: a row of the gradient of one example's loss with respect to the layer's output
// Expectations are means over the N examples and S positions of a batch; the curvature block is S · (A ⊗ G). Of a mean loss over N
// examples backward gives dy = g / N, so G = N²/(N S) Σ dy dyᵀ.
//
// Running average without start-up bias:  w ← ρ w + 1,  F ← F + (F_batch − F) / w.
// Tested against plain loops in tests/optim/kfac_test.cpp.

#include <cairn/core/finite.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/im2col.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/layer_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn {

/// Σ rowsᵀ rows, added to `sum` (n, n), of which the first `width` rows and columns are these; with n = width + 1 the rows end in a 1.
/// rows (count, stride ≥ width).
template <class T>
void add_outer_products(index count, index width, const T* rows, index stride, tensor<T>& sum) {
    const index n = sum.extent(0);
    gemm(cpu{}, true, false, width, width, count, T{1}, rows, stride, rows, stride, T{1}, sum.data(), n);
    if (n == width) return;
    tensor<T> columns = tensor<T>::zeros({width}, category::workspace);
    if (stride == width) {
        column_sums(cpu{}, count, width, rows, columns.data(), false);
    } else {
        for (index r = 0; r < count; ++r)
            for (index c = 0; c < width; ++c) columns[c] += rows[r * stride + c];
    }
    for (index c = 0; c < width; ++c) {
        sum[c * n + width] += columns[c];
        sum[width * n + c] += columns[c];
    }
    sum[n * n - 1] += static_cast<T>(count);
}

/// Adds a layer's rows of group `group` to the sums of ā āᵀ and of dy dyᵀ.
template <class T>
void add_rows_of_layer(const layer_rows<T>& rows, index group, tensor<T>& inputs, tensor<T>& outputs) {
    const index count = rows.examples * rows.positions;
    if (!rows.is_conv) {
        add_outer_products(count, rows.in, rows.x, rows.in, inputs);
        add_outer_products(count, rows.out, rows.dy, rows.out, outputs);
        return;
    }
    const conv_geometry& g = rows.conv;
    add_outer_products(count, rows.out, rows.dy + group * rows.out, g.c_out, outputs);
    const T* const x = rows.x + group * (g.c_in / g.groups);
    if (im2col::is_pointwise(g)) {
        add_outer_products(count, rows.in, x, g.c_in, inputs);
        return;
    }
    // Patches by blocks of a few megabytes: long enough for GEMM to be fast.
    const index block = std::clamp<index>((index{1} << 20) / rows.in, 1, count);
    tensor<T> patches({block, rows.in}, category::workspace);
    for (index begin = 0; begin < count; begin += block) {
        const index here = std::min(block, count - begin);
        parallel_for(here, std::max<index>(1, 16384 / rows.in), [&](index first, index last) {
            im2col::gather(g, x, begin + first, begin + last, patches.data() + first * rows.in);
        });
        add_outer_products(here, rows.in, patches.data(), rows.in, inputs);
    }
}

/// A factor: the sum of the batch at hand, and the running average of the batches before.
template <class T>
class running_factor {
public:
    running_factor() = default;
    explicit running_factor(index n)
        : batch_(tensor<T>::zeros({n, n}, category::optimizer)),
          average_(tensor<T>::zeros({n, n}, category::optimizer)) {}

    index size() const { return average_.extent(0); }
    tensor<T>& batch() { return batch_; }
    /// (n, n), symmetric.
    const tensor<T>& average() const { return average_; }
    tensor<T>& average() { return average_; }
    /// In the average so far. A reference, so that a saved state can set it.
    std::int64_t& batches() { return batches_; }
    std::int64_t batches() const { return batches_; }

    /// Takes scale · batch into the average, with decay ρ, and empties the batch. A batch that is not finite is dropped: returns false.
    bool update(double scale, double decay) {
        const bool good = !first_non_finite(batch_);
        if (good) {
            ++batches_;
            const double weight = (1 - std::pow(decay, static_cast<double>(batches_))) / (1 - decay);  // Σ ρ^age
            const T part = static_cast<T>(1 / weight), of_batch = static_cast<T>(scale / weight);
            for_each([=](T& mean, T& sum) { mean += of_batch * sum - part * mean; }, average_, batch_);
        }
        clear_batch();
        return good;
    }
    void clear_batch() {
        for_each([](T& sum) { sum = T{}; }, batch_);
    }

    /// Mean of the diagonal.
    double mean_diagonal() const {
        double sum = 0;
        for (index i = 0; i < size(); ++i) sum += static_cast<double>(average_[i * size() + i]);
        return size() ? sum / static_cast<double>(size()) : 0;
    }

private:
    tensor<T> batch_, average_;
    std::int64_t batches_ = 0;
};

}  // namespace cairn
