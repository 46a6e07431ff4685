#pragma once
// Laws on the emulated GPU, its threads forwards and backwards: a section each.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/kernel_laws.hpp"

namespace cairn {

inline void check_both_ways(const std::vector<law>& laws) {
    for (const law& one : laws) SECTION(one.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        struct order {
            explicit order(bool b) { emulated_gpu::backwards = b; }
            ~order() { emulated_gpu::backwards = false; }
        } const of_threads(backwards);
        one.check();
    }
}

}  // namespace cairn
