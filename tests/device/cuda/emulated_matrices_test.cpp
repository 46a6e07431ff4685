// Passes over matrices on the emulated GPU, threads forwards and backwards; and what decompositions refuse, through its
// host stand-ins.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/matrix_laws.hpp"

namespace cairn {

TEST_CASE("GPU passes over matrices, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(matrix_laws::all<emulated_gpu>());
}

TEMPLATE_TEST_CASE("GPU decompositions of several matrices, emulated: those of each", "[cuda][linalg]", float, double) {
    matrix_laws::batches<emulated_gpu, TestType>();
    matrix_laws::batches<cpu, TestType>();
    CHECK(matrices_at_once(emulated_gpu{}, 512) == 64);
    CHECK(matrices_at_once(emulated_gpu{}, 1) == 256);
    CHECK(matrices_at_once(emulated_gpu{}, 513) == 1);
    CHECK(matrices_at_once(cpu{}, 64) == 1);
}

TEMPLATE_TEST_CASE("decompositions refuse what is not finite in the same words", "[cuda][linalg]", float, double) {
    using T = TestType;
    const auto refuse = [](auto call) { return [=](const tensor<T, emulated_gpu>& m) { call(m.on_host()); }; };
    matrix_laws::broken_elements<emulated_gpu, T>(refuse([](const tensor<T>& m) { eigh(cpu{}, m); }), "eigh");
    matrix_laws::broken_elements<emulated_gpu, T>(refuse([](const tensor<T>& m) { inverse_of_positive(cpu{}, m); }),
                                                  "inverse");
    matrix_laws::broken_elements<emulated_gpu, T>(refuse([](const tensor<T>& m) { orthonormal_columns(cpu{}, m); }),
                                                  "orthonormal columns");
    CHECK_THROWS_WITH(inverse_of_positive(cpu{}, tensor<T>::zeros({2, 3})), Catch::Contains("(2, 3)"));
    CHECK_THROWS_WITH(inverse_of_positive(cpu{}, tensor<T>({0, 0})), Catch::Contains("square"));
}

TEST_CASE("GPU kernels: quotients and remainders on both sides of 2^32", "[cuda]") {
    constexpr index_t top = index_t{1} << 32;
    for (const index_t a : {index_t{0}, index_t{1}, top - 1, top, top + 1, 3 * top + 17, index_t{1} << 61})
        for (const index_t b : {index_t{1}, index_t{3}, index_t{1} << 31, top - 1, top, top + 5}) {
            CAPTURE(a, b);
            CHECK(grid::quotient(a, b) == a / b);
            CHECK(grid::remainder(a, b) == a % b);
        }
}

}  // namespace cairn
