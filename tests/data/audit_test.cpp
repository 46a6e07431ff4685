// The audit of data: each kind of leak in data made for it, and silence about the same data without it.

#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/data/audit.hpp>
#include <cairn/data/table/audit_table.hpp>

#include <functional>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

// 400 rows of six persons' visits in the order of time: two numbers that say a little about the target, a word, and
// what a case adds. A column is made of (row, target, class); -1 stands for a missing cell.
struct made_table {
    using column = std::function<std::string(int, double, int)>;
    std::vector<std::pair<std::string, column>> more = {};
    bool classes = false;
    int rows = 400;
    std::function<int(int)> source = [](int i) { return i; };  // the row that row i is a copy of

    csv_table table() const {
        std::string text = "a,b,w,person,day,y";
        for (const auto& [name, make] : more) text += ',' + name;
        for (int i = 0; i < rows; ++i) {
            const int from = source(i);
            const random_stream random{1, 2, static_cast<std::uint32_t>(from)};
            const double a = random.normal(0), b = random.normal(1), y = a + 2 * random.normal(2);
            const int label = y > 0;
            text += concat('\n', a, ',', b, ',', random.below(3, 9) ? "left" : "right", ",p", from % 60, ',', from / 4,
                           ',', classes ? concat('k', label) : text_of(y));
            for (const auto& [name, make] : more) text += ',' + make(from, y, label);
        }
        return parse_csv(text + '\n', "t.csv");
    }
    table_config config(table_config c = {}) const {
        c.target = {"y"};
        c.leave_out = {"person", "day"};
        return c;
    }
};

// What is found of a table, the leaks alone.
std::string leaks_of(const made_table& made, const table_config& config) {
    const learned_table learned = learn_table(made.table(), config);
    data_parts parts = learned.parts();
    parts.audit = [&] { return audit_table(learned); };
    std::string text;
    for (const audit_finding& f : audit(parts))
        if (f.leak) text += f.text + '\n';
    return text;
}

std::string number(double v) { return text_of(v); }

}  // namespace

TEST_CASE("audit: nothing is found where there is nothing", "[audit]") {
    for (const bool classes : {false, true}) {
        const made_table made{.classes = classes};
        CHECK(leaks_of(made, made.config()).empty());
        table_config c = made.config();
        c.split.kind = table_split::groups;
        c.split.group = "person";
        CHECK(leaks_of(made, c).empty());
        c.split = {.kind = table_split::time, .time = {"day"}, .tested = {"80"}};
        CHECK(leaks_of(made, c).empty());
        c.split = {.kind = table_split::chosen, .group = "person", .tested = {"p3", "p7", "p11", "p12", "p13"}};
        CHECK(leaks_of(made, c).empty());
    }
}

TEST_CASE("audit: columns that give the target away", "[audit]") {
    const auto noise = [](int i, std::uint64_t k) {
        return random_stream{5, 6, static_cast<std::uint32_t>(i)}.normal(k);
    };
    const std::vector<std::pair<const char*, made_table::column>> of_values{
        {"the target", [](int, double y, int) { return number(y); }},
        {"its negative", [](int, double y, int) { return number(-y); }},
        {"in another unit", [](int, double y, int) { return number(273.15 + 1.8 * y); }},
        {"its exponential", [](int, double y, int) { return number(std::exp(y)); }},
        {"its cube", [](int, double y, int) { return number(y * y * y); }},
        {"rounded", [](int, double y, int) { return number(std::round(4 * y) / 4); }},
        {"with noise", [&](int i, double y, int) { return number(y + 0.4 * noise(i, 0)); }},
        {"in words", [](int, double y, int) { return concat("band", std::floor(2 * std::clamp(y, -2.5, 2.5))); }},
        {"known in most rows", [](int i, double y, int) { return i % 20 ? number(y) : std::string("NA"); }},
    };
    for (const auto& [name, column] : of_values) {
        CAPTURE(name);
        const made_table made{.more = {{"x", column}}};
        CHECK_THAT(leaks_of(made, made.config()), Contains("column 'x' alone predicts the target (R² "));
    }
    const std::vector<std::pair<const char*, made_table::column>> of_classes{
        {"the class", [](int, double, int label) { return concat(label); }},
        {"the other class", [](int, double, int label) { return concat(1 - label); }},
        {"the class as a word", [](int, double, int label) { return std::string(label ? "sick" : "well"); }},
        {"what the class was made of", [](int, double y, int) { return number(y); }},
        {"a measurement that one class has",
         [](int, double y, int label) { return label ? number(y) : std::string("NA"); }},
        {"codes of the class", [&](int i, double, int label) { return concat("code", label * 10 + i % 5); }},
    };
    for (const auto& [name, column] : of_classes) {
        CAPTURE(name);
        const made_table made{.more = {{"x", column}}, .classes = true};
        CHECK_THAT(leaks_of(made, made.config()), Contains("column 'x' alone predicts the target (AUC 1 "));
    }
}

