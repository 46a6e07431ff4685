#pragma once
// xtensor views of tensors: the only file that includes xtensor's core. For expressions over small things and for
// linear algebra; inner loops go through kernels. A view copies nothing and owns nothing: the tensor must outlive it.
// Assign an expression over views to a view (or to an xt::xarray), never to `auto`: an expression that is kept refers
// to operands that may be gone.

#include <cairn/core/tensor.hpp>

#if __has_include(<xtensor/containers/xadapt.hpp>)
#include <xtensor/containers/xadapt.hpp>  // xtensor 0.26 and later
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/core/xmath.hpp>
#include <xtensor/core/xnoalias.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#endif

#include <cstddef>
#include <type_traits>
#include <vector>

namespace cairn {

namespace detail {

template <class T>
auto xt_adapt(T* data, const shape& s) {
    const std::vector<std::size_t> extents(s.begin(), s.end());
    return xt::adapt<xt::layout_type::row_major>(data, static_cast<std::size_t>(s.size()), xt::no_ownership(), extents);
}

}  // namespace detail

/// The elements of t as an xtensor expression of the same shape that reads and writes them in place.
template <class T>
auto xt_view(tensor<T, cpu>& t) {
    return detail::xt_adapt(t.data(), t.shape());
}
template <class T>
auto xt_view(const tensor<T, cpu>& t) {
    return detail::xt_adapt(t.data(), t.shape());
}
template <class T>
void xt_view(tensor<T, cpu>&& t) = delete;  // the view would outlive its elements

/// A new tensor with the values of an xtensor expression.
template <class E>
auto tensor_from(const E& expression, memory_category use = memory_category::activations) {
    using T = std::remove_const_t<typename E::value_type>;
    shape s;
    for (std::size_t extent : expression.shape()) s.push_back(static_cast<index_t>(extent));
    tensor<T> t(s, use);
    auto view = xt_view(t);
    xt::noalias(view) = expression;
    return t;
}

}  // namespace cairn
