#pragma once
// The end of a product, before it writes its sums: c = act(sum + bias), the bias one number a column.

#include <cairn/core/error.hpp>
#include <cairn/device/activation_kind.hpp>

namespace cairn {

/// The activations that gemm_bias() knows; the others need more than an element, or are passes of their own.
inline void check_epilogue(activation act) {
    require(
        act == activation::none || act == activation::relu || act == activation::gelu || act == activation::gelu_tanh,
        "gemm_bias: ", name_of(act), " cannot follow a product; none, relu, gelu and gelu_tanh can");
}

}  // namespace cairn
