// Optimizers, K-FAC and the trainer. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/kfac_laws.hpp"
#include "device/cuda/label_sampling_laws.hpp"
#include "device/cuda/library_laws.hpp"
#include "device/cuda/matrix_preconditioner_kernel_laws.hpp"
#include "device/cuda/optimizer_laws.hpp"
#include "device/cuda/recorded_laws.hpp"
#include "device/cuda/trainer_laws.hpp"
#include "device/cuda/training_laws.hpp"
#include "optim/matrix_preconditioner_laws.hpp"

namespace cairn {

TEST_CASE("GPU: networks train as on the host", "[gpu]") {
    check_each(training_laws::all<cuda, float>());
    check_each(training_laws::in_double<cuda>());
}

TEST_CASE("GPU: K-FAC is an explicit solve, counts what is not finite and can be resumed", "[gpu]") {
    check_each(kfac_laws::all<cuda, float>());
}

TEST_CASE("GPU: Shampoo, SOAP, Muon and draws from outputs are plain loops, and can be resumed", "[gpu]") {
    check_each(label_sampling_laws::all<cuda>());
    check_each(matrix_direction_laws::all<cuda>());
    check_each(matrix_preconditioner_laws::all<cuda>());
}

TEST_CASE("GPU: the trainer names what is not finite; first values and recomputed layers are the host's", "[gpu]") {
    check_each(trainer_laws::all<cuda, float>());
}

TEST_CASE("GPU: recorded steps have the bits of steps that are launched one by one", "[gpu]") {
    check_each(recorded_laws::all<cuda>());
}

TEST_CASE("GPU: optimizers are plain loops, can be resumed and clipped", "[gpu]") {
    check_each(optimizer_laws::all<cuda>());
}

}  // namespace cairn
