// Tables: encodings against plain loops over random columns, splits by their laws, and what is said of bad ones.

#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/table/table_format.hpp>

#include <map>
#include <random>
#include <set>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

data_parts table_parts(csv_table cells, const table_config& config) {
    return learn_table(std::move(cells), config).parts();
}

csv_table table_of(const std::string& text) { return parse_csv(text, "t.csv"); }

std::vector<index_t> all_rows(index_t n) {
    std::vector<index_t> rows(static_cast<std::size_t>(n));
    std::iota(rows.begin(), rows.end(), index_t{0});
    return rows;
}

struct sample_of_table {
    std::vector<float> x, values;
    std::int32_t label = -7;
};

sample_of_table sample_at(const any_dataset& d, index_t i) {
    sample_of_table s;
    s.x.resize(static_cast<std::size_t>(d.sample_shape().size()));
    s.values.resize(static_cast<std::size_t>(d.targets().count()));
    const bool classes = d.targets().kind == target_kind::classes;
    REQUIRE(d.read(i, {}, {s.x.data(), classes ? &s.label : nullptr, classes ? nullptr : s.values.data()}));
    return s;
}

// 40 rows: x, x squared, a group of four rows, a word, a target.
std::string forty() {
    std::string text = "x,xx,g,w,y\n";
    for (int i = 0; i < 40; ++i)
        text += concat(i, ',', i * i, ",g", i / 4, ',',
                       i % 3 == 0   ? "red"
                       : i % 3 == 1 ? "green"
                                    : "blue",
                       ',', i % 2, '\n');
    return text;
}

}  // namespace

TEST_CASE("table: encodings of numbers are those of a plain loop", "[table]") {
    std::mt19937 random(7);
    for (int round = 0; round < 60; ++round) {
        const index_t n = 3 + static_cast<index_t>(random() % 40);
        std::vector<double> v;
        std::string text = "x\n";
        for (index_t i = 0; i < n; ++i) {
            v.push_back(round % 3 ? 0.25 * static_cast<double>(1 + random() % 9)
                                  : static_cast<double>(1 + random() % 100000) / 7);
            text += text_of(v.back()) + '\n';
        }
        const csv_table t = table_of(text);
        std::vector<index_t> trained;
        for (index_t i = 0; i < n; i += 1 + round % 2) trained.push_back(i);
        const bool logarithm = round % 4 == 1;
        column_choices choices{.piecewise = round % 2 == 0, .bins = 2 + round % 9};
        if (logarithm) choices.logarithms = {"x"};
        if (!says_nothing(t.at("x"), trained).empty()) continue;
        const column_encoding e(t.at("x"), trained, choices);
        const auto value = [&](index_t i) {
            return logarithm ? std::log(v[static_cast<std::size_t>(i)]) : v[static_cast<std::size_t>(i)];
        };
        std::vector<double> sorted;
        double mean = 0, squares = 0;
        for (const index_t i : trained)
            sorted.push_back(value(i)), mean += value(i) / static_cast<double>(trained.size());
        for (const double s : sorted) squares += (s - mean) * (s - mean) / static_cast<double>(sorted.size());
        std::sort(sorted.begin(), sorted.end());
        std::vector<double> edges;
        for (index_t b = 0; b <= choices.bins; ++b) {
            const double at = static_cast<double>(b * (std::ssize(sorted) - 1)) / static_cast<double>(choices.bins);
            const double low = std::floor(at), edge = sorted[static_cast<std::size_t>(low)] * (1 - (at - low)) +
                                                      sorted[static_cast<std::size_t>(std::ceil(at))] * (at - low);
            if (edges.empty() || edge > edges.back() + 1e-12) edges.push_back(edge);
        }
        for (index_t i = 0; i < n; ++i) {
            std::vector<float> out(static_cast<std::size_t>(e.width()));
            e.encode(t.at("x"), i, out.data());
            if (!choices.piecewise) {
                REQUIRE(out.size() == 1);
                REQUIRE(static_cast<double>(out[0]) == Approx((value(i) - mean) / std::sqrt(squares)).margin(1e-6));
                continue;
            }
            REQUIRE(out.size() == edges.size() - 1);
            for (std::size_t b = 0; b + 1 < edges.size(); ++b) {
                double share = (value(i) - edges[b]) / (edges[b + 1] - edges[b]);
                if (share < 0) share = b != 0 ? 0 : share < -1 ? -1 : share;
                if (share > 1) share = b + 2 != edges.size() ? 1 : share > 2 ? 2 : share;
                REQUIRE(static_cast<double>(out[b]) == Approx(share).margin(1e-5));
            }
        }
    }
}

