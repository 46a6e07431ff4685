#pragma once
// The trait of containers: layers that combine the results of chains of the same x. A layer with
//   children()    → layer_children
// may be cut by a pipeline (parallel/pipeline/cut.hpp) and is planned chain by chain (stash/memory_model.hpp). A layer
// without it runs in one piece.
//   chain      y = c0(x)                     one chain
//   sum        y = c0(x) + c1(x) + …
//   residual   the same, added by the last layer of c0 where that is a ResidualLayer (nn/residual_layer.hpp)
//   join       y = (c0(x) | c1(x) | …)       on channels
// An empty chain is the identity. Forward runs the chains from the last to the first, backward from the first to the
// last, and dx is the sum in that order; the first may overwrite x. Chain i saves in saved.child(i, name), its pass is
// pass.child(name), and the paths of its parameters begin with its name, if it has one.

#include <cairn/core/tensor.hpp>

#include <string>
#include <vector>

namespace cairn {

enum class combination { none, chain, sum, residual, join };

template <class T, Device D>
class sequential;

/// How a container combines its chains, which it owns.
template <class T, Device D = cpu>
struct layer_children {
    struct child {
        std::string name;
        sequential<T, D>* layers;
    };
    combination how = combination::none;
    std::vector<child> chains = {};

    int size() const { return static_cast<int>(chains.size()); }
    const child& operator[](int i) const { return chains[static_cast<std::size_t>(i)]; }
};

/// Those of a layer; of one without children none.
template <class L>
layer_children<typename L::value_type, typename L::device> children_of(L& layer) {
    if constexpr (requires { layer.children(); })
        return layer.children();
    else
        return {};
}

}  // namespace cairn
