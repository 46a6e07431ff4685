// Compressors' messages made and read by kernels of GPUs, on an emulated one, its threads forwards and backwards.

#include "device/cuda/codec_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

namespace cairn {

TEST_CASE("GPU codecs, emulated: messages are the host's, byte for byte", "[cuda]") {
    for (const auto& law : codec_laws::all<emulated_gpu>()) SECTION(law.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        emulated_gpu::backwards = backwards;
        law.check();
        emulated_gpu::backwards = false;
    }
}

}  // namespace cairn
