// Recorded training steps on the emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/recorded_laws.hpp"

namespace cairn {

TEST_CASE("GPU recorded steps, emulated: the bits of steps that are launched one by one", "[cuda]") {
    check_each(recorded_laws::all<emulated_gpu>());
}

TEST_CASE("emulated GPU: the source of a copy from the host stays unchanged until it is waited for", "[cuda]") {
    using gpu = emulated_gpu;
    tensor<float> here({4}, memory_category::workspace, gpu::host_memory());
    std::fill(here.span().begin(), here.span().end(), 1.0f);
    tensor<float, gpu> there({4});
    const auto copy = gpu::begin_copy_to_device(there.data(), here.data(), here.bytes());
    here[2] = 5;
    CHECK_THROWS_WITH(copy.finish(), Catch::Contains("was changed before anybody waited"));
    const auto again = gpu::begin_copy_to_device(there.data(), here.data(), here.bytes());
    again.finish();
    here[2] = 6;
    gpu::wait();
    CHECK(there.on_host()[2] == 5);
}

}  // namespace cairn