TEST_CASE("table: cells far outside of the training rows do not decide alone", "[table]") {
    const csv_table t = table_of("x\n0\n1\n2\n3\n4\n5\n1e9\n-1e9\n-1\n");
    const column_encoding e(t.at("x"), std::vector<index_t>{0, 1, 2, 3, 4}, {.piecewise = true, .bins = 2});
    const auto encoded = [&](index_t row) {
        std::vector<float> out(static_cast<std::size_t>(e.width()));
        e.encode(t.at("x"), row, out.data());
        return out;
    };
    REQUIRE(encoded(3) == std::vector<float>{1, 0.5f});
    REQUIRE(encoded(5) == std::vector<float>{1, 1.5f});
    REQUIRE(encoded(6) == std::vector<float>{1, 2});
    REQUIRE(encoded(7) == std::vector<float>{-1, 0});
    REQUIRE(encoded(8) == std::vector<float>{-0.5f, 0});
}

TEST_CASE("table: categories, missing cells, what is left out", "[table]") {
    const csv_table t =
        table_of("n,w,k,one,y\n1,b,10,5,0\n,a,20,5,1\n3,,10,5,0\n5,a,20,5,1\nNA,b,10,5,1\n7,a,10,5,0\n");
    const auto encoded = [&](const char* column, index_t row, const column_choices& choices) {
        const column_encoding e(t.at(column), std::vector<index_t>{0, 1, 2, 3}, choices);
        std::vector<float> out(static_cast<std::size_t>(e.width()));
        e.encode(t.at(column), row, out.data());
        return out;
    };
    const std::vector<float> missing{0, 1}, mean{0, 0}, none{0, 0, 1}, first{1, 0, 0};
    REQUIRE(encoded("n", 1, {}) == missing);
    REQUIRE(encoded("n", 4, {}) == missing);
    REQUIRE(encoded("n", 2, {}) == mean);
    REQUIRE(encoded("w", 2, {}) == none);
    REQUIRE(encoded("w", 1, {}) == first);  // a before b
    REQUIRE(encoded("k", 3, {.categories = {"k"}}) == std::vector<float>{0, 1});
    REQUIRE(column_encoding(t.at("w"), all_rows(6), {}).describe() == "w: 2 categories: a, b; some are missing");

    table_config config{.target = {"y"}, .task = table_task::classes};
    config.split.folds = {2, 0, 0};
    config.choices.categories = {"k"};
    const data_parts parts = table_parts(table_of(forty()), {.target = {"y"}, .task = table_task::classes});
    REQUIRE(parts.sample == shape{2 + 10 + 3});
    REQUIRE(parts.info.names == std::vector<std::string>{"0", "1"});
    REQUIRE(parts.train.size() == 32);
    REQUIRE(parts.test.size() == 8);
    REQUIRE_THAT(message_of([&] { table_parts(t, {.columns = {"one"}, .target = {"y"}}); }),
                 Contains("t.csv: column 'one' has one value in the training part, '5'; leave it out"));
}

