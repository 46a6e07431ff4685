#pragma once
// The sum of two gradients or two branches, in the memory of one of them if it has no other owner.

#include <cairn/core/for_each.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <utility>

namespace cairn {

/// a + b, written over an operand without other owners, else into new memory; the bits are the same in each case. An
/// empty tensor (a gradient that was not requested) makes the sum empty. Throws if the shapes differ.
template <class T, class D>
tensor<T, D> add(tensor<T, D> a, tensor<T, D> b) {
    if (a.empty() || b.empty()) return {};
    require(a.shape() == b.shape(), "add: shapes ", a.shape(), " and ", b.shape(), " differ");
    const double n = static_cast<double>(a.size());
    const kernel_call call("add", format_name<T>, n, 3 * n * sizeof(T), {a.size()});
    if (!a.unique()) std::swap(a, b);
    if (a.unique()) {
        for_each(functors::add{}, a, b);
        return a;
    }
    tensor<T, D> sum(a.shape());
    for_each(functors::sum{}, sum, a, b);
    return sum;
}

}  // namespace cairn
