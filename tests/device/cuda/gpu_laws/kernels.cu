// Kernels of our own. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/attention_laws.hpp"
#include "device/cuda/bfloat16_laws.hpp"
#include "device/cuda/curvature_laws.hpp"
#include "device/cuda/huge_laws.hpp"
#include "device/cuda/kernel_laws.hpp"
#include "device/cuda/matrix_laws.hpp"
#include "device/cuda/norm_laws.hpp"
#include "device/cuda/pointwise_laws.hpp"
#include "device/cuda/pool_laws.hpp"
#include "device/cuda/refusal_laws.hpp"
#include "device/cuda/repeat_laws.hpp"
#include "device/cuda/softmax_laws.hpp"
#include "device/cuda/stash_laws.hpp"
#include "device/cuda/sum_laws.hpp"
#include "forced_choice.hpp"

#include <cairn/device/cuda/attention_plans.hpp>
#include <cairn/device/cuda/runtime.hpp>

namespace cairn {

TEST_CASE("GPU: kernels give the host's results", "[gpu]") { check_each(kernel_laws::all<cuda>()); }

TEST_CASE("GPU: attention gives the host's results", "[gpu]") {
    const forced_choice own("attention_gpu", "own");
    check_each(attention_laws::all<cuda>());
}

TEST_CASE("GPU: attention by cuDNN, and by what is faster, gives the host's results", "[gpu]") {
    for (const char* name : {"cudnn0", "cudnn1", ""})
        for (const law& one : attention_laws::all<cuda>()) SECTION(concat(one.name, ' ', name)) {
                const forced_choice kernel("attention_gpu", name);
                one.check();
            }
}

TEST_CASE("GPU: normalisation gives the results of plain loops", "[gpu]") { check_each(norm_laws::all<cuda>()); }

TEST_CASE("GPU: pooling gives the results of plain loops", "[gpu]") { check_each(pool_laws::all<cuda>()); }

TEST_CASE("GPU: softmax gives the results of plain loops", "[gpu]") { check_each(softmax_laws::all<cuda>()); }

TEST_CASE("GPU: reductions give the results of long double", "[gpu]") {
    check_each(sum_laws::all<cuda>());
    check_each(sum_laws::of_long_arrays<cuda>());
}

TEST_CASE("GPU: elementwise kernels give the results of plain loops", "[gpu]") {
    check_each(pointwise_laws::all<cuda>());
}

TEST_CASE("GPU: activations are packed as on the host", "[gpu]") { check_each(stash_laws::all<cuda, false>()); }

TEST_CASE("GPU: kernels refuse what the host refuses", "[gpu]") { check_each(refusal_laws::all<cuda>()); }

TEST_CASE("GPU: kernels give the same bits again", "[gpu]") { repeat_laws::same_bits_again<cuda>(); }

TEST_CASE("GPU: kernels in bfloat16 give the results of float, rounded once", "[gpu]") {
    check_each(bfloat16_laws::all<cuda>());
}

TEST_CASE("GPU: kernels of curvature give the results of plain loops", "[gpu]") {
    check_each(curvature_laws::all<cuda>());
}

TEST_CASE("GPU: passes over matrices give the results of plain loops", "[gpu]") {
    check_each(matrix_laws::all<cuda>());
}

TEST_CASE("GPU: arrays of more than 2^31 elements", "[gpu]") { check_each(huge_laws::all()); }

}  // namespace cairn
