#pragma once
// The cores that this process may use, as its launcher has bound it.

#include <cairn/core/error.hpp>

#include <string>

#include <sched.h>

namespace cairn {

/// See the top of the file.
struct allowed_cores {
    std::string text;  ///< such as "0-2,5"; "" where the system does not say
    int count = 0;
};

inline allowed_cores read_allowed_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    allowed_cores found{{}, CPU_COUNT(&allowed)};
    for (int c = 0; c < CPU_SETSIZE; ++c) {
        if (!CPU_ISSET(c, &allowed) || (c > 0 && CPU_ISSET(c - 1, &allowed))) continue;
        int last = c;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) ++last;
        found.text += concat(found.text.empty() ? "" : ",", c, last > c ? concat('-', last) : "");
    }
    return found;
}

}  // namespace cairn
