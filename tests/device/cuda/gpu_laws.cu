// The laws of kernels and libraries on a GPU. Run by benchmarks/gpu/run; without a GPU the program says so and ends with 77.

#define CATCH_CONFIG_RUNNER
#include "device/cuda/library_laws.hpp"
#include "device/cuda/training_laws.hpp"

#include <cstdio>

namespace cairn {

TEST_CASE("GPU: kernels give the host's results", "[gpu]") {
    for (const auto& law : kernel_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: products, convolutions and decompositions are the host's", "[gpu]") {
    SECTION("products, float") library_laws::products<float>();
    SECTION("products, double") library_laws::products<double>();
    SECTION("convolutions, float") library_laws::convolutions<float>();
    SECTION("decompositions, float") library_laws::decompositions<float>();
    SECTION("decompositions, double") library_laws::decompositions<double>();
}

TEST_CASE("GPU: networks train as on the host", "[gpu]") {
    for (const auto& law : training_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: memory that is out is an error that says what was asked, held and free", "[gpu]") {
    const auto held = tensor<float, cuda>({1 << 20}, category::parameters);
    CHECK_THROWS_WITH((tensor<float, cuda>({index{1} << 50})), Catch::Contains("out of memory of GPU 0") &&
                                                                   Catch::Contains("parameters") &&
                                                                   Catch::Contains("free on the GPU"));
}

}  // namespace cairn

int main(int argc, char** argv) {
    try {
        cairn::cuda::choose(0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "no test ran: %s\n", e.what());
        return 77;
    }
    return Catch::Session().run(argc, argv);
}
