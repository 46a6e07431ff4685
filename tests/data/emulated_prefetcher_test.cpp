#include "catch.hpp"
#include "data/prefetcher_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

#include "data/writers.hpp"

#include <cairn/data/image_folder.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

static_assert(CopiesBeside<emulated_gpu> && !CopiesBeside<cpu>);

using prefetcher_laws::values_of;

}  // namespace

TEST_CASE("prefetcher: the batches and positions of the host, ahead or not", "[prefetcher]") {
    prefetcher_laws::batches_are_the_hosts<emulated_gpu>();
}

TEST_CASE("prefetcher: copies begin when they are prepared, and are waited for by who takes them", "[prefetcher]") {
    prefetcher<emulated_gpu, counting_dataset> from(counting_dataset{.n = 20}, {.batch = 5, .workers = 0});
    const index_t before = emulated_gpu::copy_stream::begun;
    from.prepare();
    CHECK(emulated_gpu::copy_stream::begun == before + 2);  // samples and labels
    CHECK(from.position() == cursor{0, 0});
    auto first = from.next();
    REQUIRE(first);
    const float* const place = first->there.x.data();
    from.prepare();
    CHECK(emulated_gpu::copy_stream::begun == before + 4);
    CHECK(values_of(first->there.x) == values_of(first->host.x));
    first.reset();
    auto second = from.next();
    REQUIRE(second);
    CHECK(second->there.x.data() != place);
    CHECK(values_of(second->there.x) == values_of(second->host.x));
    second.reset();
    CHECK(from.next()->there.x.data() == place);  // two sets of buffers, in turn
}

TEST_CASE("prefetcher: inputs made of pixels on the device have the host's bits", "[prefetcher]") {
    for (const bool backwards : {false, true}) {
        emulated_gpu::backwards = backwards;
        prefetcher_laws::inputs_are_what_the_table_says<emulated_gpu, float>();
        prefetcher_laws::inputs_are_what_the_table_says<emulated_gpu, bfloat16>();
    }
    emulated_gpu::backwards = false;
    prefetcher_laws::pixels_give_the_hosts_bits<emulated_gpu>();
    prefetcher_laws::pixels_of_what_is_left<emulated_gpu>();
    prefetcher_laws::pixels_go_on_elsewhere<emulated_gpu>();
}

TEST_CASE("prefetcher: pixels travel as bytes, and one launch makes inputs of them", "[prefetcher]") {
    const memory_images data(prefetcher_laws::any_images(12, 8, 8, 3), prefetcher_laws::any_recipe(3, 1, true));
    for (const bool as_pixels : {true, false}) {
        prefetcher<emulated_gpu, memory_images> from(data, {.batch = 6, .workers = 0}, as_pixels);
        const index_t before = emulated_gpu::copy_stream::bytes_begun;
        const float* const first = from.next()->there.x.data();
        CHECK(emulated_gpu::copy_stream::bytes_begun - before ==
              6 * ((as_pixels ? 8 * 8 * 3 + 12 : 8 * 8 * 3 * 4) + 4));
        const float* const second = from.next()->there.x.data();
        CHECK(first != second);
        CHECK_FALSE(from.next());  // the end of the epoch; both sets of buffers are there
        std::vector<memory_request> requests;
        emulated_gpu::memory().record_to(&requests);
        const index_t launches = emulated_gpu::launches;
        CHECK(from.next()->there.x.data() == first);
        CHECK(from.next()->there.x.data() == second);
        emulated_gpu::memory().record_to(nullptr);
        CHECK(emulated_gpu::launches == launches + (as_pixels ? 2 : 0));
        CHECK(requests.empty());
    }
}

TEST_CASE("prefetcher: photographs that are rounded travel as pixels, without those that are left out",
          "[prefetcher]") {
    const temporary_folder folder;
    for (unsigned i = 0; i < 7; ++i)
        folder.write(concat("class", i % 2, '/', i, ".jpg"),
                     i == 3 ? bytes(50, 9) : jpeg_file(picture(30 + i, 41, i, i == 5 ? 1 : 3)));
    const auto images = std::make_shared<image_collection>(folder.path());
    for (const float jitter : {0.0f, 0.3f})
        for (const bool augmented : {false, true}) {
            const image_folder data(images, {6, 5, 4, 3, 2, 1, 0},
                                    {.size = 17,
                                     .augmented = augmented,
                                     .jitter = {jitter, jitter, jitter, 0},
                                     .resize = 20,
                                     .corrupt = corrupt_image::skip,
                                     .rounded = true});
            REQUIRE(data.pixel_table().size() == 3 * 256);
            const loader_config config{.batch = 4, .workers = 2, .seed = 3};
            const auto expected = prefetcher_laws::batches_of<cpu>(data, config, true);
            CHECK(prefetcher_laws::batches_of<emulated_gpu>(data, config, true) == expected);
            CHECK(prefetcher_laws::batches_of<emulated_gpu>(data, config, true, false) == expected);
        }
}

TEST_CASE("prefetcher: images that are too large are refused by the kernel", "[prefetcher]") {
    CHECK_THROWS_WITH(inputs_of_pixels(emulated_gpu{}, emulated_gpu{}, {1, 1 << 16, 1 << 14, 3}, nullptr, nullptr,
                                       static_cast<const float*>(nullptr), static_cast<float*>(nullptr)),
                      Contains("(1, 65536, 16384, 3)") && Contains("3221225472 values each"));
    CHECK_THROWS_WITH(inputs_of_pixels(emulated_gpu{}, emulated_gpu{}, {4, 28, 28}, nullptr, nullptr,
                                       static_cast<const float*>(nullptr), static_cast<float*>(nullptr)),
                      Contains("(4, 28, 28)") && Contains("(N, H, W, C) is expected"));
}

TEST_CASE("prefetcher: goes on elsewhere, and tells of a broken sample when its batch is asked for", "[prefetcher]") {
    const loader_config in_order{.batch = 5, .workers = 1, .shuffle = false};
    prefetcher<emulated_gpu, counting_dataset> from(counting_dataset{.n = 20, .throwing = {7}}, in_order);
    auto first = from.next();
    REQUIRE_NOTHROW(from.prepare());
    first.reset();
    CHECK(from.position() == cursor{0, 1});
    for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(from.next(), Contains("sample 7") && Contains("byte 17"));
    from.prepare();
    from.seek({0, 2});
    CHECK(from.position() == cursor{0, 2});
    const auto third = from.next();
    REQUIRE(third);
    CHECK(values_of(third->there.labels) == std::vector<std::int32_t>{3, 4, 5, 6, 0});
}

}  // namespace cairn::test
