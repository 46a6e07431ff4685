// Compressors' messages, and gradients that travel as such. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/codec_laws.hpp"
#include "device/cuda/reduction_laws.hpp"

#include <cairn/device/cuda/runtime.hpp>

namespace cairn {

TEST_CASE("GPU: compressors' messages are the host's", "[gpu]") {
    for (const auto& law : codec_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: compressed sums over ranks and their states are the host's", "[gpu]") {
    for (const auto& law : reduction_laws::all<cuda>()) SECTION(law.name) law.check();
}

}  // namespace cairn
