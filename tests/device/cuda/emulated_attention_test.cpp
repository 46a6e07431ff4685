// Attention of GPUs on an emulated one.

#include "device/cuda/attention_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

namespace cairn {

TEST_CASE("GPU attention, emulated: results are the host's, threads forwards and backwards", "[cuda][attention]") {
    for (const auto& law : attention_laws::all<emulated_gpu>()) SECTION(law.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        emulated_gpu::backwards = backwards;
        law.check();
        emulated_gpu::backwards = false;
    }
}

}  // namespace cairn