TEST_CASE("table: a text is its first bytes, each among those of the training part", "[table]") {
    const csv_table t = table_of("f,n,y\nCO,1,1\nNCCCC,2,0\n,3,1\nOZ,4,0\n12,5,1\n");
    const column_choices choices{.text = {"f"}, .text_length = 3};
    const auto encoded = [&](const column_encoding& e, index_t row) {
        std::vector<float> out(static_cast<std::size_t>(e.width()));
        e.encode(t.at("f"), row, out.data());
        return out;
    };
    const column_encoding whole(t.at("f"), std::vector<index_t>{0, 1}, choices);  // C N O
    CHECK(whole.sample() == shape{3, 3});
    CHECK(encoded(whole, 0) == std::vector<float>{1, 0, 0, 0, 0, 1, 0, 0, 0});
    CHECK(encoded(whole, 1) == std::vector<float>{0, 1, 0, 1, 0, 0, 1, 0, 0});
    CHECK(encoded(whole, 3) == std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0, 0});  // no Z
    CHECK(encoded(whole, 4) == std::vector<float>(9));                          // a number is text, too
    CHECK(whole.describe() == "f: text of at most 3 bytes, 3 different ones, the longest of 5");
    const column_encoding holes(t.at("f"), std::vector<index_t>{0, 1, 2}, choices);
    CHECK(holes.sample() == shape{10});
    CHECK(encoded(holes, 2) == std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1});

    table_config config{.columns = {"f"}, .target = {"y"}, .task = table_task::classes, .choices = choices};
    config.split = {.kind = table_split::chosen, .group = "n", .tested = {"4", "5"}};
    CHECK(table_parts(table_of("f,n,y\nCO,1,1\nNCCCC,2,0\nC,3,1\nOZ,4,0\n12,5,1\n"), config).sample == shape{3, 3});
    config.columns = {"f", "n"};
    CHECK(table_parts(table_of("f,n,y\nCO,1,1\nNCCCC,2,0\nC,3,1\nOZ,4,0\n12,5,1\n"), config).sample == shape{10});
    config.choices.text = {"g"};
    CHECK_THAT(message_of([&] { table_parts(t, config); }), Contains("no column 'g'"));
    const data_parts generated = table_format{{.columns = {"f"}, .target = {"y"}, .choices = choices}}.without_files(1);
    CHECK(generated.sample == shape{3, 32});
}

TEST_CASE("table: statistics of the rows of one moment are those of plain loops", "[table]") {
    std::mt19937 random(3);
    std::string text = "t,p,v,w,y\n";
    std::map<std::pair<int, int>, std::vector<double>> of;
    std::vector<std::pair<int, int>> keys;
    for (int i = 0; i < 60; ++i) {
        const int t = static_cast<int>(random() % 3), p = static_cast<int>(random() % 3);
        const double v = static_cast<double>(random() % 1000) / 8;
        keys.emplace_back(t, p);
        if (i % 7) of[{t, p}].push_back(v);
        text += concat(t, ",p", p, ',', i % 7 ? concat(v) : "NA", ",word", i % 2, ',', i % 2, '\n');
    }
    csv_table made = table_of(text);
    add_group_statistics(made, {.same = {"t", "p"}, .near = {}}, {"v"}, {});
    CHECK(made.names() ==
          std::vector<std::string>{"t", "p", "v", "w", "y", "v mean", "v deviation", "v least", "v most"});
    for (index_t row = 0; row < made.rows(); ++row) {
        const std::vector<double>& all = of.at(keys[static_cast<std::size_t>(row)]);
        double sum = 0, squares = 0, least = 1e9, most = -1e9;
        for (const double v : all) sum += v, least = std::min(least, v), most = std::max(most, v);
        const double n = static_cast<double>(all.size());
        for (const double v : all) squares += (v - sum / n) * (v - sum / n);
        CHECK(made.at("v mean").number(row) == Approx(sum / n));
        CHECK(made.at("v deviation").number(row) == Approx(std::sqrt(squares / n)).margin(1e-9));
        CHECK(made.at("v least").number(row) == least);
        CHECK(made.at("v most").number(row) == most);
    }
    csv_table lone = table_of("t,v\n1,2\n2,NA\n");
    add_group_statistics(lone, {.same = {"t"}, .near = {}}, {"v"}, {});
    CHECK(!lone.at("v mean").is_number(1));
    csv_table around = table_of("d,x,y,v\n1,0,0,1\n1,1,0,2\n1,0,1.5,4\n1,9,9,8\n2,0,0,16\n");
    add_group_statistics(around, {.same = {"d"}, .near = {"x", "y"}, .radius = 1}, {"v"}, {});
    CHECK(around.at("v most").numbers == std::vector<double>{2, 2, 4, 8, 16});
    CHECK(around.at("v mean").numbers == std::vector<double>{1.5, 1.5, 4, 8, 16});

    table_config config{.statistics = {.same = {"t", "p"}, .near = {}}, .target = {"y"}, .task = table_task::classes};
    config.split.time = {"t"};
    const data_parts parts = table_parts(table_of(text), config);  // v, w, p and four columns, v with a mask
    CHECK(parts.sample == shape{2 + 2 + 3 + 4});
    config.statistics.same = {"q"};
    CHECK_THAT(message_of([&] { table_parts(table_of(text), config); }), Contains("no column 'q'"));
}

