#pragma once
// From spatial to sample parallelism: before the dense layers every rank gets whole samples.
//   gather_samples           (N, own rows…, C) → (share of N, all rows…, C)      all-to-all, once each way
//   spatial_global_average   (N, own rows…, C) → (share of N, C): the mean over all rows, of which partial means travel
// Rank r's share of N samples is shard_of(N, ranks, r). Where there are fewer samples than ranks, every rank gets all
// of them, an all-gather, and they count 1 / ranks in each loss. share_of_samples() says which samples a rank has in
// the end, and what weight the mean loss over them has in the mean loss of the micro-batch: with losses so weighted the
// gradients of every layer, in front and behind, sum over the ranks to those of the whole.
// Partial sums are added in the order of ranks. Tested against one rank in tests/parallel/spatial/.

#include <cairn/core/box.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/parallel/spatial/halo.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// Samples that a rank has behind the switch.
struct sample_share {
    range samples;
    double weight;  // of the mean over them, in that over all samples of the micro-batch
};

inline sample_share share_of_samples(index_t samples, int ranks, int rank) {
    if (samples < ranks) return {{0, samples}, 1.0 / ranks};
    const range mine = shard_of(samples, ranks, rank);
    return {mine, static_cast<double>(mine.count) / static_cast<double>(samples)};
}

namespace detail {

/// Every rank has one part of each sample, and gets all parts of the samples of its share.
template <Communicator C, class T, Device D>
class sample_exchange {
public:
    explicit sample_exchange(channel<C>& over) : over_(&over) { require_carries<D>(over); }

    int rank() const { return over_->rank(); }
    int size() const { return over_->size(); }
    range samples_of(index_t n, int r) const { return share_of_samples(n, size(), r).samples; }

    /// Part r of this rank's samples, which has the shape part(r) behind the first axis, of x (N, part of this rank).
    template <class Part>
    std::vector<tensor<T, D>> to_samples(const tensor<T, D>& x, Part&& part) {
        const index_t n = x.extent(0);
        std::vector<tensor<T, D>> out;
        for (int r = 0; r < size(); ++r) out.push_back(slice(x, samples_of(n, r)));
        return exchange(std::move(out), [&](int r) { return part(r).with(0, samples_of(n, rank()).count); });
    }

    /// Adjoint: gradients over part r of this rank's samples → that over x, of shape `in`.
    tensor<T, D> from_samples(std::vector<tensor<T, D>> parts, const shape& in) {
        const index_t n = in[0];
        const auto here = exchange(std::move(parts), [&](int r) { return in.with(0, samples_of(n, r).count); });
        tensor<T, D> dx = tensor<T, D>::zeros(in);
        for (int r = 0; r < size(); ++r) {
            tensor<T, D> to = slice(dx, samples_of(n, r));
            for_each(functors::add{}, to, here[static_cast<std::size_t>(r)]);
        }
        return dx;
    }

    // What this rank sends in both, for x of shape `in`; part(r) is the shape of a sample's part r, as above.
    sent_messages sends_to_samples(const shape& in) const {
        index_t samples = 0;  // by way of all messages
        for (int r = 0; r < size(); ++r)
            if (r != rank()) samples += samples_of(in[0], r).count;
        return {size() - 1, samples * (in.size() / std::max<index_t>(in[0], 1)) * index_t{sizeof(T)}};
    }
    template <class Part>
    sent_messages sends_from_samples(const shape& in, Part&& part) const {
        index_t elements = 0;
        for (int r = 0; r < size(); ++r)
            if (r != rank()) elements += part(r).with(0, samples_of(in[0], rank()).count).size();
        return {size() - 1, elements * index_t{sizeof(T)}};
    }

    /// Additions of from_samples: every sample once, or once for each rank where every rank has all samples.
    phase_cost sums_cost(const shape& in) const {
        const double n = double(in.size()) * (in[0] < size() ? size() : 1);
        return {2 * n, 2 * sizeof(T) * n};
    }

private:
    static tensor<T, D> slice(const tensor<T, D>& x, range samples) {
        const index_t width = x.extent(0) ? x.size() / x.extent(0) : 0;
        return x.slice(samples.begin * width, x.shape().with(0, samples.count));
    }

