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

TEST_CASE("csv: as spreadsheets and other programs write it", "[csv]") {
    const auto values = [](const char* text) { return parse_csv(text, "t.csv").values; };
    const std::vector<double> expected{1, 2, 3, 4};
    for (const char* text : {"a,b\r1,2\r3,4\r", "a,b\r1,2\r3,4", "a,b\r\n1,2\r\n3,4\r\n",
                             "\xef\xbb\xbf"
                             "a,b\n1,2\n3,4\n",
                             "\"a\",\"b\"\n\"1\", \"2\" \n\" 3\",4\n", "a,b\n+1,2\n\r\r\n+3,+4.0e+0\n"})
        REQUIRE(values(text) == expected);
    const csv_table quoted = parse_csv("\xef\xbb\xbf\"a, \"\"b\"\"\r\nc\",d\n1,x\n", "t.csv");
    REQUIRE(quoted.columns == std::vector<std::string>{"a, \"b\"\r\nc", "d"});
    REQUIRE_THAT(message_of([&] { quoted.column("d"); }), Contains("line 3, column 2 (d): 'x' is no finite number"));

    // Numbers below double's range are 0, those above it are none.
    REQUIRE(values("a\n1e-400\n-1e-400\n4.9406564584124654e-324\n0.1E-99999999999999999999\n") ==
            std::vector<double>{0, 0, 4.9406564584124654e-324, 0});
    const std::string zeros(400, '0');
    REQUIRE(parse_csv("a\n0." + zeros + "1\n0." + zeros + "1e401\n1" + zeros + "e-400\n1" + zeros + "00e-800", "t.csv")
                .values == std::vector<double>{0, 1, 1, 0});
    for (const std::string& text :
         {std::string("1e400"), std::string("-1e400"), "1" + zeros + "e-1", "0." + zeros + "1e900", std::string("+-1"),
          std::string("++1"), std::string("0x1p3"), std::string("inf")})
        REQUIRE_THAT(message_of([&] { parse_csv("a\n" + text + "\n", "t.csv").column("a"); }),
                     Contains("is no finite number"));

    // Columns that nothing asks for may hold text and have no name, as pandas writes its index.
    const csv_table indexed = parse_csv(",x,\n0,0.5,\n1,1.5,\n", "t.csv");
    REQUIRE(indexed(1, indexed.column("x")) == 1.5);
    const csv_table t = parse_csv("id,name,x\n1,\"Doe, Jane\",0.5\n2,,1.5\n", "t.csv");
    REQUIRE(t(1, t.column("x")) == 1.5);
    REQUIRE_THAT(message_of([&] { t.column("name"); }),
                 Contains("t.csv: line 2, column 2 (name): 'Doe, Jane' is no finite number"));
}

TEST_CASE("csv: errors name line and column", "[csv]") {
    const auto message = [](const char* text) { return message_of([&] { parse_csv(text, "t.csv").column("b"); }); };
    REQUIRE_THAT(message(""), Contains("t.csv: empty"));
    REQUIRE_THAT(message("a,b\n1,2\n3\n"), Contains("t.csv: line 3: 1 cells, the header has 2"));
    REQUIRE_THAT(message("a,b\n1,2\n\n3,x4\n"), Contains("line 4, column 2 (b): 'x4' is no finite number"));
    REQUIRE_THAT(message("a,b\n1,\n"), Contains("line 2, column 2 (b): ''"));
    REQUIRE_THAT(message("a,b\n1,nan\n"), Contains("no finite number"));
    REQUIRE_THAT(message("a,b\n1,2 3\n"), Contains("'2 3'"));
    REQUIRE_THAT(message("a,\"b\n1,2\n"), Contains("t.csv: line 1: a cell begins with a quote that nothing ends"));
    REQUIRE_THAT(message("a,b\n1,\"2\"3\n"), Contains("t.csv: line 2: text behind the quote"));
    REQUIRE_THAT(message("a,b,b\n1,2,3\n"), Contains("t.csv: two columns are called 'b'"));
    REQUIRE_THAT(message("\xff\xfe"
                         "a"),
                 Contains("t.csv: a text in UTF-16; save it as UTF-8"));
    REQUIRE_THAT(message_of([] { read_csv("/nowhere/t.csv"); }), Contains("no such file"));
}

}  // namespace cairn::test
