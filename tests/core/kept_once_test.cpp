// Values that ranks of a process have in common.

#include <cairn/core/kept_once.hpp>

#include "catch.hpp"

#include <string>

using namespace cairn;

TEST_CASE("kept once: made by the first that asks, gone with the last that has it", "[core]") {
    kept_once<int, std::string> texts;
    int made = 0;
    const auto get = [&](int key) { return texts.get(key, [&] { return ++made, std::to_string(key); }); };
    auto one = get(1), again = get(1);
    const auto two = get(2);
    CHECK(*one == "1");
    CHECK(one == again);
    CHECK(*two == "2");
    CHECK(made == 2);
    one.reset();
    CHECK(*get(1) == "1");  // another has it
    CHECK(made == 2);
    again.reset();
    CHECK(*get(1) == "1");
    CHECK(made == 3);
}
