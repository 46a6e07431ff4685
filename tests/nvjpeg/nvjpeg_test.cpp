// nvJPEG's part of photographs (device/cuda/nvjpeg.hpp), by an emulated nvJPEG in the streams of the emulated CUDA.

#include "catch.hpp"
#include "data/encoded_image_laws.hpp"
#include "nccl/streamed_gpu.hpp"
#include "nvjpeg/emulated_nvjpeg.hpp"

#include <cairn/device/cuda/nvjpeg.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace cairn::test {
namespace {

static_assert(JpegDecoder<nvjpeg::decoder, cuda>);

std::unique_ptr<encoded_image_decoder<streamed_gpu>> nvjpegs() {
    return std::make_unique<encoded_images_on<streamed_gpu, nvjpeg::decoder>>();
}

}  // namespace

TEST_CASE("nvjpeg: inputs are the host's, by engines or kernels, and everything made is destroyed", "[nvjpeg]") {
    for (const bool engines : {true, false}) {
        emulated::nvjpeg_engines = engines;
        CHECK(nvjpeg::decoder().by_engines() == engines);
        emulated::nvjpeg_together = emulated::nvjpeg_alone = 0;
        encoded_image_laws::inputs_are_the_definitions<streamed_gpu>(nvjpegs);
        CHECK(emulated::nvjpeg_together > 0);
        CHECK(emulated::nvjpeg_alone == 0);
        CHECK(emulated::nvjpeg_objects == 0);
    }
    encoded_image_laws::inputs_are_the_hosts<streamed_gpu>(nvjpegs);
    CHECK(emulated::nvjpeg_alone > 0);  // the progressive one
    CHECK(emulated::nvjpeg_objects == 0);
    CHECK(emulated::failure().empty());
}

TEST_CASE("nvjpeg: damaged files are told of as by the host", "[nvjpeg]") {
    encoded_image_laws::damaged_files_are_told_of<streamed_gpu>(nvjpegs);
    CHECK(emulated::nvjpeg_objects == 0);
}

TEST_CASE("nvjpeg: of a batch that is refused each file is tried alone", "[nvjpeg]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .resize = 13});
    const loader_config config{.batch = 7, .workers = 0};
    const auto expected = encoded_image_laws::inputs_of<streamed_gpu>(data, config, nvjpegs, nullptr);
    emulated::nvjpeg_bad_batches = 1;
    emulated::nvjpeg_alone = 0;
    encoded_image_counts counts;
    CHECK(encoded_image_laws::inputs_of<streamed_gpu>(data, config, nvjpegs, &counts) == expected);
    CHECK(emulated::nvjpeg_bad_batches == 0);
    CHECK(emulated::nvjpeg_alone == 5 + 1);
    CHECK(counts.by_host == 4);
}

TEST_CASE("nvjpeg: a file at which it fails is the host's", "[nvjpeg]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .augmented = false, .resize = 13});
    const loader_config config{.batch = 7, .workers = 0};
    encoded_image_counts counts;
    encoded_image_laws::inputs_of<streamed_gpu>(data, config, nvjpegs, &counts);
    const index_t before = counts.by_host;
    emulated::nvjpeg_bad_questions = 1;  // this one is tried alone, with the progressive one
    emulated::nvjpeg_bad_files = 2;
    encoded_image_laws::inputs_of<streamed_gpu>(data, config, nvjpegs, &counts);
    CHECK(counts.by_host == before + 2);
    CHECK(emulated::nvjpeg_bad_questions + emulated::nvjpeg_bad_files == 0);
}

TEST_CASE("nvjpeg: pixels are written when what used their memory is done", "[nvjpeg]") {
    const std::vector<std::uint8_t> file = jpeg_file(picture(30, 40, 0));
    for (const bool engines : {true, false}) {
        emulated::nvjpeg_engines = engines;
        nvjpeg::decoder decoder;
        tensor<std::uint8_t, cuda> pixels({30 * 40 * 3 + 256});
        std::uint8_t* const begin = pixels.data() + 256 - reinterpret_cast<std::uintptr_t>(pixels.data()) % 256;
        std::vector<jpeg_job> jobs{{file, begin, 30, 40}};
        cuda::copy_stream queue;
        decoder.decode(jobs, queue);  // so that no memory grows below
        queue.done().finish();
        std::fill(begin, begin + 30 * 40 * 3, std::uint8_t{7});
        std::atomic<bool> early = false;
        emulated::launch(cuda::stream(), [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            for (index_t i = 0; i < 30 * 40 * 3; ++i) early = early || begin[i] != 7;
        });
        queue.after(cuda::event());
        decoder.decode(jobs, queue);
        queue.done().finish();
        CHECK_FALSE(jobs[0].refused);
        CHECK_FALSE(early);
        CHECK(std::any_of(begin, begin + 30 * 40 * 3, [](std::uint8_t p) { return p != 7; }));
        emulated::nvjpeg_engines = false;
    }
    CHECK(emulated::failure().empty());
}

TEST_CASE("nvjpeg: a file that it takes for another size is the host's", "[nvjpeg]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .resize = 13});
    struct other_sizes {
        other_sizes() { emulated::nvjpeg_reads_other_sizes = true; }
        ~other_sizes() { emulated::nvjpeg_reads_other_sizes = false; }
    } const read;
    emulated::nvjpeg_together = emulated::nvjpeg_alone = 0;
    encoded_image_counts counts;
    encoded_image_laws::inputs_of<streamed_gpu>(data, {.batch = 7, .workers = 0}, nvjpegs, &counts);
    CHECK(emulated::nvjpeg_together + emulated::nvjpeg_alone == 0);
    CHECK(counts.on_device == 0);
    CHECK(counts.by_host == 2 * data.size());  // two epochs
}

TEST_CASE("nvjpeg: its memory is of the pools, and kept", "[nvjpeg]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .augmented = false, .resize = 13});
    const index_t pinned = cuda::host_memory().use_of(memory_category::data).live;
    {
        prefetcher<streamed_gpu, image_folder> from(data, {.batch = 7, .workers = 0}, nvjpegs());
        for (int epoch = 0; epoch < 2; ++epoch)
            while (from.next()) {}
        CHECK(cuda::host_memory().use_of(memory_category::data).live > pinned);
        std::vector<memory_request> requests;
        cuda::memory().record_to(&requests);
        for (int epoch = 0; epoch < 2; ++epoch)
            while (from.next()) {}
        cuda::memory().record_to(nullptr);
        CHECK(requests.empty());
    }
    CHECK(cuda::host_memory().use_of(memory_category::data).live == pinned);
}

}  // namespace cairn::test
