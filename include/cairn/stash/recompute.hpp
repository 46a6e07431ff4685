#pragma once
// A chain that keeps its input alone and runs forward again in backward (Chen et al. 2016): memory of one chain at a
// time for a second forward. The second pass has the same bits: dropout draws the same mask, running statistics are
// left alone. The mechanism is sequential's; which segments of a model to recompute is planned in stash/plan.hpp.

#include <cairn/nn/sequential.hpp>

namespace cairn {

/// `chain` as one recomputed segment, a layer for use inside other layers.
template <class T, Device D>
sequential<T, D> recompute_segment(sequential<T, D> chain) {
    chain.recompute({{0, chain.size()}});
    return chain;
}

}  // namespace cairn
