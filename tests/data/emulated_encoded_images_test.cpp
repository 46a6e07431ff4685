#include "catch.hpp"
#include "data/encoded_image_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

/// libjpeg for the emulated GPU; refuses files as `refuse` says.
struct libjpeg_for_gpu {
    bool (*refuse)(const jpeg_job&) = [](const jpeg_job&) { return false; };

    void decode(std::vector<jpeg_job>& jobs, emulated_gpu::copy_stream& queue) {
        for (jpeg_job& j : jobs) {
            if (j.refused = refuse(j); j.refused) continue;
            auto out = std::make_shared<image>();
            jpeg_decoder(j.file, "job").decode(*out);
            require(out->height == j.height && out->width == j.width, "another size");
            decoded_.push_back(out);
            queue.copy(j.pixels, out->pixels.data(), static_cast<index_t>(out->pixels.size()));
        }
    }
    std::vector<std::shared_ptr<image>> decoded_;  // until the end: copies are late
};

template <bool (*Refuse)(const jpeg_job&)>
std::unique_ptr<encoded_image_decoder<emulated_gpu>> decoder_that() {
    return std::make_unique<encoded_images_on<emulated_gpu, libjpeg_for_gpu>>(libjpeg_for_gpu{Refuse, {}});
}
bool nothing(const jpeg_job&) { return false; }
bool wide_ones(const jpeg_job& j) { return j.width > j.height; }

constexpr auto libjpegs = decoder_that<nothing>;

}  // namespace

TEST_CASE("encoded images: inputs made on the device are the host's", "[encoded_images]") {
    encoded_image_laws::inputs_are_the_hosts<emulated_gpu>(libjpegs);
    encoded_image_laws::inputs_are_the_definitions<emulated_gpu>(libjpegs);
}

TEST_CASE("encoded images: damaged files are told of as by the host", "[encoded_images]") {
    encoded_image_laws::damaged_files_are_told_of<emulated_gpu>(libjpegs);
}

TEST_CASE("encoded images: what the device refuses is decoded by the host, and counted", "[encoded_images]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .resize = 13});
    const loader_config config{.batch = 7, .workers = 0};
    encoded_image_counts counts;
    const auto got = encoded_image_laws::inputs_of<emulated_gpu>(data, config, decoder_that<wide_ones>, &counts);
    CHECK(counts.by_host == 2 * 5);
    CHECK(counts.on_device == 2 * 2);
    CHECK(got == encoded_image_laws::inputs_of<emulated_gpu>(data, config, libjpegs, nullptr));
}

TEST_CASE("encoded images: room is kept once the largest batch was seen, and files travel, not pixels",
          "[encoded_images]") {
    const temporary_folder folder;
    const auto images = encoded_image_laws::all_kinds(folder);
    const image_folder data = encoded_image_laws::folder_of(images, {.size = 12, .augmented = false, .resize = 13});
    prefetcher<emulated_gpu, image_folder> from(data, {.batch = 7, .workers = 0}, libjpegs());
    for (int epoch = 0; epoch < 2; ++epoch)
        while (from.next()) {}
    std::vector<memory_request> requests;
    emulated_gpu::memory().record_to(&requests);
    for (int epoch = 0; epoch < 2; ++epoch)
        while (from.next()) {}
    emulated_gpu::memory().record_to(nullptr);
    CHECK(requests.empty());
}

TEST_CASE("encoded images: a data set without any is refused", "[encoded_images]") {
    CHECK_THROWS_WITH(
        (prefetcher<emulated_gpu, counting_dataset>(counting_dataset{.n = 8}, {.batch = 2, .workers = 0}, libjpegs())),
        Contains("no photographs that a device decodes"));
}

TEST_CASE("encoded images: segments and scans up to the end marker", "[encoded_images]") {
    const bytes file = jpeg_file(picture(30, 30), {.progressive = true});
    CHECK(is_whole_jpeg(file));
    bytes padded = file;
    padded.resize(file.size() + 9);
    CHECK(is_whole_jpeg(padded));
    for (std::size_t n = 0; n < file.size(); ++n) CHECK_FALSE(is_whole_jpeg(byte_span(file).first(n)));
}

}  // namespace cairn::test
