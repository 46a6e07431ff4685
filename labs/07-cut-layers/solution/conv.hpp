#pragma once
// Lab 7, task 5: a convolution of a volume that is cut over a grid of ranks. Stride 1, zeros around the volume, as many
// outputs as inputs; every rank has all weights.

#include "arrays.hpp"
#include "halo.hpp"

#include <stdexcept>

namespace student {

/// This rank's block of the result, from its block x of the input.
template <class C>
volume conv_forward(C& c, const grid& g, const volume& x, const windows& weights) {
    //! solution
    return convolve(with_halo(c, g, x, weights.radius()), weights);
    //! starter
    // (void)c, (void)g, (void)x, (void)weights;
    // throw std::logic_error("task 5: conv_forward is not written yet");
    //! end
}

/// This rank's block of the input's gradient, from its block dy of the result's.
template <class C>
volume conv_input_gradient(C& c, const grid& g, const volume& dy, const windows& weights) {
    //! solution
    return add_halo(c, g, convolve_input_gradient(dy, weights), weights.radius());
    //! starter
    // (void)c, (void)g, (void)dy, (void)weights;
    // throw std::logic_error("task 5: conv_input_gradient is not written yet");
    //! end
}

/// The gradient of all weights, the same on every rank: the halo of x is fetched again, then one all-reduce.
template <class C>
windows conv_weight_gradient(C& c, const grid& g, const volume& x, const volume& dy, const windows& weights) {
    //! solution
    windows gradient = convolve_weight_gradient(with_halo(c, g, x, weights.radius()), dy, weights);
    cairn::ring_all_reduce(c, std::span<double>(gradient.values));
    return gradient;
    //! starter
    // (void)c, (void)g, (void)x, (void)dy, (void)weights;
    // throw std::logic_error("task 5: conv_weight_gradient is not written yet");
    //! end
}

}  // namespace student
