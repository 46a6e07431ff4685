// Compressors' messages made and read by kernels of GPUs, on an emulated one, its threads forwards and backwards.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/codec_laws.hpp"

namespace cairn {

TEST_CASE("GPU codecs, emulated: messages are the host's, byte for byte", "[cuda]") {
    check_both_ways(codec_laws::all<emulated_gpu>());
}

}  // namespace cairn
