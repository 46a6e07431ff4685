#pragma once
// K-FAC's statistics: layers that announce themselves become blocks, their rows the batch's sums, and those the running
// averages of A and G.

#include <cairn/core/trace.hpp>
#include <cairn/optim/precondition/kfac_state.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace cairn {

template <class T, Device D>
class kfac_factors {
public:
    using block = kfac_layer<T, D>;
    explicit kfac_factors(kfac_state<T, D>& s) : s_(s) {}

    /// Number of the layer's block, which is made where the layer is new. Blocks are in the order of backward: those
    /// that forward makes go to the front.
    template <class S>
    std::size_t block_of(const curvature_samples<S>& rows) {
        for (std::size_t i = 0; i < s_.blocks.size(); ++i)
            if (s_.blocks[i].weight->id == rows.weight) return i;
        parameter<T, D>* const weight = s_.parameters[static_cast<std::size_t>(rows.weight)];
        require(!s_.started, "kfac: layer ", weight->name,
                " was not there in the first step; every layer must be used in it, on every rank");
        block b{.name = weight->name, .weight = weight};
        if (rows.bias >= 0) b.bias = s_.parameters[static_cast<std::size_t>(rows.bias)];
        b.lookup = rows.kind == rows_kind::lookup;
        b.transposed = b.lookup || rows.transposed;
        b.patches = rows.kind == rows_kind::convolution;
        b.diagonal = rows.kind == rows_kind::norm;
        const bool has_points = b.patches && rows.conv.kernel_points() > 1,
                   too_large = has_points && rows.in + (b.bias ? 1 : 0) > s_.config.max_size &&
                               s_.config.sharing == weight_sharing::expand;
        if (too_large && s_.config.spatial == kfac_spatial::full)
            s_.diagnostics.push_back(concat("the points of the kernel of ", b.name, ", whose factor of ", rows.in,
                                            " is larger than kfac.max_size = ", s_.config.max_size,
                                            ", are taken as uncorrelated"));
        if (too_large || (has_points && s_.config.spatial == kfac_spatial::uncorrelated)) {
            b.taps = rows.conv.kernel_points();
            b.bias = nullptr;  // keeps its gradient
        }
        if (s_.config.length == direction_length::unit) {  // here, since recorded updates ask before the first step
            weight->unit_gradient = true;
            if (b.bias) b.bias->unit_gradient = true;
        }
        b.in = b.diagonal ? 2 * rows.in : rows.in + (b.bias ? 1 : 0);
        b.out = b.diagonal ? 1 : rows.out;
        const index_t a_size = b.in / b.taps;
        if (!b.diagonal && std::max(b.lookup ? 0 : a_size, b.out) > s_.config.max_size)
            s_.diagnostics.push_back(concat("the curvature of ", b.name, ", ", b.out, " x ", a_size,
                                            ", has a factor larger than kfac.max_size = ", s_.config.max_size,
                                            ": of that only the diagonal is used"));
        const index_t groups = b.diagonal || b.transposed ? 1 : weight->shape[0] / b.out;
        for (index_t q = 0; q < groups; ++q) {
            b.a.push_back(
                {running_factor<T, D>(a_size, b.diagonal || b.lookup || a_size > s_.config.max_size), {}, {}});
            if (!b.diagonal) b.g.push_back({running_factor<T, D>(b.out, b.out > s_.config.max_size), {}, {}});
        }
        const std::size_t at = rows.in_backward ? s_.blocks.size() : 0;
        s_.blocks.insert(s_.blocks.begin() + static_cast<std::ptrdiff_t>(at), std::move(b));
        return at;
    }

    /// Adds the rows of a layer to the sums of the batch at hand.
    template <class S>
    void add_rows(std::size_t at, const curvature_samples<S>& rows) {
        block& b = s_.blocks[at];
        const bool alone = !s_.started;  // in a first step without discovery, every rank looks at everything
        const bool observes_a = alone || s_.roles->observes(at, 'a'),
                   observes_g = !b.diagonal && (alone || s_.roles->observes(at, 'g'));
        if (!observes_a && !observes_g) return;
        if (b.diagonal) return add_scale_shift(b, rows);
        const bool a = observes_a && !rows.in_backward, g = observes_g && rows.in_backward;
        const sample_strides sample = sample_of(b, rows.positions);
        const bool first = a && !b.a[0].statistics.has_batch();
        for (std::size_t q = 0; q < b.a.size(); ++q)
            add_products(b, rows, static_cast<index_t>(q), a ? &b.a[q].statistics.batch() : nullptr,
                         g ? &b.g[q].statistics.batch() : nullptr, sample);
        if (rows.in_backward) b.rows += rows_taken(rows, s_.sharing_of(b), sample);
        if (first && !sample.is_all() && s_.steps == 0) note_sampling_error(b, rows, sample);
    }

