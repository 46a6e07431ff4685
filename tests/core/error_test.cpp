#include "catch.hpp"

#include <cairn/core/error.hpp>

#include <memory>
#include <string>

using Catch::Matchers::Equals;

TEST_CASE("error: the message joins its parts", "[error]") {
    CHECK_THROWS_WITH(cairn::fail("batch of ", 5, " images, ", 2.5, ' ', std::string("left")),
                      Equals("batch of 5 images, 2.5 left"));
}

TEST_CASE("error: require throws only if the condition does not hold", "[error]") {
    CHECK_NOTHROW(cairn::require(true, "never seen"));
    CHECK_THROWS_WITH(cairn::require(false, "seen ", 1), Equals("seen 1"));
}

TEST_CASE("error: context is put in front on the way up, outermost first", "[error]") {
    const auto read = [] {
        cairn::with_context("file train.idx",
                            [] { cairn::with_context("header", [] { cairn::fail("byte 3 is 7, expected 8"); }); });
    };
    CHECK_THROWS_WITH(read(), Equals("file train.idx: header: byte 3 is 7, expected 8"));
}

TEST_CASE("error: with_context hands the result through, references and move-only values too", "[error]") {
    int variable = 1;
    static_assert(std::is_same_v<decltype(cairn::with_context("x", [&]() -> int& { return variable; })), int&>);
    cairn::with_context("x", [&]() -> int& { return variable; }) = 2;
    CHECK(variable == 2);
    CHECK(*cairn::with_context("x", [] { return std::make_unique<int>(3); }) == 3);
}

TEST_CASE("error: with_context leaves other exceptions as they are", "[error]") {
    CHECK_THROWS_AS(cairn::with_context("x", [] { throw std::out_of_range("y"); }), std::out_of_range);
}

TEST_CASE("error: is caught as std::exception", "[error]") {
    try {
        cairn::fail("why");
    } catch (const std::exception& e) {
        CHECK(std::string(e.what()) == "why");
        return;
    }
    FAIL("nothing thrown");
}
