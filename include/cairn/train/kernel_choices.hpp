#pragma once
// The choices of kernels (device/autotune.hpp) as a state of a run has them: without the same kernels a continuation
// has other bits.
//   the machine's fingerprint (perf/machine.hpp)
//   key<TAB>choice                                 each that the run has asked for

#include <cairn/device/autotune.hpp>
#include <cairn/perf/machine.hpp>

#include <sstream>
#include <string>
#include <utility>

namespace cairn {

/// Of this process.
inline std::string kernel_choices() {
    std::string text = perf::fingerprint() + '\n';
    for (const auto& [key, entry] : autotune_cache::global().entries())
        if (autotune_cache::global().is_in_use(key)) text += concat(key, '\t', entry.choice, '\n');
    return text;
}

/// The machine that a text of kernel_choices() is of.
inline std::string machine_of_choices(const std::string& text) { return text.substr(0, text.find('\n')); }

/// They are taken from now on, over others. One that is no candidate here is made anew at first use.
inline void take_kernel_choices(const std::string& text) {
    std::istringstream lines(text);
    std::string key, choice;
    std::getline(lines, key);  // the machine
    while (std::getline(lines, key, '\t') && std::getline(lines, choice)) {
        autotune_cache::global().set(key, {choice, {}});
        autotune_cache::global().use(key);
    }
}

}  // namespace cairn