    // out[r] to rank r; what comes from rank r, of the shape that is expected.
    template <class Shape>
    std::vector<tensor<T, D>> exchange(std::vector<tensor<T, D>> out, Shape&& expected) {
        const auto at = [](int r) { return static_cast<std::size_t>(r); };
        std::vector<tensor<T, D>> in(out.size());
        std::vector<typename C::request> requests;
        [[maybe_unused]] const auto why = because(over_->device, "parts of samples");
        for (int step = 1; step < size(); ++step) {
            const int from = (rank() + size() - step) % size();
            in[at(from)] = tensor<T, D>(expected(from), memory_category::communication);
            requests.push_back(irecv(over_->device, in[at(from)].span(), from, spatial_tag));
        }
        for (int step = 1; step < size(); ++step) {
            const int to = (rank() + step) % size();
            requests.push_back(isend(over_->device, std::as_const(out[at(to)]).span(), to, spatial_tag));
        }
        in[at(rank())] = out[at(rank())].share();
        for (auto& r : requests) r.wait();
        return in;
    }

    channel<C>* over_;
};

/// block ↔ the box of whole that begins at `begin`.
template <class T, Device D>
void copy_box(tensor<T, D>& whole, const std::vector<index_t>& begin, tensor<T, D>& block, bool into_whole) {
    const kernel_call call("copy box", format_name<T>, 0, 2.0 * double(block.bytes()), {block.size()});
    if (on_phantom_rank()) return;
    for_runs(whole.shape(), begin, block.shape(), [&](index_t in_whole, index_t in_block, index_t n) {
        T *const a = whole.data() + in_whole, *const b = block.data() + in_block;
        copy_columns(D{}, 1, n, into_whole ? b : a, n, into_whole ? a : b, n);
    });
}

}  // namespace detail

/// The rows that a rank owns of a whole tensor (N, all rows…, C).
template <class T, Device D>
tensor<T, D> own_rows(tensor<T, D>& whole, const spatial_partition& cut, const rank_grid& grid, int rank) {
    tensor<T, D> block(cut.tensor_shape(grid, rank, whole.extent(0), whole.extent(-1)));
    detail::copy_box(whole, cut.begin(grid, rank), block, false);
    return block;
}

/// See the top of the file. The channel must outlive the layer.
template <Communicator C, class T = float, Device D = cpu>
class gather_samples : public layer_without_parameters<T, D> {
public:
    gather_samples(channel<C>& over, rank_grid grid, spatial_partition cut)
        : exchange_(over), grid_(std::move(grid)), cut_(std::move(cut)) {
        require_ranks(over, grid_);
        check(cut_, grid_);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> y(output_shape(x.shape()));
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        auto parts = exchange_.to_samples(x, [&](int r) { return cut_.tensor_shape(grid_, r, 0, x.extent(-1)); });
        for (int r = 0; r < grid_.size(); ++r)
            detail::copy_box(y, cut_.begin(grid_, r), parts[static_cast<std::size_t>(r)], true);
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = saved.take(0).shape();
        require_shape(dy, output_shape(in), "gather_samples: dy");
        if (!p.input_gradient) return {};
        std::vector<tensor<T, D>> parts;
        for (int r = 0; r < grid_.size(); ++r) {
            parts.emplace_back(cut_.tensor_shape(grid_, r, dy.extent(0), dy.extent(-1)),
                               memory_category::communication);
            detail::copy_box(dy, cut_.begin(grid_, r), parts.back(), false);
        }
        return exchange_.from_samples(std::move(parts), in);
    }

    shape output_shape(const shape& in) const {
        const shape mine = cut_.tensor_shape(grid_, exchange_.rank(), in.rank() ? in[0] : 0, in.rank() ? in.back() : 0);
        require(in == mine, describe(), " on rank ", exchange_.rank(), " takes ", mine, ", got ", in);
        return cut_.tensor_shape(grid_, -1, exchange_.samples_of(in[0], exchange_.rank()).count, in.back());
    }

