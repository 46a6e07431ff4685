#pragma once
// Laws as data: each test program runs them for its own types and devices.

#include "catch.hpp"

#include <vector>

namespace cairn {

struct law {
    const char* name;
    void (*check)();
};

/// A section for each.
inline void check_each(const std::vector<law>& laws) {
    for (const law& one : laws) SECTION(one.name) one.check();
}

}  // namespace cairn
