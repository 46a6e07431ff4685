#pragma once
// What the operating system says of this process.

#include <cairn/core/shape.hpp>

#include <fstream>
#include <string>

namespace cairn {

/// Highest resident memory so far, in bytes (VmHWM); 0 where the system does not tell.
inline index peak_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
    return 0;
}

}  // namespace cairn
