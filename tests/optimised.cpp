// Hot functions of tests, for builds that do not optimise: plain loops, random numbers, checksums, and the
// switches between threads of the emulated GPU. Optimised and linked first, these functions are what all files of a
// test program call.

#include "device/cuda/emulated_gpu.hpp"
#include "oracle/attention.hpp"
#include "oracle/conv.hpp"
#include "oracle/gemm.hpp"
#include "oracle/losses.hpp"
#include "oracle/softmax.hpp"

#include <cairn/core/random.hpp>
#include <cairn/stash/bounded_codec.hpp>
#include <cairn/state/checksum.hpp>
#include <cairn/state/digest.hpp>
#include <cairn/state/xxh3.hpp>

namespace oracle {

template void conv_forward<float>(const cairn::conv_geometry&, const float*, const float*, const float*, float*);
template void conv_forward<double>(const cairn::conv_geometry&, const double*, const double*, const double*, double*);
template void conv_backward_input<float>(const cairn::conv_geometry&, const float*, const float*, float*);
template void conv_backward_input<double>(const cairn::conv_geometry&, const double*, const double*, double*);
template void conv_backward_weight<float>(const cairn::conv_geometry&, const float*, const float*, float*, float*);
template void conv_backward_weight<double>(const cairn::conv_geometry&, const double*, const double*, double*, double*);
template void gemm<float>(bool, bool, cairn::index_t, cairn::index_t, cairn::index_t, float, const float*,
                          cairn::index_t, const float*, cairn::index_t, float, float*, cairn::index_t);
template void gemm<double>(bool, bool, cairn::index_t, cairn::index_t, cairn::index_t, double, const double*,
                           cairn::index_t, const double*, cairn::index_t, double, double*, cairn::index_t);

}  // namespace oracle

struct kernel_that_waits {
    template <class Block>
    void operator()(Block& b) const {
        b.sync();
    }
};

cairn::tensor<float> packed_and_back(const cairn::tensor<float>& x) {
    return cairn::bounded_codec({.bound = 0.1f, .normalise = true}).pack(x, {})->unpack();
}

/// Never read: of a function whose address is known there is one that is not part of another.
struct wanted {
    decltype(&oracle::attention) attention = oracle::attention;
    double (*cross_entropy)(const std::vector<double>&, const std::vector<int>&, double,
                            const std::vector<double>&) = oracle::cross_entropy;
    decltype(&oracle::softmax_gradient) softmax_gradient = oracle::softmax_gradient;
    decltype(&cairn::random_stream::bits4) random_bits = &cairn::random_stream::bits4;
    decltype(&cairn::crc32c) checksum = cairn::crc32c;
    decltype(&cairn::xxh3) xxh3 = cairn::xxh3;
    decltype(&cairn::tensor_digest::add) digest = &cairn::tensor_digest::add;
    decltype(&packed_and_back) codec = packed_and_back;
    void (cairn::emulation::block_runner::*run)(cairn::index_t, const kernel_that_waits&) =
        &cairn::emulation::block_runner::run<kernel_that_waits>;
};
extern const wanted cairn_test_optimised;
const wanted cairn_test_optimised;
