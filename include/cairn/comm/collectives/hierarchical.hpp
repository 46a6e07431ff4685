#pragma once
// All-reduce over nodes of several ranks: the slow network between nodes carries each byte once per node.
//   inside the node      reduce-scatter: rank j of the first g has part j of its node's sum
//   between the nodes    all-reduce of part j among the ranks j of all nodes, g of them at once
//   inside the node      all-gather
// g is the number of ranks on the smallest node. On a larger one the ranks from g on give and get data, but own no
// part.
// Time: reduce-scatter inside (n) + all-reduce between (n/g) + all-gather inside (n), see the heads of the three.
// (The scheme of Horovod's and NCCL's hierarchical all-reduce; Jia et al. 2018.)

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/recursive_doubling.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/ring.hpp>

#include <concepts>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

/// The two communicators of the scheme. Making it is collective and dear; keep it.
template <Communicator C>
class node_groups {
public:
    explicit node_groups(C& c) : node_(node_of(c)), width_(least(c, node_.size())), across_(across_of(c)) {}
    /// With a node communicator of one's own: consecutive or not, every rank in exactly one.
    node_groups(C& c, C node) : node_(std::move(node)), width_(least(c, node_.size())), across_(across_of(c)) {}

    C& node() { return node_; }      // ranks on this node
    C& across() { return across_; }  // ranks with this one's number on all nodes; only this one if it owns no part
    int width() const { return width_; }
    bool owns() const { return node_.rank() < width_; }

    /// Which elements of n each rank of the node owns.
    std::vector<range> parts(index_t n) const {
        std::vector<range> all = shards_of(n, width_);
        all.resize(static_cast<std::size_t>(node_.size()), range{n, 0});
        return all;
    }

private:
    static C node_of(C& c) {
        if constexpr (requires { c.split_node(); })
            return c.split_node();
        else
            return c.split(0, c.rank());
    }
    static int least(C& c, int size) {
        recursive_doubling_all_reduce(c, std::span<int>(&size, 1), reduction::min);
        return size;
    }
    C across_of(C& c) { return c.split(owns() ? node_.rank() : -1, c.rank()); }

    C node_;
    int width_;
    C across_;
};

/// data ← reduction over all ranks, in place; `between(communicator, span, reduction)` is the all-reduce over nodes.
template <Communicator C, class T, class Between>
    requires std::invocable<Between&, C&, std::span<T>, reduction>
void hierarchical_all_reduce(node_groups<C>& groups, std::span<T> data, reduction r, Between&& between,
                             std::string_view label = {}) {
    const std::vector<range> parts = groups.parts(static_cast<index_t>(data.size()));
    reduce_scatter(groups.node(), data, parts, r, label);
    if (groups.owns())
        between(groups.across(), subspan(data, parts[static_cast<std::size_t>(groups.node().rank())]), r);
    all_gather(groups.node(), data, parts, label);
}

template <Communicator C, class T>
void hierarchical_all_reduce(node_groups<C>& groups, std::span<T> data, reduction r = reduction::sum,
                             std::string_view label = {}) {
    hierarchical_all_reduce(
        groups, data, r, [label](C& c, std::span<T> part, reduction op) { ring_all_reduce(c, part, op, label); },
        label);
}

}  // namespace cairn
