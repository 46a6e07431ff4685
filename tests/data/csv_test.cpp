#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/csv.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("csv: numbers, spaces, line ends", "[csv]") {
    const csv_table t = parse_csv("a, b ,c\r\n1,-2.5,3e4\r\n\n 4 , 5,6", "t.csv");
    REQUIRE(t.columns == std::vector<std::string>{"a", "b", "c"});
    REQUIRE(t.rows() == 2);
    REQUIRE(t(0, 1) == -2.5);
    REQUIRE(t(0, 2) == 30000);
    REQUIRE(t(1, t.column("c")) == 6);
    REQUIRE_THAT(message_of([&] { t.column("d"); }), Contains("t.csv: no column 'd'; there are: a, b, c"));
    REQUIRE(parse_csv("x\n", "t.csv").rows() == 0);
}

TEST_CASE("csv: errors name line and column", "[csv]") {
    const auto message = [](const char* text) { return message_of([&] { parse_csv(text, "t.csv"); }); };
    REQUIRE_THAT(message(""), Contains("t.csv: empty"));
    REQUIRE_THAT(message("a,b\n1,2\n3\n"), Contains("t.csv: line 3: 1 cells, the header has 2"));
    REQUIRE_THAT(message("a,b\n1,2\n\n3,x4\n"), Contains("line 4, column 2 (b): 'x4' is no finite number"));
    REQUIRE_THAT(message("a,b\n1,\n"), Contains("line 2, column 2 (b): ''"));
    REQUIRE_THAT(message("a,b\n1,nan\n"), Contains("no finite number"));
    REQUIRE_THAT(message("a,b\n1,2 3\n"), Contains("'2 3'"));
    REQUIRE_THAT(message("a,,c\n1,2,3\n"), Contains("line 1, column 2: a column without a name"));
    REQUIRE_THAT(message_of([] { read_csv("/nowhere/t.csv"); }), Contains("no such file"));
}

}  // namespace cairn::test
