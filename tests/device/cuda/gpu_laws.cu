// The laws of kernels and libraries on a GPU. Run by benchmarks/gpu/run; without a GPU the program says so and ends with 77.

#define CATCH_CONFIG_RUNNER
#include "data/staging_laws.hpp"
#include "device/cuda/attention_laws.hpp"
#include "device/cuda/bfloat16_laws.hpp"
#include "device/cuda/codec_laws.hpp"
#include "device/cuda/curvature_laws.hpp"
#include "device/cuda/huge_laws.hpp"
#include "device/cuda/kfac_laws.hpp"
#include "device/cuda/layer_laws.hpp"
#include "device/cuda/library_laws.hpp"
#include "device/cuda/loss_laws.hpp"
#include "device/cuda/norm_laws.hpp"
#include "device/cuda/optimizer_laws.hpp"
#include "device/cuda/pointwise_laws.hpp"
#include "device/cuda/pool_laws.hpp"
#include "device/cuda/reduction_laws.hpp"
#include "device/cuda/refusal_laws.hpp"
#include "device/cuda/repeat_laws.hpp"
#include "device/cuda/replay_laws.hpp"
#include "device/cuda/softmax_laws.hpp"
#include "device/cuda/sum_laws.hpp"
#include "device/cuda/trainer_laws.hpp"
#include "device/cuda/training_laws.hpp"
#include "device/cuda/transformer_laws.hpp"

#include <cairn/comm/nccl.hpp>
#include <cairn/comm/self.hpp>

#include <cstdio>

