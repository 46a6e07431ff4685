#pragma once
// The ranks among which the tensors of a layer are cut (Shoeybi et al. 2019, "Megatron-LM", section 3; Korthikanti et
// al. 2022 for sequences), and their collectives. x of n bytes, whole or summed, on p ranks; bytes sent by a rank:
//   sum             Σ_r x_r, on every rank                   all-reduce       2 (p-1)/p n on a ring
//   gather          the ranks' parts of an axis, joined      all-gather         (p-1)/p n
//   reduce_scatter  this rank's part of Σ_r x_r              reduce-scatter     (p-1)/p n
//   cut             this rank's part of x, which all have    nothing
// Parts of an axis are those of shard_of (core/range.hpp): any extents. The layers' identity of one direction is the
// all-reduce of the other: f and g of Megatron-LM. Every rank has the same bits afterwards.
// meanwhile() runs one of these on a thread of its own while the caller computes.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/sent.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/pass_context.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/progress_thread.hpp>

#include <optional>
#include <string_view>
#include <vector>

namespace cairn {

/// See the top of the file. Layers hold its address: it outlives them. All ranks call its functions in one order.
template <Communicator C>
class tensor_axis {
public:
    struct config {
        all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
        bool overlap = true;  // communicate on a thread of its own where a layer has something to compute meanwhile
    };

    explicit tensor_axis(channel<C>& over, config c = {}) : over_(over), config_(c) {
        // What a GPU was given runs beside the host in any case, and a transfer follows the launches of its own thread.
        if (c.overlap && over.size() > 1 && !buffers_on_gpu(over.device)) thread_.emplace();
    }
    tensor_axis(const tensor_axis&) = delete;
    tensor_axis& operator=(const tensor_axis&) = delete;

    int rank() const { return over_.rank(); }
    int size() const { return over_.size(); }
    channel<C>& over() { return over_; }

    /// This rank's part of `total`. Throws where a rank would have none; `what` names it: "linear 3 -> 2: outputs".
    range part_of(index_t total, std::string_view what) const {
        require(total >= size(), what, ": ", total, " cannot be cut over ", size(),
                " ranks, each must have one at least; use at most ", total, " tensor-parallel ranks");
        return shard_of(total, size(), rank());
    }

    /// x ← Σ over ranks, in place.
    template <class T, Device D>
    void sum(tensor<T, D>& x, std::string_view label, reduction op = reduction::sum) {
        if (size() == 1) return;
        const trace_scope scope("tensor all-reduce", "", "communication");
        [[maybe_unused]] const auto why = because(over_.device, "tensor layers");
        require_carries<D>(over_);
        all_reduce(over_.device, x.span(), {.op = op, .algorithm = config_.algorithm, .label = label});
    }

    /// x of all ranks, joined along `axis`, which has the extent `total`.
    template <class T, Device D>
    tensor<T, D> gather(const tensor<T, D>& x, int axis, index_t total, std::string_view label) {
        if (size() == 1) return x.share();
        const trace_scope scope("tensor all-gather", "", "communication");
        [[maybe_unused]] const auto why = because(over_.device, "tensor layers");
        const cut_axis c(x.shape().with(axis, total), axis, size());
        const range mine = shard_of(total, size(), rank());
        require(x.extent(axis) == mine.count, label, ": rank ", rank(), " of ", size(), " has ", x.shape(),
                "; of extent ", total, " on axis ", axis, " its part is ", mine.count);
        require_carries<D>(over_);
        tensor<T, D> by_rank({c.whole.size()},
                             c.outer == 1 ? memory_category::activations : memory_category::workspace);
        D::copy_within(by_rank.data() + c.blocks[static_cast<std::size_t>(rank())].begin, x.data(), x.bytes());
        all_gather(over_.device, by_rank.span(), c.blocks, label);
        if (c.outer == 1) return by_rank.reshaped(c.whole);
        tensor<T, D> all(c.whole);
        for (int r = 0; r < size(); ++r)
            copy_columns(D{}, c.outer, c.run(r), by_rank.data() + c.block(r), c.run(r), all.data() + c.first(r),
                         c.row());
        return all;
    }

    /// This rank's part along `axis` of Σ x over ranks. Overwrites x.
    template <class T, Device D>
    tensor<T, D> reduce_scatter(tensor<T, D> x, int axis, std::string_view label) {
        if (size() == 1) return x;
        const trace_scope scope("tensor reduce-scatter", "", "communication");
        [[maybe_unused]] const auto why = because(over_.device, "tensor layers");
        const cut_axis c(x.shape(), axis, size());
        require_carries<D>(over_);
        tensor<T, D> by_rank = x.share();
        if (c.outer > 1) {
            by_rank = tensor<T, D>({x.size()}, memory_category::workspace);
            for (int r = 0; r < size(); ++r)
                copy_columns(D{}, c.outer, c.run(r), x.data() + c.first(r), c.row(), by_rank.data() + c.block(r),
                             c.run(r));
        }
        cairn::reduce_scatter(over_.device, by_rank.span(), c.blocks, reduction::sum, label);
        const range mine = c.blocks[static_cast<std::size_t>(rank())];
        tensor<T, D> part(part_shape(x.shape(), axis));
        D::copy_within(part.data(), by_rank.data() + mine.begin, part.bytes());
        return part;
    }

