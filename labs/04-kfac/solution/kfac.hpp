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
        //! solution
        const std::size_t count = weights.size();
        if (steps_ == 0) {
            factors_.assign(count, {});
            for (running_factors& f : factors_) f.decay = settings_.decay;
            a_.resize(count);
            g_.resize(count);
        }
        std::vector<matrix> directions, sums;
        for (std::size_t l = 0; l < count; ++l) {
            if (steps_ % settings_.factor_update_interval == 0) factors_[l].take(sums_of(curvature[l]));
            if (steps_ % settings_.inverse_update_interval == 0) {
                a_[l] = eigen_of(factors_[l].a);
                g_[l] = eigen_of(factors_[l].g);
            }
            sums.push_back(gradient_of(gradients[l]));
            directions.push_back(precondition(a_[l], g_[l], settings_.damping, sums[l]));
        }
        const double scale = settings_.clip > 0 ? clip_scale(directions, sums, settings_.lr, settings_.clip) : 1;
        for (std::size_t l = 0; l < count; ++l)
            for (std::size_t i = 0; i < weights[l].values.size(); ++i)
                weights[l].values[i] -= settings_.lr * scale * directions[l].values[i];
        ++steps_;
        //! starter
        // (void)weights, (void)gradients, (void)curvature;
        // throw std::logic_error("task 4: kfac::step is not written yet");
        //! end
    }

private:
    kfac_settings settings_;
    //! solution
    std::vector<running_factors> factors_;
    std::vector<eigen> a_, g_;
    std::size_t steps_ = 0;
    //! starter
    // // What you keep between steps goes here.
    //! end
};

}  // namespace student