    layer_cost cost(const shape& in) const {
        const double y = double(output_shape(in).size());
        layer_cost c;
        c.forward = c.backward_input = {0, 2 * sizeof(T) * y};
        c.backward_input += exchange_.sums_cost(in);
        c.forward.sends.samples = exchange_.sends_to_samples(in);
        c.backward_input.sends.samples =
            exchange_.sends_from_samples(in, [&](int r) { return cut_.tensor_shape(grid_, r, in[0], in.back()); });
        return c;
    }

    std::string describe() const { return concat("gather_samples over ", grid_.text()); }

private:
    detail::sample_exchange<C, T, D> exchange_;
    rank_grid grid_;
    spatial_partition cut_;
};

/// See the top of the file. The channel must outlive the layer.
template <Communicator C, class T = float, Device D = cpu>
class spatial_global_average : public layer_without_parameters<T, D> {
public:
    spatial_global_average(channel<C>& over, rank_grid grid, spatial_partition cut)
        : exchange_(over), grid_(std::move(grid)), cut_(std::move(cut)) {
        require_ranks(over, grid_);
        check(cut_, grid_);
        double mine = 1, all = 1;
        for (int a = 0; a < grid_.dims(); ++a) {
            mine *= static_cast<double>(cut_.own(grid_, over.rank(), a).count);
            all *= static_cast<double>(cut_.extent(a));
        }
        part_ = static_cast<weight_of<T>>(mine / all);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape out = output_shape(x.shape()), here = mean_.output_shape(x.shape());
        tensor<T, D> partial = mean_.forward(std::move(x), saved, p);  // (N, C) over the rows here
        scale(partial);
        const auto parts = exchange_.to_samples(partial, [&](int) { return here; });
        tensor<T, D> y = tensor<T, D>::zeros(out);
        for (const auto& part : parts) for_each(functors::add{}, y, part);
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (!p.input_gradient) {
            saved.clear();
            return {};
        }
        const shape in = saved.get(0).shape();
        require_shape(dy, output_shape(in), "spatial_global_average: dy");
        std::vector<tensor<T, D>> parts;
        for (int r = 0; r < grid_.size(); ++r) parts.push_back(dy.share());
        tensor<T, D> partial = exchange_.from_samples(std::move(parts), mean_.output_shape(in));
        scale(partial);
        return mean_.backward_input(std::move(partial), saved, p);
    }

    shape output_shape(const shape& in) const {
        const shape mine = cut_.tensor_shape(grid_, exchange_.rank(), in.rank() ? in[0] : 0, in.rank() ? in.back() : 0);
        require(in == mine, describe(), " on rank ", exchange_.rank(), " takes ", mine, ", got ", in);
        return {exchange_.samples_of(in[0], exchange_.rank()).count, in.back()};
    }

    layer_cost cost(const shape& in) const {
        const shape means = mean_.output_shape(in);
        const double here = double(means.size()), out = double(output_shape(in).size()) * exchange_.size();
        layer_cost c = mean_.cost(in);
        c.forward += {here + 2 * out, sizeof(T) * (here + 2 * out)};  // scale, add
        c.backward_input += {here, sizeof(T) * here};
        c.backward_input += exchange_.sums_cost(means);
        c.forward.sends.samples = exchange_.sends_to_samples(means);
        c.backward_input.sends.samples = exchange_.sends_from_samples(means, [&](int) { return means; });
        return c;
    }
    std::string describe() const { return concat("spatial_global_average over ", grid_.text()); }

private:
    void scale(tensor<T, D>& t) const { for_each(functors::times<T, weight_of<T>>{part_}, t); }

    detail::sample_exchange<C, T, D> exchange_;
    rank_grid grid_;
    spatial_partition cut_;
    global_average_pool<T, D> mean_;
    weight_of<T> part_;  // of all rows that are here
};

}  // namespace cairn