    /// This rank's part along `axis` of x.
    template <class T, Device D>
    tensor<T, D> cut(const tensor<T, D>& x, int axis) const {
        if (size() == 1) return x.share();
        const cut_axis c(x.shape(), axis, size());
        tensor<T, D> part(part_shape(x.shape(), axis));
        copy_columns(D{}, c.outer, c.run(rank()), x.data() + c.first(rank()), c.row(), part.data(), c.run(rank()));
        return part;
    }

    // What this rank sends in these, of n elements of T, or of a tensor with its axis joined; for layers' costs.
    template <class T>
    sent_messages sum_sends(index_t n) const {
        const bool automatic = config_.algorithm == all_reduce_algorithm::automatic;
        const index_t size_of = sizeof(T);
        return all_reduce_sends(automatic ? automatic_all_reduce<T>(over_.device, n * size_of) : config_.algorithm, n,
                                size_of, size(), rank());
    }
    template <class T>
    sent_messages gather_sends(const shape& whole, int axis) const {
        return all_gather_sends(cut_axis(whole, axis, size()).blocks, sizeof(T), rank());
    }
    template <class T>
    sent_messages reduce_scatter_sends(const shape& whole, int axis) const {
        return cairn::reduce_scatter_sends(cut_axis(whole, axis, size()).blocks, sizeof(T), rank());
    }

    /// `whole` with the extent of this rank's part along `axis`.
    shape part_shape(const shape& whole, int axis) const {
        return whole.with(axis, shard_of(whole[axis], size(), rank()).count);
    }

    /// communicate() on a thread of its own, compute() here; returns when both are done. compute() does not communicate
    /// along this axis.
    template <class Communicate, class Compute>
    void meanwhile(Communicate&& communicate, Compute&& compute) {
        if (!thread_) {
            communicate();
            compute();
            return;
        }
        thread_->submit([&] { communicate(); });
        try {
            compute();
        } catch (...) {
            try {
                thread_->wait();  // it reads what is about to go
            } catch (const error&) {}
            throw;
        }
        thread_->wait();
    }

private:
    // An array and its axis that is cut: in `whole` the parts lie in `outer` runs each, in `blocks` each in one.
    struct cut_axis {
        shape whole;
        index_t outer = 1, inner = 1;  // elements before and behind the axis
        std::vector<range> parts, blocks;

        cut_axis(const shape& s, int axis, int ranks) : whole(s) {
            if (axis < 0) axis += s.rank();
            require(axis >= 0 && axis < s.rank(), "tensor axis: ", s, " has no axis ", axis);
            for (int a = 0; a < axis; ++a) outer *= s[a];
            for (int a = axis + 1; a < s.rank(); ++a) inner *= s[a];
            parts = shards_of(s[axis], ranks);
            for (const range& p : parts) blocks.push_back({p.begin * outer * inner, p.count * outer * inner});
        }
        /// Elements: of a run of rank r, between two runs of `whole`, before the first run in `whole` and in `blocks`.
        index_t run(int r) const { return parts[static_cast<std::size_t>(r)].count * inner; }
        index_t row() const { return parts.back().end() * inner; }
        index_t first(int r) const { return parts[static_cast<std::size_t>(r)].begin * inner; }
        index_t block(int r) const { return blocks[static_cast<std::size_t>(r)].begin; }
    };

    channel<C>& over_;
    config config_;
    std::optional<progress_thread> thread_;
};

/// K-FAC's factors of a slice are not those of the layer; what listens to activations alone may.
inline void require_no_curvature(const pass_context& p, std::string_view layer) {
    require(!p.curvature || !p.curvature->needs_whole_layers(), layer,
            ": second-order optimizers need whole layers; take another one, or do not cut the tensors");
}

/// Layout of the sequences between layers, for a layer's class.
///   whole   each rank has x (batch, length, width)
///   parts   each rank has its part of the positions: norms, dropout and sums are computed once, not by every rank
enum class sequence_layout { whole, parts };

/// The length of sequences of which each rank has a part of `here` positions. Parts are equal: a rank knows the length
/// from its own. Cutting refuses others, see require_equal_parts.
inline index_t whole_length(index_t here, int ranks) { return here * ranks; }

inline void require_equal_parts(index_t length, int ranks) {
    require(length % ranks == 0, "sequence parallelism: length ", length, " cannot be cut into ", ranks,
            " equal parts, one a rank; pad the sequences or keep them whole (sequence_layout::whole)");
}

}  // namespace cairn