TEST_CASE("audit: names of rows", "[audit]") {
    for (const int first : {0, 1, 100000}) {
        const made_table made{.more = {{"id", [=](int i, double, int) { return concat(first + i); }}}};
        CHECK_THAT(leaks_of(made, made.config()), Contains("column 'id' looks like names of rows"));
        table_config c = made.config();
        c.leave_out.push_back("id");
        CHECK(leaks_of(made, c).empty());
    }
    const made_table shuffled{.more = {{"id", [](int i, double, int) { return concat(i * 7 % 401); }}}};
    CHECK_THAT(leaks_of(shuffled, shuffled.config()), Contains("looks like names of rows"));
    // Rows sorted by their target, and numbered: what BACE's last column is.
    made_table sorted{.more = {{"id", [](int, double y, int) { return concat(std::llround(1000 * y)); }}}};
    CHECK_THAT(leaks_of(sorted, sorted.config()), Contains("column 'id' alone predicts the target"));
}

TEST_CASE("audit: what both parts share", "[audit]") {
    // A quarter of the rows a second time.
    int n = 0;
    const made_table twice{.more = {{"n", [&](int, double, int) { return concat(n++ % 400); }}},
                           .source = [](int i) { return i % 300; }};
    table_config c = twice.config();
    c.leave_out.push_back("n");
    CHECK(leaks_of(twice, c).empty());  // equal rows are kept together
    c.split = {.kind = table_split::time, .time = {"n"}, .tested = {"300"}};
    CHECK_THAT(
        leaks_of(twice, c),
        Contains("100 of 100 test samples have the inputs of a training sample: t.csv row 301 those of t.csv row 1"));
    const made_table made;
    c = made.config();
    c.split.group = "person";  // named, and the split does not go by it
    CHECK_THAT(leaks_of(made, c), Contains(" groups of column 'person' are in both parts, such as 'p0'"));
    c.split.group = "";
    c.split.time = {"day"};
    CHECK_THAT(leaks_of(made, c), Contains("training rows are not earlier than the first test row"));
    c.split = {.kind = table_split::chosen, .group = "person", .time = {"day"}, .tested = {"p3"}};
    CHECK_THAT(leaks_of(made, c), Contains("training rows are not earlier than the first test row, row 4"));
}

TEST_CASE("audit: what is no leak is told", "[audit]") {
    const made_table made{.more = {{"one", [](int, double, int) { return std::string("5"); }}}, .classes = true};
    const learned_table learned = learn_table(made.table(), made.config());
    data_parts parts = learned.parts();
    parts.audit = [&] { return audit_table(learned); };
    std::string text;
    for (const audit_finding& f : audit(parts)) {
        CHECK_FALSE(f.leak);
        text += f.text + '\n';
    }
    CHECK_THAT(text, Contains("1 columns have one value in the training part: one") && Contains("always class 'k") &&
                         Contains("% of the tests"));
}

}  // namespace cairn::test