TEST_CASE("table: samples are rows, targets are standardised by training rows", "[table]") {
    table_config config{.columns = {"x"}, .target = {"xx"}, .choices = {.logarithms = {}}};
    config.split = {.kind = table_split::chosen, .group = "w", .tested = {"red"}};
    const data_parts parts = table_parts(table_of(forty()), config);
    double mean = 0, square = 0, target = 0;
    int n = 0;
    for (int i = 0; i < 40; ++i)
        if (i % 3) mean += i, target += i * i, ++n;
    mean /= n, target /= n;
    for (int i = 0; i < 40; ++i)
        if (i % 3) square += (i - mean) * (i - mean) / n;
    REQUIRE(parts.test.size() == 14);
    for (index_t i = 0; i < 14; ++i) {  // rows 0, 3, 6, …
        const sample_of_table s = sample_at(parts.test, i);
        REQUIRE(static_cast<double>(s.x[0]) == Approx((3.0 * static_cast<double>(i) - mean) / std::sqrt(square)));
        REQUIRE(static_cast<double>(parts.info.mean[0] + parts.info.scale[0] * s.values[0]) ==
                Approx(9.0 * static_cast<double>(i * i)).margin(1e-3));
    }
    REQUIRE(static_cast<double>(parts.info.mean[0]) == Approx(target));
    REQUIRE(parts.test.sample_name(1) == "t.csv row 4");
}

TEST_CASE("table: histories end where the horizon begins", "[table]") {
    std::string text = "year,hour,v\n";
    for (int i = 0; i < 30; ++i)
        text += concat(2000 + i / 10, ',', i % 10, ',', i == 12 ? "NA" : text_of(static_cast<double>(i)), '\n');
    table_config config{.target = {"v"}, .skip_missing_targets = true, .history = 3, .horizon = 2};
    config.columns = {"v"};
    config.split = {.kind = table_split::time, .time = {"year", "hour"}, .tested = {"2002"}};
    const data_parts parts = table_parts(table_of(text), config);
    REQUIRE(parts.sample == shape{3, 2});
    REQUIRE(parts.test.size() == 10);
    REQUIRE(parts.train.size() == 20 - 4 - 1);  // without the first rows, and the one whose target is missing
    const sample_of_table first = sample_at(parts.train, 0), second = sample_at(parts.train, 1),
                          later = sample_at(parts.test, 0);
    REQUIRE(static_cast<double>(parts.info.mean[0] + parts.info.scale[0] * later.values[0]) == Approx(20));
    REQUIRE(first.x[2] == second.x[0]);  // rows 0 to 2 of target 4, rows 1 to 3 of target 5
    REQUIRE(first.x[1] == 0);
    const sample_of_table hole = sample_at(parts.train, 9);  // target 14: rows 10, 11, 12
    REQUIRE(hole.x[5] == 1);
    REQUIRE(hole.x[4] == 0);
    text += "1999,0,3\n";
    REQUIRE_THAT(message_of([&] { table_parts(table_of(text), config); }),
                 Contains("t.csv: row 31 is earlier than the row before; sort the file by time"));
}

