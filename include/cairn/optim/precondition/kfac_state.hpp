#pragma once
// State shared by the parts of K-FAC (kfac.hpp): settings, layers and the assignment of work.

#include <cairn/optim/precondition/kfac_config.hpp>
#include <cairn/optim/precondition/kfac_layer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cairn {

template <class T, Device D>
struct kfac_state {
    using block = kfac_layer<T, D>;

    kfac_config config;
    std::unique_ptr<kfac_work_assignment<T, D>> roles;
    std::vector<parameter<T, D>*> parameters = {};
    std::vector<block> blocks = {};  // in the order in which backward comes to them
    std::vector<std::string> diagnostics = {};
    std::int64_t steps = 0;
    bool started = false;  // all layers are known
    // From numbers by parameter of the arena those of the whole model, in path order, on every rank alike; unset: the
    // arena has the whole model.
    std::function<std::vector<double>(std::vector<double>)> over_model = {};

    // Joined one-hot rows would have no diagonal factor.
    weight_sharing sharing_of(const block& b) const { return b.lookup ? weight_sharing::expand : config.sharing; }
    // The block's S: that of the mean over rows of A ⊗ G.
    double shared_positions(const block& b) const {
        const bool one = config.scaling == kfac_scaling::kfac_pytorch || sharing_of(b) == weight_sharing::reduce;
        return one || b.diagonal ? 1 : static_cast<double>(b.positions);
    }

    /// The numbers that into(i, factor, side, double* in device memory), called for each factor of block i, leaves
    /// there, else 0; waited for once.
    template <class Into>
    std::vector<double> of_each_factor(Into&& into) {
        index_t count = 0;
        for (block& b : blocks) b.each_factor([&](kfac_factor<T, D>&, char) { ++count; });
        tensor<double, D> there = tensor<double, D>::zeros({count}, memory_category::workspace);
        double* out = there.data();
        for (std::size_t i = 0; i < blocks.size(); ++i)
            blocks[i].each_factor([&](kfac_factor<T, D>& f, char side) { into(i, f, side, out++); });
        const tensor<double> here = host_side(there);
        return {here.data(), here.data() + count};
    }
};

}  // namespace cairn
