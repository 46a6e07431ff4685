// Laws of cuBLASLt's, cuDNN's and cuSOLVER's results. On a GPU; the same laws run on an emulated one
// (emulated_*_test.cpp).

#include "device/cuda/convolution_laws.hpp"
#include "device/cuda/library_laws.hpp"

namespace cairn {

TEST_CASE("GPU: products, convolutions and decompositions are the host's", "[gpu]") {
    SECTION("products, float") library_laws::products<float>();
    SECTION("products, double") library_laws::products<double>();
    SECTION("products, bfloat16") library_laws::rounded_products<bfloat16>(0.02);
    SECTION("products, float16") library_laws::rounded_products<float16>(0.02 / 8);
    SECTION("products, TF32") library_laws::in_tf32([] { library_laws::rounded_products<float>(2e-3); });
    SECTION("no products, float") library_laws::empty_products<float>();
    SECTION("no products, double") library_laws::empty_products<double>();
    SECTION("batches, float") library_laws::batched_products<float>();
    SECTION("batches, double") library_laws::batched_products<double>();
    SECTION("refused products") refusals::bad_products<cuda>();
    SECTION("products, bfloat16 into float") library_laws::unrounded_products();
    SECTION("work of products") library_laws::counted_products();
    SECTION("bias, float") library_laws::products_with_bias<float>(2e-5);
    SECTION("bias, double") library_laws::products_with_bias<double>(1e-12);
    SECTION("bias, bfloat16") library_laws::products_with_bias<bfloat16>(0.02);
    SECTION("bias, TF32") library_laws::in_tf32([] { library_laws::products_with_bias<float>(2e-3); });
    SECTION("gradients of linear, float") library_laws::gradients_of_linear<float>(2e-5);
    SECTION("gradients of linear, double") library_laws::gradients_of_linear<double>(1e-12);
    SECTION("gradients of linear, bfloat16") library_laws::gradients_of_linear<bfloat16>(2e-5);
    SECTION("symmetric, float") library_laws::symmetric_products<float>();
    SECTION("symmetric, double") library_laws::symmetric_products<double>();
    SECTION("symmetric, bfloat16") library_laws::symmetric_products<bfloat16>();
    SECTION("refused convolutions") refusals::impossible_geometries<cuda>();
    SECTION("convolutions at the edge") library_laws::convolution_edges();
    SECTION("choices of convolutions") library_laws::convolution_autotune();
    SECTION("convolutions, double") library_laws::convolutions<double>(1e-13);
    SECTION("random convolutions, float") library_laws::random_convolutions<float>(2e-5);
    SECTION("random convolutions, double") library_laws::random_convolutions<double>(1e-13);
    SECTION("random convolutions, bfloat16") library_laws::random_convolutions<bfloat16>(0.02);
    SECTION("convolutions, float") library_laws::convolutions<float>(2e-5);
    SECTION("convolutions, bfloat16") library_laws::convolutions<bfloat16>(0.02);
    SECTION("convolutions, float16") library_laws::convolutions<float16>(0.02 / 8);
    SECTION("convolutions, TF32") library_laws::in_tf32([] { library_laws::convolutions<float>(2e-3); });
    for (const auto& law : convolution_laws::all<cuda>())
        SECTION(std::string("products of patches, ") + law.name) law.check();
    SECTION("decompositions, float") library_laws::decompositions<float>();
    SECTION("decompositions, double") library_laws::decompositions<double>();
    SECTION("batches of decompositions, float") matrix_laws::batches<cuda, float>();
    SECTION("batches of decompositions, double") matrix_laws::batches<cuda, double>();
    SECTION("refused decompositions, float") library_laws::decomposition_errors<float>();
    SECTION("refused decompositions, double") library_laws::decomposition_errors<double>();
}

}  // namespace cairn
