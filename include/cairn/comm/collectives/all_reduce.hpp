#pragma once
// data ← reduction over all ranks, by one of these algorithms:
//   automatic            the fastest by measurement, see selection.hpp
//   ring                 fewest bytes, most rounds
//   recursive_doubling   fewest rounds, most bytes
//   halving_doubling     the ring's bytes in few rounds
//   tree                 pipelined: bandwidth that does not depend on the number of ranks
//   hierarchical         few bytes between nodes; makes its groups at each call unless they are given
//   vendor               that of the library below: MPI, NCCL ("native" in tables and files)

#include <cairn/comm/collectives/algorithms.hpp>
#include <cairn/comm/collectives/halving_doubling.hpp>
#include <cairn/comm/collectives/hierarchical.hpp>
#include <cairn/comm/collectives/recursive_doubling.hpp>
#include <cairn/comm/collectives/ring.hpp>
#include <cairn/comm/collectives/selection.hpp>
#include <cairn/comm/collectives/tree.hpp>
#include <cairn/comm/vendor_collectives.hpp>

#include <span>
#include <string_view>

namespace cairn {

struct all_reduce_options {
    reduction op = reduction::sum;
    all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
    std::string_view label = {};  // what is reduced, for errors: "gradients, bucket 3"
};

/// data ← reduction over all ranks by the vendor library. Throws if the communicator has none.
template <Communicator C, class T>
void vendor_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"native all-reduce", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    if constexpr (VendorElement<T>)
        if (auto* const vendor = vendor_of(c)) return vendor->all_reduce(data, r);
    fail(c.name(), ": has no all-reduce of its own for ", type_name<T>(), "; ask for another algorithm");
}

/// The algorithm that `automatic` stands for, for n bytes of T on c.
template <class T, Communicator C>
all_reduce_algorithm automatic_all_reduce(C& c, index_t bytes, bool has_groups = false) {
    return choose_all_reduce(c.name(), c.size(), bytes, [&](all_reduce_algorithm a) {
        return a == all_reduce_algorithm::vendor         ? VendorElement<T> && vendor_of(c)
               : a == all_reduce_algorithm::hierarchical ? has_groups
                                                         : true;
    });
}

/// In place; any count. The same bits on every rank and in every run. `groups`, where they are kept, open the
/// hierarchical algorithm to `automatic`.
template <Communicator C, class T>
void all_reduce(C& c, std::span<T> data, const all_reduce_options& o = {}, node_groups<C>* groups = nullptr) {
    if (c.size() == 1 || data.empty()) return;
    all_reduce_algorithm chosen = o.algorithm;
    if (chosen == all_reduce_algorithm::automatic)
        chosen = buffers_on_gpu(c)
                     ? all_reduce_algorithm::vendor
                     : automatic_all_reduce<T>(c, static_cast<index_t>(data.size_bytes()), groups != nullptr);
    switch (chosen) {
        using enum all_reduce_algorithm;
        case recursive_doubling:
            return recursive_doubling_all_reduce(c, data, o.op, o.label);
        case halving_doubling:
            return halving_doubling_all_reduce(c, data, o.op, o.label);
        case tree:
            return tree_all_reduce(c, data, o.op, o.label);
        case hierarchical: {
            if (groups) return hierarchical_all_reduce(*groups, data, o.op, o.label);
            node_groups<C> made(c);
            return hierarchical_all_reduce(made, data, o.op, o.label);
        }
        case vendor:
            return vendor_all_reduce(c, data, o.op, o.label);
        case automatic:
        case ring:
            return ring_all_reduce(c, data, o.op, o.label);
    }
}

}  // namespace cairn
