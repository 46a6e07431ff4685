#pragma once
// Order between threads that use one device. What a thread launches on a GPU runs in that thread's order, beside what others launch:
//   launched<D> before;                  // here
//   other thread: before.wait();         // what it launches from now on finds what was launched here done
// A device that runs work in the call that asks for it has nothing to wait for.

#include <cairn/core/tensor.hpp>

namespace cairn {

namespace detail {
struct nothing_launched {
    void wait() const {}
};
template <Device D>
struct launched_on {
    using type = nothing_launched;
};
template <Device D>
    requires requires { typename D::mark; }
struct launched_on<D> {
    using type = typename D::mark;
};
}  // namespace detail

/// What the calling thread has launched on its D until now. Copies are the same moment.
template <Device D>
using launched = typename detail::launched_on<D>::type;

}  // namespace cairn