namespace cairn {

TEST_CASE("GPU: kernels give the host's results", "[gpu]") {
    for (const auto& law : kernel_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: attention gives the host's results", "[gpu]") {
    for (const auto& law : attention_laws::all<cuda>()) SECTION(law.name) law.check();
}

namespace {

void check(const std::vector<kernel_laws::law>& laws) {
    for (const auto& law : laws) SECTION(law.name) law.check();
}

}  // namespace

TEST_CASE("GPU: normalisation gives the results of plain loops", "[gpu]") { check(norm_laws::all<cuda>()); }
TEST_CASE("GPU: pooling gives the results of plain loops", "[gpu]") { check(pool_laws::all<cuda>()); }
TEST_CASE("GPU: softmax gives the results of plain loops", "[gpu]") { check(softmax_laws::all<cuda>()); }
TEST_CASE("GPU: reductions give the results of long double", "[gpu]") {
    check(sum_laws::all<cuda>());
    check(sum_laws::of_long_arrays<cuda>());
}
TEST_CASE("GPU: elementwise kernels give the results of plain loops", "[gpu]") { check(pointwise_laws::all<cuda>()); }
TEST_CASE("GPU: kernels refuse what the host refuses", "[gpu]") { check(refusal_laws::all<cuda>()); }
TEST_CASE("GPU: kernels give the same bits again", "[gpu]") { repeat_laws::same_bits_again<cuda>(); }
TEST_CASE("GPU: kernels in bfloat16 give the results of float, rounded once", "[gpu]") {
    check(bfloat16_laws::all<cuda>());
}
TEST_CASE("GPU: losses give the values and gradients of plain loops", "[gpu]") { check(loss_laws::all<cuda>()); }
TEST_CASE("GPU: the laws of layers hold", "[gpu]") { check(device_layer_laws::all<cuda, false>()); }

TEST_CASE("GPU: kernels of curvature give the results of plain loops", "[gpu]") {
    for (const auto& law : curvature_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: compressors' messages are the host's", "[gpu]") {
    for (const auto& law : codec_laws::all<cuda>()) SECTION(law.name) law.check();
}

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
    SECTION("choices of convolutions") library_laws::convolution_choices();
    SECTION("convolutions, double") library_laws::convolutions<double>(1e-13);
    SECTION("random convolutions, float") library_laws::random_convolutions<float>(2e-5);
    SECTION("random convolutions, double") library_laws::random_convolutions<double>(1e-13);
    SECTION("random convolutions, bfloat16") library_laws::random_convolutions<bfloat16>(0.02);
    SECTION("convolutions, float") library_laws::convolutions<float>(2e-5);
    SECTION("convolutions, bfloat16") library_laws::convolutions<bfloat16>(0.02);
    SECTION("convolutions, float16") library_laws::convolutions<float16>(0.02 / 8);
    SECTION("convolutions, TF32") library_laws::in_tf32([] { library_laws::convolutions<float>(2e-3); });
    SECTION("decompositions, float") library_laws::decompositions<float>();
    SECTION("decompositions, double") library_laws::decompositions<double>();
    SECTION("refused decompositions, float") library_laws::decomposition_errors<float>();
    SECTION("refused decompositions, double") library_laws::decomposition_errors<double>();
}

TEST_CASE("GPU: passes over matrices give the results of plain loops", "[gpu]") {
    for (const auto& law : matrix_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: arrays of more than 2^31 elements", "[gpu]") {
    for (const auto& law : huge_laws::all()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: networks train as on the host", "[gpu]") {
    for (const auto& law : training_laws::all<cuda, float>()) SECTION(law.name) law.check();
    for (const auto& law : training_laws::in_double<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: K-FAC is an explicit solve, counts what is not finite and can be resumed", "[gpu]") {
    for (const auto& law : kfac_laws::all<cuda, float>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: the trainer names what is not finite; first values and recomputed layers are the host's", "[gpu]") {
    for (const auto& law : trainer_laws::all<cuda, float>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: optimizers are plain loops, can be resumed and clipped", "[gpu]") {
    for (const auto& law : optimizer_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: compressed sums over ranks and their states are the host's", "[gpu]") {
    for (const auto& law : reduction_laws::all<cuda>()) SECTION(law.name) law.check();
}

TEST_CASE("GPU: a transformer trains as on the host", "[gpu]") {
    SECTION("float") transformer_laws::trains<cuda, float>();
    SECTION("bfloat16") transformer_laws::trains<cuda, float, bfloat16>();
}

static_assert(CopiesBeside<cuda> && Records<cuda>);

TEST_CASE("GPU: batches arrive as they are on the host", "[gpu]") { test::staging_laws::batches_are_the_hosts<cuda>(); }

TEST_CASE("GPU: inputs made of pixels have the host's bits", "[gpu]") {
    test::staging_laws::inputs_are_what_the_table_says<cuda, float>();
    test::staging_laws::inputs_are_what_the_table_says<cuda, bfloat16>();
    test::staging_laws::pixels_give_the_hosts_bits<cuda>();
    test::staging_laws::pixels_of_what_is_left<cuda>();
    test::staging_laws::pixels_go_on_elsewhere<cuda>();
}

TEST_CASE("GPU: recorded launches compute what plain ones do", "[gpu]") {
    replay_laws::same_results<cuda>();
    replay_laws::shared_memory<cuda>();
    replay_laws::waiting_is_refused<cuda>();
}

TEST_CASE("GPU: one rank over NCCL", "[gpu]") {
    self_communicator alone;
    nccl_communicator c(alone);
    const auto host = kernel_laws::drawn<float>({1000}, 120);
    auto data = tensor<float, cuda>::copy_of(host), room = tensor<float, cuda>::zeros({1000});
    c.native_all_reduce(data.span());
    kernel_laws::check_close(data, host, 0);
    auto part = c.split(0, 0);
    CHECK(part.size() == 1);
    auto got = irecv(part, room.span(), 0, 1), sent = isend(part, data.span(), 0, 1);
    got.wait();
    sent.wait();
    kernel_laws::check_close(room, host, 0);
    CHECK_THROWS_WITH(isend(c, data.span(), 1, 0), Catch::Contains("there is no rank 1"));
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
