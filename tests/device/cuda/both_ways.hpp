#pragma once
// Laws on the emulated GPU, its threads forwards and backwards: a section each.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/kernel_laws.hpp"

namespace cairn {

inline void check_both_ways(const std::vector<kernel_laws::law>& laws) {
    for (const auto& law : laws) SECTION(law.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        struct order {
            explicit order(bool b) { emulated_gpu::backwards = b; }
            ~order() { emulated_gpu::backwards = false; }
        } const of_threads(backwards);
        law.check();
    }
}

}  // namespace cairn
