#include "catch.hpp"
#include "data/synthetic.hpp"

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("any_dataset: copies share, an empty one says so") {
    const any_dataset a = counting_dataset{.n = 4};
    const any_dataset b = a;
    REQUIRE(b.size() == 4);
    REQUIRE(b.unaugmented().sample_name(2) == "count #2");
    REQUIRE_THAT(message_of([] { any_dataset().size(); }), Contains("empty"));
}

}  // namespace cairn::test
