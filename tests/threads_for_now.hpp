#pragma once

#include <cairn/core/parallel.hpp>

namespace cairn::test {

/// Sets the number of threads for as long as it lives.
struct threads_for_now {
    explicit threads_for_now(int n) : before(threads()) { set_threads(n); }
    ~threads_for_now() { set_threads(before); }
    threads_for_now(const threads_for_now&) = delete;
    int before;
};

}  // namespace cairn::test