TEST_CASE("table: answers, known or not", "[table]") {
    const csv_table t = table_of("x,a,b,z\n1,0,,4\n2,1,1,7\n3,,0,1\n4,1,1,2\n5,0,0,9\n6,1,1,8\n7,,,3\n8,0,1,6\n");
    table_config config{.target = {"a", "b"}, .task = table_task::answers, .skip_missing_targets = true};
    config.split.folds = {2, 0, 1};
    const data_parts parts = table_parts(t, config);
    REQUIRE(parts.info.kind == target_kind::answers);
    REQUIRE(parts.train.size() + parts.test.size() == 7);
    std::multiset<std::pair<float, float>> found;
    for (const any_dataset* part : {&parts.train, &parts.test})
        for (index_t i = 0; i < part->size(); ++i) {
            const sample_of_table s = sample_at(*part, i);
            found.emplace(s.values[0], s.values[1]);
        }
    REQUIRE(found == std::multiset<std::pair<float, float>>{{0, -1}, {1, 1}, {-1, 0}, {1, 1}, {0, 0}, {1, 1}, {0, 1}});
    config.target = {"x", "a"};
    REQUIRE_THAT(message_of([&] { table_parts(t, config); }), Contains("'x' is 2; answers are 0 or 1, or missing"));
}

TEST_CASE("table: folds are disjoint, complete, and keep classes and groups", "[table]") {
    const csv_table t = table_of(forty());
    const std::vector<index_t> rows = all_rows(40);
    std::vector<std::int32_t> classes;
    for (int i = 0; i < 40; ++i) classes.push_back(i % 8 == 0);  // 5 of 40
    for (const table_split kind : {table_split::rows, table_split::groups})
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            std::multiset<index_t> tested;
            for (index_t fold = 0; fold < 5; ++fold) {
                table_split_choice choice{.kind = kind, .group = "g", .folds = {5, fold, seed}};
                const split_indices s = choice.split(t, rows, classes, std::vector{&t.at("x")});
                REQUIRE(s.first.size() + s.second.size() == 40);
                REQUIRE(s.second.size() == 8);
                tested.insert(s.second.begin(), s.second.end());
                index_t rare = 0;
                std::set<index_t> groups;
                for (const index_t row : s.second)
                    rare += classes[static_cast<std::size_t>(row)], groups.insert(row / 4);
                if (kind == table_split::rows) REQUIRE(rare == 1);
                if (kind == table_split::groups) REQUIRE(groups.size() == 2);
            }
            REQUIRE(std::ranges::equal(tested, rows));
        }
    // Settings are chosen on a part of what trains, of whole groups.
    table_config config{.target = {"y"}, .task = table_task::classes};
    config.split = {.kind = table_split::groups, .group = "g", .folds = {5, 1, 3}};
    const auto names = [](const any_dataset& d) {
        std::set<std::string> all;
        for (index_t i = 0; i < d.size(); ++i) all.insert(d.sample_name(i));
        return all;
    };
    const data_parts whole = table_parts(t, config);
    REQUIRE(whole.belong_together);
    config.validation = true;
    const data_parts chosen = table_parts(t, config);
    std::set<std::string> trained = names(chosen.train), both = trained, tested = names(chosen.test);
    both.merge(std::set<std::string>(tested));
    REQUIRE(both == names(whole.train));
    REQUIRE(tested.size() == 8);
    config.split = {.kind = table_split::time, .time = {"x"}, .tested = {"30"}};
    config.leave_out = {"g"};
    REQUIRE(names(table_parts(t, config).test) == std::set<std::string>{"t.csv row 25", "t.csv row 26", "t.csv row 27",
                                                                        "t.csv row 28", "t.csv row 29",
                                                                        "t.csv row 30"});

    // Equal rows are in one fold.
    std::string twice = "a,b,y\n";
    for (int i = 0; i < 60; ++i) twice += concat(i % 25, ',', i % 25 == 7 ? "" : "w", ',', i, '\n');
    std::size_t all = 0;
    for (index_t fold = 0; fold < 5; ++fold) {
        table_config of_fold{.target = {"y"}};
        of_fold.split.folds = {5, fold, 1};
        const split_indices s = learn_table(table_of(twice), of_fold).rows;
        std::set<index_t> kinds, trained;
        for (const index_t row : s.second) kinds.insert(row % 25);
        for (const index_t row : s.first) trained.insert(row % 25);
        REQUIRE(kinds.size() == 5);
        for (const index_t kind : kinds) REQUIRE_FALSE(trained.contains(kind));
        all += s.second.size();
    }
    REQUIRE(all == 60);

    const table_split_choice by_group{.group = "g"};
    REQUIRE_THAT(message_of([&] {
                     by_group.require_whole_groups(t, {{0, 1}, {2, 8}});
                 }),
                 Contains("t.csv: group 'g0' of column 'g' is in both parts, in rows 1 and 3"));
}

