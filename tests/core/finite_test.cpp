#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/core/finite.hpp>

#include <limits>

using namespace cairn;

TEST_CASE("first_non_finite finds the first of several in any chunk") {
    auto t = tensor<float>::zeros({400'000});
    CHECK_FALSE(first_non_finite(t));
    for (const cairn::index_t at : {399'999, 131'072, 65'536, 65'535, 17, 0}) {
        t[at] = at % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        REQUIRE(first_non_finite(t) == at);
    }
    t = tensor<float>::filled({8}, std::numeric_limits<float>::max());
    CHECK_FALSE(first_non_finite(t));
    CHECK_FALSE(first_non_finite(tensor<float>{}));
}

TEST_CASE("first_non_finite names the parameter") {
    parameter<float> a, b;
    a.shape = {3};
    b.shape = {2, 2};
    const arena<float> memory(parameter_list<float>{{"a", &a}, {"layer/b", &b}}, 1);
    CHECK(first_non_finite(memory.parameters()).empty());
    b.grad[3] = std::numeric_limits<float>::infinity();
    CHECK(first_non_finite(memory.parameters()) == "gradient of layer/b (2, 2): element 3 is inf");
    a.value[1] = std::numeric_limits<float>::quiet_NaN();
    CHECK(first_non_finite(memory.parameters()) == "value of a (3): element 1 is nan");
}
