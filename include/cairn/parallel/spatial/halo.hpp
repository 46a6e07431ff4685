#pragma once
// Halo exchange: from the rows of a tensor that a rank owns to those that its results read, and back.
//   forward    for each axis: send slabs to both neighbours, receive theirs, fill what lies outside the domain
//   backward   its adjoint, axes in reverse: gradients of borrowed rows return to their owner, which adds them
// Axes go one after another; a slab has the full extents of the axes that are done, so corners arrive by two or three
// hops without messages of their own. Receives and sends are posted before own rows are copied. Sums are own + lower +
// upper, always in this order: the same bits in every run.
// Memory: forward writes the extended tensor once for each axis that is cut; slabs are copied twice.
// Bytes sent: halo_elements() of partition.hpp. Tested against whole tensors and counting_communicator.

#include <cairn/core/cost.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/spatial/partition.hpp>

#include <utility>
#include <vector>

namespace cairn {

inline constexpr int spatial_tag = user_tags - 16;  // of all exchanges of this folder: their order is that of layers

/// Throws unless the channel has the ranks of the grid.
template <Communicator C>
void require_ranks(const channel<C>& over, const rank_grid& grid) {
    require(over.size() == grid.size(), "spatial parallelism: ", over.size(), " ranks for a grid ", grid.text());
}

/// Exchanges of one layer by one rank. The channel must outlive it. Every rank calls forward and backward alike.
template <Communicator C, class T, Device D>
class halo_exchange {
public:
    /// This rank's exchange along each spatial axis.
    halo_exchange(channel<C>& over, rank_grid grid, std::vector<axis_halo> axes)
        : over_(&over), grid_(std::move(grid)), axes_(std::move(axes)) {
        require_ranks(over, grid_);
        require_carries<D>(over);
    }

    const std::vector<axis_halo>& axes() const { return axes_; }

    /// The shape that forward makes of (n, own rows…, channels). Throws on another shape.
    shape extended(const shape& in, const std::string& layer) const {
        const int dims = grid_.dims();
        bool fits = in.rank() == dims + 2;
        for (int a = 0; fits && a < dims; ++a) fits = in[a + 1] == axis(a).own.count;
        if (!fits) {
            shape own{};
            for (const axis_halo& h : axes_) own.push_back(h.own.count);
            fail(layer, " on rank ", over_->rank(), " of a grid ", grid_.text(), " takes the rows (N, ", own,
                 ", C) of its tensor, got ", in);
        }
        shape out = in;
        for (int a = 0; a < dims; ++a) out = out.with(a + 1, axis(a).need.count);
        return out;
    }

    /// The rows that results here read; those outside the domain are `outside`.
    tensor<T, D> forward(tensor<T, D> x, T outside) {
        for (int a = 0; a < grid_.dims(); ++a)
            if (!axis(a).is_identity()) x = borrow(a, x, outside);
        return x;
    }

    /// The gradient over the rows that are owned here, of that over the rows that forward made. `meanwhile` runs once,
    /// with the first messages under way.
    template <class Work>
    tensor<T, D> backward(tensor<T, D> gradient, Work&& meanwhile) {
        bool done = false;
        const auto once = [&] {
            if (!std::exchange(done, true)) meanwhile();
        };
        for (int a = grid_.dims(); a-- > 0;)
            if (!axis(a).is_identity()) gradient = give_back(a, gradient, once);
        once();
        return gradient;
    }

    /// Copies of forward, copies and sums of backward, for (n, own rows…, channels).
    std::pair<phase_cost, phase_cost> cost(shape in) const {
        phase_cost there, back;
        for (int a = 0; a < grid_.dims(); ++a) {
            if (axis(a).is_identity()) continue;
            const axis_halo& h = axis(a);
            const auto bytes_of = [&](index_t rows) { return sizeof(T) * double(in.with(a + 1, rows).size()); };
            const shape out = in.with(a + 1, h.need.count), sums = in.with(a + 1, h.given());
            const index_t taken = h.take[0].count + h.take[1].count, kept = common_rows(h.own, h.inside).count;
            there += {0, 2 * bytes_of(h.need.count + h.given())};
            back += {2 * double(sums.size()), 2 * bytes_of(taken + kept) + 6 * bytes_of(h.given())};
            const auto slabs = [&](const range(&rows)[2]) {  // to the lower neighbour, and to the upper
                return sent_messages{(rows[0].count > 0) + (rows[1].count > 0),
                                     static_cast<index_t>(bytes_of(rows[0].count + rows[1].count))};
            };
            there.sends.halos += slabs(h.give), back.sends.halos += slabs(h.take);
            in = out;
        }
        return {there, back};
    }

    /// Sets the rows of a tensor that forward made which lie outside the domain.
    void fill_outside(tensor<T, D>& extended, T value) const {
        for (int a = 0; a < grid_.dims(); ++a) fill_outside(a, extended, value);
    }

private:
    // Some rows along one axis on their way.
    struct slab {
        range rows;
        tensor<T, D> data;
        typename C::request request = {};
    };