TEST_CASE("table: what does not fit is named", "[table]") {
    const csv_table t = table_of(forty());
    const auto message = [&](const table_config& config, const std::string& text = forty()) {
        return message_of([&] { table_parts(table_of(text), config); });
    };
    REQUIRE_THAT(message({}), Contains("data.table.target: name the column to predict; there are: x, xx, g, w, y"));
    REQUIRE_THAT(message({.target = {"z"}}), Contains("t.csv: no column 'z'"));
    REQUIRE_THAT(message({.columns = {"q"}, .target = {"y"}}), Contains("t.csv: no column 'q'"));
    REQUIRE_THAT(message({.columns = {"y"}, .target = {"y"}}), Contains("'y' is the target"));
    REQUIRE_THAT(message({.target = {"x"}, .task = table_task::classes}), Contains("part has class"));
    const std::string text = "a,c,y\n1,u,1\n2,v,2\nmany,u,3\n4,w,4\n5,u,5\n";
    table_config last{.target = {"y"}};
    last.split = {.kind = table_split::chosen, .group = "y", .tested = {"4"}};
    last.columns = {"a"};
    REQUIRE_THAT(message(last, text), Contains("column 'a', row 3: 'many' where numbers are due"));
    last.columns = {"c"};
    REQUIRE_THAT(message(last, text), Contains("t.csv: column 'c', row 4: category 'w' is not in the training part"));
    last.split.tested = {"9"};
    REQUIRE_THAT(message(last, text), Contains("leaves 5 rows to train and 0 to test"));
    last.split.tested = {};
    REQUIRE_THAT(message(last, text), Contains("data.table.tested is empty"));
    last.split = {.kind = table_split::groups};
    REQUIRE_THAT(message(last, text), Contains("set data.table.group"));
    REQUIRE_THAT(message({.target = {"y"}}, "x,y\n1,1\n2,\n3,3\n"), Contains("row 2: the target 'y' is missing"));
    REQUIRE_THAT(message({.columns = {"x"}, .target = {"y"}, .choices = {.logarithms = {"x"}}}),
                 Contains("has no logarithm"));
    table_config holes{.target = {"y"}};
    holes.split = {.kind = table_split::chosen, .group = "y", .tested = {"2"}};
    REQUIRE_THAT(message(holes, "x,y\n1,1\n,2\n3,3\n4,4\n"),
                 Contains("column 'x', row 2 is missing, and no cell of the training part is"));
    std::string many = "id,x,y\n";
    for (int i = 0; i < 400; ++i) many += concat("name", i, ',', i, ',', i % 7, '\n');
    REQUIRE_THAT(message({.target = {"y"}}, many), Contains("column 'id' has more than 256 different words"));
    const temporary_folder folder;
    folder.write("a.csv", forty());
    folder.write("b.csv", forty());
    REQUIRE_THAT(message_of([&] { table_format{{.target = {"y"}}}.load(folder.path()); }),
                 Contains("2 tables (.csv, .csv.gz, .csv.zip); set data.table.file to one of: a.csv, b.csv"));
    const data_parts generated =
        table_format{{.columns = {"a", "b"}, .target = {"y"}, .task = table_task::values, .history = 3}}.without_files(
            1);
    REQUIRE(generated.sample == shape{3, 2});
    REQUIRE(generated.info.names == std::vector<std::string>{"y"});
    REQUIRE(table_format{{.file = "b.csv", .target = {"y"}}}.load(folder.path()).train.size() == 32);
}

}  // namespace cairn::test
