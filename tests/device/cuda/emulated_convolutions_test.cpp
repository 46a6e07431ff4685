// Convolutions as products of patches on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/convolution_laws.hpp"
#include "device/cuda/emulated_libraries.hpp"

namespace cairn {

TEST_CASE("GPU convolutions by products of patches, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(convolution_laws::all<emulated_gpu>());
}

TEST_CASE("emulated convolutions refuse what cuDNN refuses", "[cuda]") {
    conv_geometry g{.n = 2, .in = {1, 6, 5}, .c_in = 3, .c_out = 7, .kernel = {1, 3, 3}, .pad = {0, 1, 1}};
    g = g.with_output();
    const auto x = tensor<float, emulated_gpu>::zeros({g.x_elements() + 1}),
               w = tensor<float, emulated_gpu>::zeros({g.w_elements()});
    tensor<float, emulated_gpu> y({g.y_elements()});
    const float* const no_bias = nullptr;
    const auto forward = [&](index_t off) {
        conv_forward(emulated_gpu{}, g, x.data() + off, w.data(), no_bias, y.data());
    };
    CHECK_THROWS_WITH(forward(1), Catch::Contains("multiples of 16 bytes"));
    const auto recorded = [&] {
        emulated_gpu::recording record;
        forward(0);
        return record.end();
    };
    CHECK_THROWS_WITH(recorded(), Catch::Contains("run it once before"));
    forward(0);
    recorded().launch();
}

}  // namespace cairn