    const axis_halo& axis(int a) const { return axes_[static_cast<std::size_t>(a)]; }

    // rows ← those of `from`, whose first row is from_begin; that of `to` is to_begin.
    static void copy_rows(int a, range rows, const tensor<T, D>& from, index_t from_begin, tensor<T, D>& to,
                          index_t to_begin) {
        if (rows.count == 0) return;
        index_t outer = 1, inner = 1;
        for (int b = 0; b <= a; ++b) outer *= from.extent(b);
        for (int b = a + 2; b < from.rank(); ++b) inner *= from.extent(b);
        copy_columns(D{}, outer, rows.count * inner, from.data() + (rows.begin - from_begin) * inner,
                     from.extent(a + 1) * inner, to.data() + (rows.begin - to_begin) * inner, to.extent(a + 1) * inner);
    }

    static tensor<T, D> room_for(int a, range rows, const shape& like) {
        return tensor<T, D>(like.with(a + 1, rows.count), memory_category::communication);
    }

    int peer(int a, int upper) const { return grid_.neighbour(over_->rank(), a, upper ? 1 : -1); }

    // Receives of the rows `of` both neighbours send, and sends of the rows `give`, which lie in t from row t_begin on.
    void post(int a, const range (&take)[2], const range (&give)[2], const tensor<T, D>& t, index_t t_begin,
              slab (&in)[2], slab (&out)[2]) {
        for (int upper = 0; upper < 2; ++upper)
            if (take[upper].count) {
                in[upper] = {take[upper], room_for(a, take[upper], t.shape())};
                in[upper].request = irecv(over_->device, in[upper].data.span(), peer(a, upper), spatial_tag);
            }
        [[maybe_unused]] const auto why = because(over_->device, "halos");
        for (int upper = 0; upper < 2; ++upper)
            if (give[upper].count) {
                out[upper] = {give[upper], room_for(a, give[upper], t.shape())};
                copy_rows(a, give[upper], t, t_begin, out[upper].data, give[upper].begin);
                out[upper].request =
                    isend(over_->device, std::as_const(out[upper].data).span(), peer(a, upper), spatial_tag);
            }
    }

    void fill_outside(int a, tensor<T, D>& y, T value) const {
        const axis_halo& h = axis(a);
        const range below{h.need.begin, (h.inside.count ? h.inside.begin : h.need.end()) - h.need.begin},
            above{h.inside.end(), h.inside.count ? h.need.end() - h.inside.end() : 0};
        for (const range& padding : {below, above}) {
            if (padding.count == 0) continue;
            const auto fill =
                tensor<T, D>::filled(y.shape().with(a + 1, padding.count), value, memory_category::workspace);
            copy_rows(a, padding, fill, padding.begin, y, h.need.begin);
        }
    }

    tensor<T, D> borrow(int a, const tensor<T, D>& x, T outside) {
        const axis_halo& h = axis(a);
        slab in[2], out[2];
        tensor<T, D> y;
        {
            const trace_scope scope("copy halo", "", "communication");
            post(a, h.take, h.give, x, h.own.begin, in, out);
            y = tensor<T, D>(x.shape().with(a + 1, h.need.count));
            copy_rows(a, common_rows(h.own, h.inside), x, h.own.begin, y, h.need.begin);
            fill_outside(a, y, outside);
        }
        const trace_scope scope("wait for halo", "", "communication");
        for (slab& s : in) {
            s.request.wait();
            if (s.rows.count) copy_rows(a, s.rows, s.data, s.rows.begin, y, h.need.begin);
        }
        for (slab& s : out) s.request.wait();
        return y;
    }

    template <class Work>
    tensor<T, D> give_back(int a, const tensor<T, D>& dy, Work&& meanwhile) {
        const axis_halo& h = axis(a);
        const shape own = dy.shape().with(a + 1, h.own.count);
        slab in[2], out[2];
        tensor<T, D> dx;
        {
            const trace_scope scope("copy halo", "", "communication");
            post(a, h.give, h.take, dy, h.need.begin, in, out);
            const range kept = common_rows(h.own, h.inside);
            dx = kept.count < h.own.count ? tensor<T, D>::zeros(own) : tensor<T, D>(own);
            copy_rows(a, kept, dy, h.need.begin, dx, h.own.begin);
        }
        meanwhile();
        const trace_scope scope("wait for halo", "", "communication");
        for (slab& s : in) {
            s.request.wait();
            if (s.rows.count == 0) continue;
            tensor<T, D> mine = room_for(a, s.rows, own);
            copy_rows(a, s.rows, dx, h.own.begin, mine, s.rows.begin);
            for_each(functors::add{}, mine, s.data);
            copy_rows(a, s.rows, mine, s.rows.begin, dx, h.own.begin);
        }
        for (slab& s : out) s.request.wait();
        return dx;
    }

    channel<C>* over_;
    rank_grid grid_;
    std::vector<axis_halo> axes_;
};

}  // namespace cairn
