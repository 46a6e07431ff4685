// K-FAC on the emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/kfac_laws.hpp"

namespace cairn {

TEST_CASE("GPU K-FAC, emulated: explicit solves, batches that are not finite, resumption", "[cuda]") {
    check_each(kfac_laws::all<emulated_gpu, double>());
    SECTION("convolutions, float") kfac_laws::convolutions<emulated_gpu, float>();
}

TEST_CASE(
    "GPU K-FAC, emulated: with inverse_staleness, the steps until decompositions are used have a share of them each",
    "[cuda]") {
    using gpu = emulated_gpu;
    kfac_config c{.damping = 0.05,
                  .factor_update_interval = 8,
                  .inverse_update_interval = 8,
                  .inverse_staleness = 2,
                  .form = kfac_form::eigen};
    kfac_laws::small_curved<gpu, float> k(c, 6);  // one batch would be all of them
    for (std::uint32_t step = 0; step < 16; ++step) {
        const bool statistics = step % 8 == 0, decomposes = step == 0 || (step >= 8 && step < 10);
        k.pass_over(step, k.curvature->begin_step());
        const index_t waits = gpu::waits;
        k.curvature->precondition(6, 0.1);
        CAPTURE(step);
        CHECK((gpu::waits != waits) == (statistics || decomposes));
    }
}

TEST_CASE("GPU K-FAC, emulated: the host waits once for all statistics, however many layers there are", "[cuda]") {
    using gpu = emulated_gpu;
    for (const int layers : {1, 6}) {
        kfac_laws::small_curved<gpu, float> k({.factor_update_interval = 1, .inverse_update_interval = 8}, layers);
        for (std::uint32_t step = 0; step < 4; ++step) {
            k.pass_over(step, k.curvature->begin_step());
            const index_t waits = gpu::waits;
            k.curvature->precondition(6, 0.1);
            if (step == 3) CHECK(gpu::waits - waits == 1);  // a step without decompositions
        }
    }
}

}  // namespace cairn
