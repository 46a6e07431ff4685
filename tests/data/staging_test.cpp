#include "catch.hpp"
#include "data/staging_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

static_assert(CopiesBeside<emulated_gpu> && !CopiesBeside<cpu>);

using staging_laws::values_of;

}  // namespace

TEST_CASE("staging: the batches and positions of the host, ahead or not", "[staging]") {
    staging_laws::batches_are_the_hosts<emulated_gpu>();
}

TEST_CASE("staging: copies begin when they are prepared, and are waited for by who takes them", "[staging]") {
    staging<emulated_gpu, counting_dataset> from(counting_dataset{.n = 20}, {.batch = 5, .workers = 0});
    const index before = emulated_gpu::uploads::begun;
    from.prepare();
    CHECK(emulated_gpu::uploads::begun == before + 2);  // samples and labels
    CHECK(from.position() == cursor{0, 0});
    auto first = from.next();
    REQUIRE(first);
    const float* const place = first->there.x.data();
    from.prepare();
    CHECK(emulated_gpu::uploads::begun == before + 4);
    CHECK(values_of(first->there.x) == values_of(first->host.x));
    first.reset();
    auto second = from.next();
    REQUIRE(second);
    CHECK(second->there.x.data() != place);
    CHECK(values_of(second->there.x) == values_of(second->host.x));
    second.reset();
    CHECK(from.next()->there.x.data() == place);  // two sets of buffers, in turn
}

TEST_CASE("staging: inputs made of pixels on the device have the host's bits", "[staging]") {
    for (const bool backwards : {false, true}) {
        emulated_gpu::backwards = backwards;
        staging_laws::inputs_are_what_the_table_says<emulated_gpu, float>();
        staging_laws::inputs_are_what_the_table_says<emulated_gpu, bfloat16>();
    }
    emulated_gpu::backwards = false;
    staging_laws::pixels_give_the_hosts_bits<emulated_gpu>();
    staging_laws::pixels_go_on_elsewhere<emulated_gpu>();
}

TEST_CASE("staging: pixels travel as bytes, and one launch makes inputs of them", "[staging]") {
    const memory_images data(staging_laws::any_images(12, 8, 8, 3), staging_laws::any_recipe(3, 1, true));
    for (const bool as_pixels : {true, false}) {
        staging<emulated_gpu, memory_images> from(data, {.batch = 6, .workers = 0}, as_pixels);
        index bytes = emulated_gpu::uploads::bytes_begun;
        from.next();
        CHECK(emulated_gpu::uploads::bytes_begun - bytes == 6 * ((as_pixels ? 8 * 8 * 3 + 12 : 8 * 8 * 3 * 4) + 4));
        const index live = emulated_gpu::memory().total().live, launches = emulated_gpu::launches;
        from.prepare();
        from.next();
        CHECK(emulated_gpu::launches == launches + (as_pixels ? 1 : 0));
        from.next();  // the end of the epoch
        for (int more = 0; more < 2; ++more) from.next();
        if (as_pixels) CHECK(from.batch_shape() == shape{6, 8, 8, 3});
        CHECK(emulated_gpu::memory().total().live >= live);
    }
}

TEST_CASE("staging: images that are too large are refused by the kernel", "[staging]") {
    CHECK_THROWS_WITH(inputs_of_pixels(emulated_gpu{}, emulated_gpu{}, {1, 1 << 16, 1 << 14, 3}, nullptr, nullptr,
                                       static_cast<const float*>(nullptr), static_cast<float*>(nullptr)),
                      Contains("(1, 65536, 16384, 3)") && Contains("3221225472 values each"));
    CHECK_THROWS_WITH(inputs_of_pixels(emulated_gpu{}, emulated_gpu{}, {4, 28, 28}, nullptr, nullptr,
                                       static_cast<const float*>(nullptr), static_cast<float*>(nullptr)),
                      Contains("(4, 28, 28)") && Contains("(N, H, W, C) is expected"));
}

TEST_CASE("staging: goes on elsewhere, and tells of a broken sample when its batch is asked for", "[staging]") {
    const loader_config in_order{.batch = 5, .workers = 1, .shuffle = false};
    staging<emulated_gpu, counting_dataset> from(counting_dataset{.n = 20, .throwing = {7}}, in_order);
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
