// The laws of kernels and libraries on a GPU: this folder. Run by benchmarks/gpu/run; without a GPU the program says so
// and ends with 77.

#define CATCH_CONFIG_RUNNER
#include "data/prefetcher_laws.hpp"
#include "device/cuda/captured_graph_laws.hpp"
#include "device/cuda/kernel_laws.hpp"

#include <cairn/comm/nccl.hpp>
#include <cairn/comm/self.hpp>

#include <cstdio>

namespace cairn {

static_assert(CopiesBeside<cuda> && GraphCapture<cuda>);

TEST_CASE("GPU: batches arrive as they are on the host", "[gpu]") {
    test::prefetcher_laws::batches_are_the_hosts<cuda>();
}

TEST_CASE("GPU: inputs made of pixels have the host's bits", "[gpu]") {
    test::prefetcher_laws::inputs_are_what_the_table_says<cuda, float>();
    test::prefetcher_laws::inputs_are_what_the_table_says<cuda, bfloat16>();
    test::prefetcher_laws::pixels_give_the_hosts_bits<cuda>();
    test::prefetcher_laws::pixels_of_what_is_left<cuda>();
    test::prefetcher_laws::pixels_go_on_elsewhere<cuda>();
}

TEST_CASE("GPU: recorded launches compute what plain ones do", "[gpu]") {
    captured_graph_laws::same_results<cuda>();
    captured_graph_laws::shared_memory<cuda>();
    captured_graph_laws::waiting_is_refused<cuda>();
}

TEST_CASE("GPU: one rank over NCCL", "[gpu]") {
    self_communicator alone;
    nccl_communicator c(alone);
    const auto host = kernel_laws::drawn<float>({1000}, 120);
    auto data = tensor<float, cuda>::copy_of(host), room = tensor<float, cuda>::zeros({1000});
    c.vendor()->all_reduce(data.span(), reduction::sum);
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
    const auto held = tensor<float, cuda>({1 << 20}, memory_category::parameters);
    CHECK_THROWS_WITH((tensor<float, cuda>({index_t{1} << 50})), Catch::Contains("out of memory of GPU 0") &&
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
