#pragma once
// Order between the launches of several threads on one device. Launches of one thread run in order; those of different
// threads run concurrently:
//   event<D> before;                     // here
//   other thread: before.wait();         // its later launches run after the launches before `before`
// A synchronous device needs no waiting.

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

/// The launches of the calling thread on its D until now. Copies mark the same moment.
template <Device D>
using event = typename detail::event_on<D>::type;

}  // namespace cairn