    /// Sums of all ranks enter the averages.
    void update(double examples) {
        s_.roles->finish_sums(s_.blocks);
        examples_ = static_cast<std::int64_t>(examples);
        const trace_scope scope("average", "", "kfac");
        const bool theirs = s_.config.scaling == kfac_scaling::kfac_pytorch;
        const std::vector<double> broken =
            s_.of_each_factor([&](std::size_t i, kfac_factor<T, D>& f, char side, double* out) {
                if (s_.blocks[i].rows > 0 && s_.roles->averages(i, side)) f.statistics.nonfinite_into(out);
            });
        std::size_t at = 0;
        for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
            block& b = s_.blocks[i];
            const double rows = static_cast<double>(b.rows);
            const double spatial =
                theirs && b.patches ? 1.0 / (static_cast<double>(b.positions) * static_cast<double>(b.positions)) : 1;
            b.each_factor([&](kfac_factor<T, D>& f, char side) {
                const bool finite = broken[at++] == 0;
                if (b.rows == 0) return;  // not used in this step
                if (!finite) ++rejected_;
                if (!finite || !s_.roles->averages(i, side)) return f.statistics.clear_batch();
                const bool of_gradients = side == 'g' || b.diagonal;
                const double of_one = (theirs ? 1 : examples) / gradient_scale_;
                const double scale = (of_gradients ? of_one * of_one : 1) / rows * spatial;
                f.statistics.update(scale, s_.config.factor_decay, theirs);
            });
            b.rows = 0;
        }
    }

    void scaled_by(double scale) { gradient_scale_ = scale; }
    /// Batches that were dropped because they were not finite.
    std::int64_t& rejected() { return rejected_; }
    std::int64_t rejected() const { return rejected_; }
    double sampling_error() const { return sampling_error_; }
    /// Of all ranks, in the last batch of statistics.
    std::int64_t& examples() { return examples_; }

private:
    // The same on all ranks and for all micro-batches, however large their parts of the batch are.
    sample_strides sample_of(const block& b, index_t positions) const {
        sample_strides sample = s_.config.sample;
        sample.offset = s_.steps / s_.config.factor_update_interval;
        sample.positions = position_stride(s_.config, examples_, positions, std::max(b.in / b.taps, b.out));
        return sample;
    }

    template <class S>
    void add_scale_shift(block& b, const curvature_samples<S>& rows) {
        tensor<T, D>& sum = b.a[0].statistics.batch();
        add_column_squares(D{}, rows.examples, rows.in, T{1}, rows.x, rows.in, sum.data());
        add_column_squares(D{}, rows.examples, rows.in, T{1}, rows.dy, rows.in, sum.data() + rows.in);
        b.rows += rows.examples;
    }

    // To the sums of A and of G of group q; either may be null.
    template <class S>
    void add_products(const block& b, const curvature_samples<S>& rows, index_t q, tensor<T, D>* a, tensor<T, D>* g,
                      const sample_strides& sample) const {
        if (a && b.taps > 1) add_points_of_layer(rows, q, *std::exchange(a, nullptr), sample);
        add_rows_of_layer(rows, q, a, g, s_.sharing_of(b), sample);
    }

    // How far the sampled A of the first batch is from that of all rows.
    template <class S>
    void note_sampling_error(block& b, const curvature_samples<S>& rows, const sample_strides& sample) {
        if (!b.a[0].statistics.has_batch() || b.a[0].statistics.is_diagonal()) return;
        tensor<T, D> all = tensor<T, D>::zeros(b.a[0].statistics.extents(), memory_category::workspace);
        add_products(b, rows, 0, &all, nullptr, {});
        const tensor<T> whole = all.on_host(memory_category::workspace),
                        part = b.a[0].statistics.batch().on_host(memory_category::workspace);
        const auto count = static_cast<double>(rows_taken(rows, s_.sharing_of(b), {})),
                   taken = static_cast<double>(rows_taken(rows, s_.sharing_of(b), sample));
        double difference = 0, length = 0;
        for (index_t i = 0; i < whole.size(); ++i) {
            const double exact = static_cast<double>(whole[i]) / count;
            const double sampled = static_cast<double>(part[i]) / taken;
            difference += (sampled - exact) * (sampled - exact);
            length += exact * exact;
        }
        sampling_error_ = std::max(sampling_error_, length > 0 ? std::sqrt(difference / length) : 0.0);
    }

    kfac_state<T, D>& s_;
    std::int64_t rejected_ = 0, examples_ = 0;
    double sampling_error_ = 0;
    double gradient_scale_ = 1;  // of the rows of this step
};

}  // namespace cairn
