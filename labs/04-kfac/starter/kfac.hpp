#pragma once
// Lab 4, task 4: a training step with K-FAC.

#include "factors.hpp"
#include "precondition.hpp"

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace student {

struct kfac_settings {
    double lr = 1;
    double damping = 1e-2;  // γ
    double clip = 0;        // κ of clip_scale; 0: the whole step is taken
    double decay = 0.95;    // ρ of the factors' averages
    // In steps 0, factor_update_interval, 2 factor_update_interval, … the averages take a batch; after that, in steps
    // 0, inverse_update_interval, 2 inverse_update_interval, … they are decomposed. In between, the last ones stay in
    // use.
    std::size_t factor_update_interval = 1, inverse_update_interval = 1;
};

/// K-FAC in the eigen form for a network of linear layers.
class kfac {
public:
    explicit kfac(kfac_settings s) : settings_(s) {}

    /// One step: W ← W − lr ν V for every layer. weights[l] is W (out, in + 1) of layer l. gradients[l] are the rows
    /// that its gradient is the sum of, curvature[l] those that its factors are made of: of a loss whose labels were
    /// drawn from the network's own output.
    void step(std::vector<matrix>& weights, const std::vector<curvature_samples>& gradients,
              const std::vector<curvature_samples>& curvature) {
        (void)weights, (void)gradients, (void)curvature;
        throw std::logic_error("task 4: kfac::step is not written yet");
    }

private:
    kfac_settings settings_;
    // What you keep between steps goes here.
};

}  // namespace student
