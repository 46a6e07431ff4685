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
