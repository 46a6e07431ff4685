// Photographs of which a GPU makes the inputs: from libjpeg's pixels and, where it was found, from nvJPEG's. On a GPU;
// the same laws run on emulations (tests/data/encoded_images_test.cpp, tests/nvjpeg).

#include "data/encoded_image_laws.hpp"

#include <cairn/device/cuda/runtime.hpp>

#if CAIRN_HAS_JPEG
#if CAIRN_HAS_NVJPEG
#include <cairn/device/cuda/nvjpeg.hpp>
#endif

namespace cairn::test {
namespace {

/// libjpeg's pixels, copied.
struct libjpeg_pixels {
    void decode(std::vector<jpeg_job>& jobs, cuda::copy_stream& queue) {
        for (jpeg_job& j : jobs) {
            decoded.push_back(std::make_unique<image>());
            jpeg_decoder(j.file, "job").decode(*decoded.back());
            queue.copy(j.pixels, decoded.back()->pixels.data(), static_cast<index_t>(decoded.back()->pixels.size()));
        }
    }
    std::vector<std::unique_ptr<image>> decoded;
};

template <class Decoder>
std::unique_ptr<encoded_image_decoder<cuda>> encoded_images_by() {
    return std::make_unique<encoded_images_on<cuda, Decoder>>();
}

}  // namespace

TEST_CASE("GPU: inputs made of photographs are the host's", "[gpu]") {
    encoded_image_laws::inputs_are_the_hosts<cuda>(encoded_images_by<libjpeg_pixels>);
    encoded_image_laws::inputs_are_the_definitions<cuda>(encoded_images_by<libjpeg_pixels>);
    encoded_image_laws::damaged_files_are_told_of<cuda>(encoded_images_by<libjpeg_pixels>);
}

#if CAIRN_HAS_NVJPEG
TEST_CASE("GPU: inputs made of nvJPEG's photographs are near the host's, with the same bits twice", "[gpu]") {
    // Its inverse transform and its colours between samples are its own; pictures are smooth, and nothing says that it
    // must know all of them.
    encoded_image_laws::inputs_are_the_hosts<cuda>(encoded_images_by<nvjpeg::decoder>, 6, false);
    encoded_image_laws::damaged_files_are_told_of<cuda>(encoded_images_by<nvjpeg::decoder>);
}
#endif

}  // namespace cairn::test
#endif
