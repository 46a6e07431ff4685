#pragma once
// How the spatial axes of tensors are cut over a grid of ranks, and which rows a layer's results need.
// A window of kernel K, stride S, dilation d and padding P makes output row o of input rows o S - P + t d, t in [0, K):
//   outputs [o0, o1) need inputs [o0 S - P, (o1 - 1) S - P + (K - 1) d]        (what lies outside the axis is padding)
//   halo of a rank = the rows that its outputs need, less those that it owns
// Shards are any lists of ranges, one for each rank along the axis; by default they differ by at most one row. A halo
// comes from the two neighbours alone: one that is wider than a neighbour's shard is refused, by every rank alike, as
// all of them know all shards.
// Tested against the rows that plain loops touch, tests/parallel/spatial/geometry_test.cpp.

#include <cairn/core/range.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Ranks along each spatial axis, the last axis fastest: rank = (d · H + h) · W + w.
class rank_grid {
public:
    /// Throws unless there are one to three positive extents.
    explicit rank_grid(std::vector<int> extents) : extents_(std::move(extents)) {
        require(extents_.size() >= 1 && extents_.size() <= 3, "rank grid of ", extents_.size(),
                " axes; 1, 2 or 3 are possible");
        for (const int e : extents_) require(e > 0, "rank grid ", text(), ": extents must be positive");
    }

    int dims() const { return static_cast<int>(extents_.size()); }
    int extent(int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
    int size() const { return stride(-1); }
    int coordinate(int rank, int axis) const { return rank / stride(axis) % extent(axis); }
    /// The rank one step up (+1) or down (-1) along an axis.
    int neighbour(int rank, int axis, int step) const { return rank + step * stride(axis); }

    /// "2x1x2"
    std::string text() const {
        std::string t;
        for (const int e : extents_) t += (t.empty() ? "" : "x") + std::to_string(e);
        return t;
    }

private:
    // Ranks from one coordinate of `axis` to the next; -1: of the whole grid.
    int stride(int axis) const {
        int product = 1;
        for (int a = dims(); a-- > axis + 1;) product *= extent(a);
        return product;
    }

    std::vector<int> extents_;
};

/// "depth", "height" or "width": axis `axis` of `dims` spatial ones.
inline const char* spatial_axis_name(int axis, int dims) {
    constexpr const char* names[] = {"depth", "height", "width"};
    return names[3 - dims + axis];
}

/// Rows of one axis, by coordinate of the rank that owns them.
using axis_shards = std::vector<range>;

/// How the spatial axes of one tensor are cut.
struct spatial_partition {
    std::vector<axis_shards> axes;

    /// Shards of `extents` that differ by at most one row. Throws where an axis has fewer rows than ranks.
    static spatial_partition even(const rank_grid& grid, const shape& extents, const std::string& what) {
        require(extents.rank() == grid.dims(), what, " of ", extents.rank(), " spatial axes, the rank grid ",
                grid.text(), " has ", grid.dims());
        spatial_partition p;
        for (int a = 0; a < grid.dims(); ++a) {
            require(extents[a] >= grid.extent(a), what, ": axis ", spatial_axis_name(a, grid.dims()), " has ",
                    extents[a], " rows for ", grid.extent(a),
                    " ranks; cut it over fewer ranks, or gather whole samples before this layer");
            p.axes.push_back(shards_of(extents[a], grid.extent(a)));
        }
        return p;
    }

    int dims() const { return static_cast<int>(axes.size()); }
    index_t extent(int axis) const { return axes[static_cast<std::size_t>(axis)].back().end(); }
    range own(const rank_grid& grid, int rank, int axis) const {
        return axes[static_cast<std::size_t>(axis)][static_cast<std::size_t>(grid.coordinate(rank, axis))];
    }

