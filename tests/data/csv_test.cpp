#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/csv.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("csv: numbers, spaces, line ends", "[csv]") {
    const csv_table t = parse_csv("a, b ,c\r\n1,-2.5,3e4\r\n\n 4 , 5,6", "t.csv");
    REQUIRE(t.names() == std::vector<std::string>{"a", "b", "c"});
    REQUIRE(t.rows() == 2);
    REQUIRE(t.numbers("b") == std::vector<double>{-2.5, 5});
    REQUIRE(t.numbers("c") == std::vector<double>{30000, 6});
    REQUIRE_THAT(message_of([&] { t.at("d"); }), Contains("t.csv: no column 'd'; there are: a, b, c"));
    REQUIRE(parse_csv("x\n", "t.csv").rows() == 0);
    const csv_table plain = parse_csv("1,x\n2,y\n3,x\n", "t.csv", false);  // no header
    REQUIRE(plain.names() == std::vector<std::string>{"c1", "c2"});
    REQUIRE(plain.numbers("c1") == std::vector<double>{1, 2, 3});
    REQUIRE(plain.at("c2").spelling == std::vector<std::string>{"x", "y"});
    REQUIRE(plain.at("c2").words == std::vector<std::int32_t>{0, 1, 0});
    REQUIRE(plain.at("c2").word(2) == "x");
    REQUIRE(plain.at("c1").word(2).empty());
}

TEST_CASE("csv: as spreadsheets and other programs write it", "[csv]") {
    const auto values = [](const std::string& text) {  // row by row
        const csv_table t = parse_csv(text, "t.csv");
        std::vector<double> all;
        for (index_t row = 0; row < t.rows(); ++row)
            for (const csv_column& c : t.columns) all.push_back(c.number(row));
        return all;
    };
    const std::vector<double> expected{1, 2, 3, 4};
    for (const char* text : {"a,b\r1,2\r3,4\r", "a,b\r1,2\r3,4", "a,b\r\n1,2\r\n3,4\r\n",
                             "\xef\xbb\xbf"
                             "a,b\n1,2\n3,4\n",
                             "\"a\",\"b\"\n\"1\", \"2\" \n\" 3\",4\n", "a,b\n+1,2\n\r\r\n+3,+4.0e+0\n"})
        REQUIRE(values(text) == expected);
    const csv_table quoted = parse_csv("\xef\xbb\xbf\"a, \"\"b\"\"\r\nc\",d\n1,x\n", "t.csv");
    REQUIRE(quoted.names() == std::vector<std::string>{"a, \"b\"\r\nc", "d"});
    REQUIRE_THAT(message_of([&] { quoted.numbers("d"); }), Contains("line 3, column 2 (d): 'x' is no finite number"));

    // Numbers below double's range are 0, those above it are none.
    REQUIRE(values("a\n1e-400\n-1e-400\n4.9406564584124654e-324\n0.1E-99999999999999999999\n") ==
            std::vector<double>{0, 0, 4.9406564584124654e-324, 0});
    const std::string zeros(400, '0');
    REQUIRE(values("a\n0." + zeros + "1\n0." + zeros + "1e401\n1" + zeros + "e-400\n1" + zeros + "00e-800") ==
            std::vector<double>{0, 1, 1, 0});
    for (const std::string& text :
         {std::string("1e400"), std::string("-1e400"), "1" + zeros + "e-1", "0." + zeros + "1e900", std::string("+-1"),
          std::string("++1"), std::string("0x1p3"), std::string("inf")})
        REQUIRE_THAT(message_of([&] { parse_csv("a\n" + text + "\n", "t.csv").numbers("a"); }),
                     Contains("is no finite number"));

    // Columns that nothing asks for may hold text and have no name, as pandas writes its index.
    const csv_table indexed = parse_csv(",x,\n0,0.5,\n1,1.5,\n", "t.csv");
    REQUIRE(indexed.numbers("x")[1] == 1.5);
    const csv_table t = parse_csv("id,name,x\n1,\"Doe, Jane\",0.5\n2,,1.5\n", "t.csv");
    REQUIRE(t.numbers("x")[1] == 1.5);
    REQUIRE_THAT(message_of([&] { t.numbers("name"); }),
                 Contains("t.csv: line 2, column 2 (name): 'Doe, Jane' is no finite number"));
}

TEST_CASE("csv: errors name line and column", "[csv]") {
    const auto message = [](const char* text) { return message_of([&] { parse_csv(text, "t.csv").numbers("b"); }); };
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
    REQUIRE_THAT(message_of([] { parse_csv("1,2\n3\n", "t.csv", false); }),
                 Contains("t.csv: line 2: 1 cells, the first line has 2"));
    REQUIRE_THAT(message_of([] { read_csv("/nowhere/t.csv"); }), Contains("no such file"));
}

TEST_CASE("csv: plain, by gzip, in a zip archive", "[csv]") {
    const temporary_folder folder;
    const std::string plain = "a,b\n1,x\n";
    const bytes text(plain.begin(), plain.end());
    for (const auto& file : {folder.write("t.csv", text), folder.write("t.csv.gz", gzipped(text)),
                             folder.write("t.csv.zip", zip_file({{"t.csv", text}}, true))})
        REQUIRE(read_csv(file).numbers("a") == std::vector<double>{1});
    const auto two = folder.write("two.zip", zip_file({{"t.csv", text}, {"u.csv", text}}, false));
    REQUIRE_THAT(message_of([&] { read_csv(two); }), Contains("two.zip: 2 files in the archive; a table is one file"));
}

}  // namespace cairn::test
