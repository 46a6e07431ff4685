#include "catch.hpp"
#include "data/photograph_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

/// libjpeg for the emulated GPU; refuses files as `refuse` says.
struct libjpeg_for_gpu {
    bool (*refuse)(const jpeg_job&) = [](const jpeg_job&) { return false; };

    void decode(std::vector<jpeg_job>& jobs, emulated_gpu::uploads& queue) {
        for (jpeg_job& j : jobs) {
            if (j.refused = refuse(j); j.refused) continue;
            auto out = std::make_shared<image>();
            jpeg_decoder(j.file, "job").decode(*out);
            require(out->height == j.height && out->width == j.width, "another size");
            decoded_.push_back(out);
            queue.copy(j.pixels, out->pixels.data(), static_cast<index>(out->pixels.size()));
        }
    }
    std::vector<std::shared_ptr<image>> decoded_;  // until the end: copies are late
};

template <bool (*Refuse)(const jpeg_job&)>
std::unique_ptr<photograph_decoder<emulated_gpu>> decoder_that() {
    return std::make_unique<photographs_on<emulated_gpu, libjpeg_for_gpu>>(libjpeg_for_gpu{Refuse, {}});
}
bool nothing(const jpeg_job&) { return false; }
bool wide_ones(const jpeg_job& j) { return j.width > j.height; }

constexpr auto libjpegs = decoder_that<nothing>;

}  // namespace

TEST_CASE("photographs: inputs made on the device are the host's", "[photographs]") {
    photograph_laws::inputs_are_the_hosts<emulated_gpu>(libjpegs);
    photograph_laws::inputs_are_the_definitions<emulated_gpu>(libjpegs);
}

TEST_CASE("photographs: damaged files are told of as by the host", "[photographs]") {
    photograph_laws::damaged_files_are_told_of<emulated_gpu>(libjpegs);
}

TEST_CASE("photographs: what the device refuses is decoded by the host, and counted", "[photographs]") {
    const temporary_folder folder;
    const auto images = photograph_laws::all_kinds(folder);
    const image_folder data = photograph_laws::folder_of(images, {.size = 12, .resize = 13});
    const loader_config config{.batch = 7, .workers = 0};
    photograph_counts counts;
    const auto got = photograph_laws::inputs_of<emulated_gpu>(data, config, decoder_that<wide_ones>, &counts);
    CHECK(counts.by_host == 2 * 5);
    CHECK(counts.on_device == 2 * 2);
    CHECK(got == photograph_laws::inputs_of<emulated_gpu>(data, config, libjpegs, nullptr));
}

TEST_CASE("photographs: room is kept once the largest batch was seen, and files travel, not pixels", "[photographs]") {
    const temporary_folder folder;
    const auto images = photograph_laws::all_kinds(folder);
    const image_folder data = photograph_laws::folder_of(images, {.size = 12, .augmented = false, .resize = 13});
    staging<emulated_gpu, image_folder> from(data, {.batch = 7, .workers = 0}, libjpegs());
    for (int epoch = 0; epoch < 2; ++epoch)
        while (from.next()) {}
    std::vector<memory_request> requests;
    emulated_gpu::memory().note(&requests);
    for (int epoch = 0; epoch < 2; ++epoch)
        while (from.next()) {}
    emulated_gpu::memory().note(nullptr);
    CHECK(requests.empty());
}

TEST_CASE("photographs: a data set without any is refused", "[photographs]") {
    CHECK_THROWS_WITH(
        (staging<emulated_gpu, counting_dataset>(counting_dataset{.n = 8}, {.batch = 2, .workers = 0}, libjpegs())),
        Contains("no photographs that a device decodes"));
}

TEST_CASE("photographs: segments and scans up to the end marker", "[photographs]") {
    const bytes file = jpeg_file(picture(30, 30), {.progressive = true});
    CHECK(is_whole_jpeg(file));
    bytes padded = file;
    padded.resize(file.size() + 9);
    CHECK(is_whole_jpeg(padded));
    for (std::size_t n = 0; n < file.size(); ++n) CHECK_FALSE(is_whole_jpeg(byte_span(file).first(n)));
}

}  // namespace cairn::test
