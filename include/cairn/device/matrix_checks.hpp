#pragma once
// Input that decompositions refuse, with the same words on every device.

#include <cairn/core/tensor.hpp>

#include <cmath>

namespace cairn::detail {

/// n of a square matrix (n, n). Throws of any other shape, and of (0, 0).
template <class T, class D>
index_t order_of(const tensor<T, D>& a, const char* what) {
    require(a.rank() == 2 && a.extent(0) == a.extent(1) && a.size() > 0, what,
            ": a square matrix is needed, got shape ", a.shape());
    return a.extent(0);
}

/// Throws at the first element of a matrix that is not finite, and names it.
template <class T>
void require_finite(const tensor<T>& a, const char* what) {
    for (index_t i = 0; i < a.size(); ++i)
        require(std::isfinite(a[i]), what, ": element (", i / a.extent(1), ", ", i % a.extent(1), ") of ", a.shape(),
                " is ", a[i]);
}

}  // namespace cairn::detail
