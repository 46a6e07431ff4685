// Compressors' messages, and gradients that travel as such. On a GPU; the same laws run on an emulated one
// (emulated_*_test.cpp).

#include "device/cuda/codec_laws.hpp"
#include "device/cuda/reduction_laws.hpp"

#include <cairn/device/cuda/runtime.hpp>

namespace cairn {

TEST_CASE("GPU: compressors' messages are the host's", "[gpu]") { check_each(codec_laws::all<cuda>()); }

TEST_CASE("GPU: compressed sums over ranks and their states are the host's", "[gpu]") {
    check_each(reduction_laws::all<cuda>());
}

}  // namespace cairn
