#pragma once
// Whole tensors, on the first rank of a tensor axis, from the slices of its ranks: so a saved state does not depend on
// the number of ranks that share layers.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/parallel/global_parameter.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Rank 0 holds the whole ones while it lives.
class slice_tensors {
public:
    /// `c`: the ranks of the axis. `mine`: this rank's, the same names on each. A tensor called ".../PATH", of the shape
    /// of the parameter with that path, is cut as the parameter is; others are the same on each rank.
    template <Device D>
    slice_tensors(any_communicator& c, std::vector<named_tensor<float>> mine, const arena<float, D>& weights)
        : c_(c), mine_(std::move(mine)) {
        for (const auto& [name, t] : mine_) {
            const parameter_layout* layout = nullptr;
            for (const auto& [path, p] : weights.parameters())
                if (name.ends_with('/' + path) && p->shape == t.shape() && !p->layout.is_whole()) layout = &p->layout;
            layouts_.push_back(layout);
            all_.push_back({name, !layout          ? t.share()
                                  : c_.rank() == 0 ? tensor<float>(layout->global, memory_category::communication)
                                                   : tensor<float>()});
        }
    }

    /// Collective: rank 0 gets the whole tensors.
    void collect() {
        for (std::size_t i = 0; i < mine_.size(); ++i) {
            if (!layouts_[i]) continue;
            const tensor<float> whole = gather_global(c_, mine_[i].t, *layouts_[i], 0, mine_[i].name);
            if (c_.rank() == 0) std::copy_n(whole.data(), whole.size(), all_[i].t.data());
        }
    }
    /// Collective: every rank gets its slices of rank 0's tensors, and the tensors that are the same on each.
    void distribute() {
        for (std::size_t i = 0; i < mine_.size(); ++i)
            if (layouts_[i])
                scatter_global(c_, all_[i].t, mine_[i].t, *layouts_[i], 0, mine_[i].name);
            else
                broadcast(c_, mine_[i].t.span(), 0);
    }
    /// On rank 0: the whole ones. Elsewhere those that are cut are empty.
    std::vector<named_tensor<float>> tensors() const {
        std::vector<named_tensor<float>> shared;
        for (const auto& [name, t] : all_) shared.push_back({name, t.share()});
        return shared;
    }

private:
    any_communicator& c_;
    std::vector<named_tensor<float>> mine_, all_;
    std::vector<const parameter_layout*> layouts_;  // of mine_; null: the same on each rank
};

}  // namespace cairn
