// The cores that a process may use: those that it was bound to.

#include "catch.hpp"

#include <cairn/core/allowed_cores.hpp>

#include <string>
#include <thread>

namespace cairn {
namespace {

// What a thread reads that is bound to `cores`; a text that says so where that is not allowed.
allowed_cores when_bound_to(const cpu_set_t& cores) {
    allowed_cores found;
    std::thread([&] {
        if (sched_setaffinity(0, sizeof cores, &cores) != 0)
            found.text = "not allowed";
        else
            found = read_allowed_cores();
    }).join();
    return found;
}

TEST_CASE("allowed cores: their number, and ranges as text", "[core]") {
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    const allowed_cores here = read_allowed_cores();
    CHECK(here.count == CPU_COUNT(&all));
    int first = 0, neighbours = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    while (CPU_ISSET(first + neighbours, &all)) ++neighbours;
    for (int n = 1; n <= neighbours; ++n) {
        cpu_set_t some;
        CPU_ZERO(&some);
        for (int c = first; c < first + n; ++c) CPU_SET(c, &some);
        const std::string expected = std::to_string(first) + (n > 1 ? '-' + std::to_string(first + n - 1) : "");
        CHECK(when_bound_to(some).text == expected);
        CHECK(when_bound_to(some).count == n);
    }
    CHECK(here.text.starts_with(std::to_string(first)));
}

}  // namespace
}  // namespace cairn
