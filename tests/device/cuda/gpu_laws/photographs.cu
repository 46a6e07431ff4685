// Photographs of which a GPU makes the inputs: from libjpeg's pixels and, where it was found, from nvJPEG's. On a GPU; the same laws run on emulations
// (tests/data/photographs_test.cpp, tests/nvjpeg).

#include "data/photograph_laws.hpp"

#include <cairn/device/cuda/runtime.hpp>

#if CAIRN_HAS_JPEG
#if CAIRN_HAS_NVJPEG
#include <cairn/device/cuda/nvjpeg.hpp>
#endif

namespace cairn::test {
namespace {

/// libjpeg's pixels, copied.
struct libjpeg_pixels {
    void decode(std::vector<jpeg_job>& jobs, cuda::uploads& queue) {
        for (jpeg_job& j : jobs) {
            decoded.push_back(std::make_unique<image>());
            jpeg_decoder(j.file, "job").decode(*decoded.back());
            queue.copy(j.pixels, decoded.back()->pixels.data(), static_cast<index>(decoded.back()->pixels.size()));
        }
    }
    std::vector<std::unique_ptr<image>> decoded;
};

template <class Decoder>
std::unique_ptr<photograph_decoder<cuda>> photographs_by() {
    return std::make_unique<photographs_on<cuda, Decoder>>();
}

}  // namespace

TEST_CASE("GPU: inputs made of photographs are the host's", "[gpu]") {
    photograph_laws::inputs_are_the_hosts<cuda>(photographs_by<libjpeg_pixels>);
    photograph_laws::inputs_are_the_definitions<cuda>(photographs_by<libjpeg_pixels>);
    photograph_laws::damaged_files_are_told_of<cuda>(photographs_by<libjpeg_pixels>);
}

#if CAIRN_HAS_NVJPEG
TEST_CASE("GPU: inputs made of nvJPEG's photographs are near the host's, with the same bits twice", "[gpu]") {
    // Its inverse transform and its colours between samples are its own; pictures are smooth, and nothing says that it must know all of them.
    photograph_laws::inputs_are_the_hosts<cuda>(photographs_by<nvjpeg::decoder>, 6, false);
    photograph_laws::damaged_files_are_told_of<cuda>(photographs_by<nvjpeg::decoder>);
}
#endif

}  // namespace cairn::test
#endif