    /// (n, rows of `rank`…, channels); rank -1: of the whole.
    shape tensor_shape(const rank_grid& grid, int rank, index_t n, index_t channels) const {
        shape s{n};
        for (int a = 0; a < dims(); ++a) s.push_back(rank < 0 ? extent(a) : own(grid, rank, a).count);
        s.push_back(channels);
        return s;
    }
    /// Where the tensor of `rank` begins in the whole one.
    std::vector<index_t> begin(const rank_grid& grid, int rank) const {
        std::vector<index_t> at{0};
        for (int a = 0; a < dims(); ++a) at.push_back(own(grid, rank, a).begin);
        at.push_back(0);
        return at;
    }
};

/// Throws unless the shards of every axis are one for each rank, not empty, and follow one another from row 0.
inline void check(const spatial_partition& p, const rank_grid& grid) {
    require(p.dims() == grid.dims(), "partition of ", p.dims(), " axes over a rank grid ", grid.text());
    for (int a = 0; a < p.dims(); ++a) {
        const axis_shards& shards = p.axes[static_cast<std::size_t>(a)];
        require(static_cast<int>(shards.size()) == grid.extent(a), "partition: ", shards.size(), " shards on axis ", a,
                " of the rank grid ", grid.text());
        index_t next = 0;
        for (const range& s : shards) {
            require(s.begin == next && s.count > 0, "partition: rows ", s.begin, " to ", s.end(), " on axis ", a,
                    "; a shard has at least one row and begins where the one before it ends, here at ", next);
            next = s.end();
        }
    }
}

/// The window of a convolution or a pooling along one axis.
struct axis_window {
    index_t kernel = 1, stride = 1, pad = 0, dilation = 1;

    /// Input rows from the first that `outputs` need to the last; some may lie outside the axis.
    range inputs_of(range outputs) const {
        return {outputs.begin * stride - pad, (outputs.count - 1) * stride + (kernel - 1) * dilation + 1};
    }
    index_t output_extent(index_t in) const {
        const index_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
        return room < 0 ? 0 : room / stride + 1;
    }
};

/// Rows that both have; count 0 where there are none.
inline range common_rows(range a, range b) {
    const index_t begin = std::max(a.begin, b.begin);
    return {begin, std::max<index_t>(0, std::min(a.end(), b.end()) - begin)};
}

/// Rows that one rank exchanges along one axis. Rows are numbered as in the whole axis.
struct axis_halo {
    range own;               // rows that are here
    range need;              // rows that the results here read; those outside the axis are padding
    range inside;            // those of `need` that the axis has
    range take[2], give[2];  // rows from and for the lower neighbour, the upper neighbour

    /// Nothing is exchanged, added or left out.
    bool is_identity() const {
        return own.begin == need.begin && own.count == need.count && give[0].count == 0 && give[1].count == 0;
    }
    index_t given() const { return give[0].count + give[1].count; }
};

/// The halos of all ranks along one axis whose inputs and outputs are cut as given. Throws, naming `layer` and `axis`,
/// where a rank needs rows from beyond its neighbours.
inline std::vector<axis_halo> axis_halos(const axis_shards& in, const axis_shards& out, const axis_window& window,
                                         const std::string& layer, const char* axis) {
    const range all{0, in.back().end()};
    const std::size_t ranks = in.size();
    std::vector<axis_halo> halos(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        axis_halo& h = halos[r];
        h.own = in[r];
        // A single rank leaves the padding to the layer itself.
        h.need = ranks == 1 ? in[r] : window.inputs_of(out[r]);
        h.inside = common_rows(h.need, all);
        if (h.inside.count == 0) continue;
        const auto from = [&](bool upper) {
            const index_t halo =
                upper ? h.inside.end() - h.own.end() : std::max<index_t>(0, h.own.begin - h.inside.begin);
            if (halo <= 0) return range{};
            const range there = in[upper ? r + 1 : r - 1];
            require(halo <= there.count, layer, ": axis ", axis, ": rank ", r, " of ", ranks, " needs a halo of ", halo,
                    " rows ", upper ? "above" : "below", " its own ", h.own.count, ", the shard of rank ",
                    upper ? r + 1 : r - 1, " has ", there.count,
                    ": halo wider than a shard; cut this axis over fewer ranks, or gather whole samples before this "
                    "layer");
            return common_rows(h.inside, there);
        };
        h.take[0] = from(false);
        h.take[1] = from(true);
    }
    for (std::size_t r = 0; r + 1 < ranks; ++r) {
        halos[r].give[1] = halos[r + 1].take[0];
        halos[r + 1].give[0] = halos[r].take[1];
    }
    return halos;
}

/// Elements that a rank sends in one exchange of an (n, own rows…, channels) tensor. Axes go one after another, and
/// those that are done have their full extents, corners with them:
///   n · channels · Σ over axes a of given_a · Π over b < a of need_b · Π over b > a of own_b
inline index_t halo_elements(const std::vector<axis_halo>& axes, index_t n, index_t channels) {
    index_t sum = 0;
    for (std::size_t a = 0; a < axes.size(); ++a) {
        index_t product = axes[a].given();
        for (std::size_t b = 0; b < axes.size(); ++b)
            if (b != a) product *= b < a ? axes[b].need.count : axes[b].own.count;
        sum += product;
    }
    return n * channels * sum;
}

}  // namespace cairn
