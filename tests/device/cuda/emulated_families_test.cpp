// Pooling, softmax and what kernels refuse, on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/pool_laws.hpp"
#include "device/cuda/refusal_laws.hpp"
#include "device/cuda/softmax_laws.hpp"

namespace cairn {

TEST_CASE("GPU pooling, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(pool_laws::all<emulated_gpu>());
}

TEST_CASE("GPU softmax, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(softmax_laws::all<emulated_gpu>());
}

TEST_CASE("GPU kernels, emulated: refuse what the host refuses", "[cuda]") {
    check_both_ways(refusal_laws::all<emulated_gpu>());
}

TEST_CASE("GPU kernels, emulated: division by a number known before the launch is division", "[cuda]") {
    for (const index_t by : {1, 2, 3, 7, 8, 641, 65535, 65536, 65537, 1000003, 2147483647}) {
        const grid::fixed_divisor divided(by);
        std::vector<index_t> all{0, 1, by - 1, by, by + 1, 3 * by - 1, 3 * by, (index_t{1} << 33) + 7};
        for (index_t n = 2; n <= index_t{1} << 32; n *= 2) all.insert(all.end(), {n - 1, n, n / 3 * 2});
        for (const index_t n : all) {
            CAPTURE(n, by);
            index_t above = n;
            CHECK(divided.take(above) == n % by);
            CHECK(above == n / by);
        }
    }
}

}  // namespace cairn
