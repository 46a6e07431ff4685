#pragma once
// What tests of convolutions that are chosen on the emulated cuDNN share.

#include "cudnn/emulated_cudnn.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/law_numbers.hpp"
#include "forced_choice.hpp"
#include "nccl/streamed_gpu.hpp"
#include "oracle/conv.hpp"

#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Engines that are suggested, and what is chosen for `choice`, while it lives; what a test then wants them to do wrong
/// ends with it.
struct conv_world {
    forced_choice choice;

    conv_world(const char* of, const char* name, std::vector<emulated::cudnn_engine> engines = {{}})
        : choice(of, name) {
        autotune_cache::global().clear();
        emulated::cudnn_engines() = std::move(engines);
    }
    ~conv_world() {
        emulated::cudnn_totals_factor() = 1;
        emulated::cudnn_adds_to_totals() = emulated::cudnn_ignores_beta() = false;
        emulated::cudnn_engines() = {{}};
    }
};

/// Engines that may not run: other bits every time, one that cannot, one that wants too much memory.
inline std::vector<emulated::cudnn_engine> engines_that_may_not_run() {
    using emulated::cudnn_engine;
    return {cudnn_engine{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, cudnn_engine{.works = false},
            cudnn_engine{.workspace = (std::int64_t{1} << 30) + 1}};
}

/// Of all choices whose keys begin with this.
inline std::vector<std::string> names_measured(const std::string& beginning) {
    std::vector<std::string> names;
    for (const auto& [key, entry] : autotune_cache::global().entries())
        if (key.starts_with(beginning))
            for (const auto& one : entry.seconds) names.push_back(one.first);
    return names;
}

}  // namespace cairn
