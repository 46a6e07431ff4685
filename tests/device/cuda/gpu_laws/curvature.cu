// K-FAC and matrix preconditioners. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/kfac_laws.hpp"
#include "device/cuda/label_sampling_laws.hpp"
#include "device/cuda/library_laws.hpp"
#include "device/cuda/matrix_preconditioner_kernel_laws.hpp"
#include "optim/matrix_preconditioner_laws.hpp"

namespace cairn {

TEST_CASE("GPU: K-FAC is an explicit solve, counts what is not finite and can be resumed", "[gpu]") {
    check_each(kfac_laws::all<cuda, float>());
}

TEST_CASE("GPU: Shampoo, SOAP, Muon and draws from outputs are plain loops, and can be resumed", "[gpu]") {
    check_each(label_sampling_laws::all<cuda>());
    check_each(matrix_direction_laws::all<cuda>());
    check_each(matrix_preconditioner_laws::all<cuda>());
}

}  // namespace cairn
