// Attention of GPUs on an emulated one.

#include "device/cuda/attention_laws.hpp"
#include "device/cuda/both_ways.hpp"

namespace cairn {

TEST_CASE("GPU attention, emulated: results are the host's, threads forwards and backwards", "[cuda][attention]") {
    check_both_ways(attention_laws::all<emulated_gpu>());
}

}  // namespace cairn
