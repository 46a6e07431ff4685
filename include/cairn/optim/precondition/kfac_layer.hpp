#pragma once
// K-FAC's state of each layer, and the seam between its arithmetic (kfac.hpp) and several ranks
// (parallel/kfac_ranks.hpp).

#include <cairn/core/parameter.hpp>
#include <cairn/optim/precondition/kfac_assignment.hpp>
#include <cairn/optim/precondition/kfac_config.hpp>
#include <cairn/optim/precondition/kronecker.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// One Kronecker factor, or the diagonal of a scale and shift.
template <class T, Device D = cpu>
struct kfac_factor {
    running_factor<T, D> statistics;
    decomposition<T, D> inverse, pending;  // in use; and made in the background, not in use yet
};

/// One layer's curvature: a pair of factors for each group of a convolution, or one diagonal.
template <class T, Device D = cpu>
struct kfac_layer {
    std::string name;
    parameter<T, D>* weight = nullptr;
    parameter<T, D>* bias = nullptr;
    index_t in = 0, out = 0;  // of a group's factors; `in` counts the bias
    index_t positions = 1;    // S
    bool lookup = false;      // rows of the input are one-hot
    bool transposed = false;  // the weight is stored (in, out)
    bool patches = false;     // rows of the input are those of a convolution
    bool diagonal = false;    // scale and shift: a[0] is the diagonal of both, g is empty
    index_t taps = 1;         // A is that of each of so many parts of `in`: points of a kernel
    std::vector<kfac_factor<T, D>> a = {}, g = {};
    index_t rows = 0;             // of the batch at hand
    int uses = 0, seen = 0;       // in one backward; in this one
    std::int64_t ready = 0;       // 1 once its decompositions can be used
    tensor<T, D> direction = {};  // (groups · out, in): V, for as long as a step takes

    index_t size() const { return weight->shape.size() + (bias ? bias->shape.size() : 0); }
    index_t groups() const { return diagonal ? 1 : static_cast<index_t>(a.size()); }
    factor_sizes sizes() const {
        return {a[0].statistics.is_diagonal() ? 1 : in / taps, diagonal || g[0].statistics.is_diagonal() ? 1 : out,
                groups()};
    }
    /// f(factor, 'a' or 'g').
    template <class F>
    void each_factor(F&& f) {
        for (std::size_t q = 0; q < a.size(); ++q) {
            f(a[q], 'a');
            if (!diagonal) f(g[q], 'g');
        }
    }
};

/// Assignment of K-FAC's work to ranks. This one: all of it to one rank.
template <class T, Device D = cpu>
class kfac_work_assignment {
public:
    using blocks = std::vector<kfac_layer<T, D>>;
    virtual ~kfac_work_assignment() = default;

    /// All layers are known, in the order in which backward comes to them; and K-FAC's settings.
    virtual void start(blocks&, const kfac_config&) {}
    /// Whether rows of this block's side ('a' or 'g') are looked at here, its average is kept, its decomposition made
    /// here.
    virtual bool observes(std::size_t, char) const { return true; }
    virtual bool averages(std::size_t, char) const { return true; }
    virtual bool decomposes(std::size_t, char) const { return true; }
    virtual bool preconditions(std::size_t) const { return true; }

    /// The batch's sums of this block are complete on this rank: they may be on their way while backward goes on.
    virtual void sums_ready(blocks&, std::size_t) {}
    /// Sums and rows over all ranks.
    virtual void finish_sums(blocks&) {}
    /// Means of the diagonals of all factors, 0 where this rank has no average.
    virtual void share_diagonals(std::span<double>) {}
    /// Decompositions that were made in this step go where they are used. `failure`: why this rank could not make one
    /// that no rank has.
    virtual void share_decompositions(blocks&, std::vector<bool>& /*fresh, of each factor*/,
                                      const std::string& failure) {
        if (!failure.empty()) fail_divergence(failure);
    }
    /// The order in which directions lie in memory.
    virtual std::vector<std::size_t> order_of_directions(const blocks& all) const {
        std::vector<std::size_t> order(all.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        return order;
    }
    /// Directions, in that order, of all blocks.
    virtual void share_directions(blocks&, std::span<T>) {}
    /// Whether this rank needs the block's decompositions.
    virtual bool uses_decomposition(std::size_t) const { return true; }
    virtual std::vector<std::string> diagnostics() const { return {}; }
};

}  // namespace cairn
