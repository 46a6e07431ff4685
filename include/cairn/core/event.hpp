#pragma once
// Order between threads that use one device. What a thread launches on a GPU runs in that thread's order, beside what
// others launch:
//   event<D> before;                     // here
//   other thread: before.wait();         // what it launches from now on finds what was launched here done
// A device that runs work in the call that asks for it has nothing to wait for.

#include <cairn/core/tensor.hpp>

namespace cairn {

namespace detail {
struct no_event {
    void wait() const {}
};
template <Device D>
struct event_on {
    using type = no_event;
};
template <Device D>
    requires requires { typename D::event; }
struct event_on<D> {
    using type = typename D::event;
};
}  // namespace detail

/// What the calling thread has launched on its D until now. Copies are the same moment.
template <Device D>
using event = typename detail::event_on<D>::type;

}  // namespace cairn
