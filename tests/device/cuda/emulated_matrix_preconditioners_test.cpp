// Shampoo, SOAP and Muon on the emulated GPU, and their passes on both devices.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/label_sampling_laws.hpp"
#include "device/cuda/matrix_preconditioner_kernel_laws.hpp"
#include "optim/matrix_preconditioner_laws.hpp"

#include <cairn/device/grid/curvature.hpp>

namespace cairn {

TEST_CASE("GPU passes of matrix preconditioners, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(matrix_direction_laws::all<emulated_gpu>());
}

TEST_CASE("GPU draws from outputs and sums of products, emulated: results are those of plain loops", "[cuda]") {
    check_each(label_sampling_laws::all<emulated_gpu>());
}

TEST_CASE("draws from outputs on the host: results are those of plain loops", "[cpu]") {
    SECTION("classes") label_sampling_laws::classes<cpu>();
    SECTION("normals and pixels") label_sampling_laws::normals_and_pixels<cpu>();
}

TEST_CASE("passes of matrix preconditioners on the host: results are those of plain loops", "[cpu]") {
    check_each(matrix_direction_laws::all<cpu>());
}

TEST_CASE("GPU matrix preconditioners, emulated: the twins of the host's laws", "[cuda]") {
    check_each(matrix_preconditioner_laws::all<emulated_gpu>());
}

TEST_CASE("GPU matrix preconditioners, emulated: only steps that decompose wait, and Muon's never do", "[cuda]") {
    using gpu = emulated_gpu;
    matrix_preconditioner_laws::with_each<gpu, float>([](const std::string& name, auto make) {
        CAPTURE(name);
        matrix_preconditioner_laws::matrices<gpu, float> m;
        const auto p = make(*m.memory);
        std::vector<index_t> waiting;
        for (std::uint32_t step = 1; step <= 6; ++step) {
            m.draw(step);
            const index_t waits = gpu::waits, launches = gpu::launches;
            p->precondition(1, 0.1);
            CHECK(gpu::launches > launches);
            if (gpu::waits != waits) waiting.push_back(step);
        }
        // Shampoo: 1, 2, then every third. SOAP: the first, then the third after it.
        CHECK(waiting == (name == "muon"      ? std::vector<index_t>{}
                          : name == "shampoo" ? std::vector<index_t>{1, 2, 3, 6}
                                              : std::vector<index_t>{1, 4}));
    });
}

}  // namespace cairn
