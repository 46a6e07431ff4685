#include "states/catalogue.hpp"
#include "benchmarks/made_versions.hpp"
#include "catch.hpp"
#include "messages.hpp"
#include "state/small_version.hpp"
#include "states/change.hpp"
#include "states/compare.hpp"
#include "states/history.hpp"

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

std::int64_t number(const states::catalogue& c, const std::string& sql) {
    return c.query(sql).rows.at(0).at(0).get<std::int64_t>();
}

}  // namespace

TEST_CASE("catalogue: rows of a family of runs", "[states]") {
    const temporary_folder folder;
    make_family(folder.path / "runs", 4, 10);
    const states::catalogue all(states::runs_at(folder.path));
    CHECK(number(all, "SELECT count(*) FROM states WHERE problem IS NULL AND digest IS NOT NULL") == 40);
    CHECK(number(all, "SELECT count(*) FROM metrics") == 80);
    CHECK(number(all, "SELECT count(*) FROM settings WHERE path = 'optimizer.lr' AND value > 0.0025") == 20);
    CHECK(number(all, "SELECT count(*) FROM settings") == 40 * 60);
    CHECK(number(all, "SELECT count(*) FROM versions WHERE \"optimizer.lr\" < 0.0015 AND test_accuracy > 0.98") == 5);
    CHECK(number(all, "SELECT sum(bytes) FROM states") == 40'000);
    // Each run has the first half of the one before as ancestors; the best is the last version of the last run.
    const states::table line = all.query(ancestors_of_the_best);
    REQUIRE(line.rows.size() == 25);
    for (std::size_t i = 0; i < 25; ++i) CHECK(line.rows[i][1] == 10 * (static_cast<int>(i) + 1));
    CHECK(line.rows.front()[0].get<std::string>().ends_with("run0"));
}

TEST_CASE("catalogue: SQL that would write, or misspells a name, is refused", "[states]") {
    const temporary_folder folder;
    make_family(folder.path, 1, 2);
    const states::catalogue all(states::runs_at(folder.path));
    for (const char* sql :
         {"DELETE FROM states", "UPDATE states SET step = 0", "DROP TABLE states",
          "INSERT INTO tags VALUES (1, 2, 3, 4)", "ATTACH '/tmp/x.db' AS x", "PRAGMA journal_mode = DELETE",
          "CREATE TABLE x(y)", "VACUUM INTO '/tmp/x.db'", "SELECT load_extension('x')", "BEGIN", "SELECT 1; SELECT 2",
          "", "-- nothing", "WITH x AS (SELECT 1) DELETE FROM states", "SELECT \"optimizer.rate\" FROM versions",
          "SELECT"})
        CHECK_THAT(message_of([&] { all.query(sql); }), Contains("SQL: "));
    CHECK(number(all, "SELECT count(*) FROM states") == 2);
}

TEST_CASE("catalogue: a damaged or missing lineage, or manifest, is a row that says less", "[states]") {
    const temporary_folder folder;
    make_family(folder.path, 1, 5);
    const auto directory = [&](int i) {
        return folder.path / "run0/states" / concat("000000", 10 * i, "-000000000001");
    };
    const std::string good = text_of(directory(1) / "lineage.json");
    std::filesystem::remove(directory(1) / "lineage.json");
    std::ofstream(directory(2) / "lineage.json") << good.substr(0, 300);
    std::ofstream(directory(3) / "manifest") << "cairn manifest 2\n";
    std::ofstream(directory(4) / "lineage.json")
        << R"({"metrics": {"a\"b": 1, "STEP": 2, "x": "y", "n": null}, "tags": [3, "one", "two's"], "epoch": "many",
               "parent": 7, "settings": "[a"})";
    const states::catalogue all(states::runs_at(folder.path));
    CHECK(number(all, "SELECT count(*) FROM states") == 5);
    CHECK(number(all, "SELECT count(*) FROM states WHERE epoch IS NULL") == 3);
    CHECK(number(all, "SELECT count(*) FROM states WHERE problem LIKE '%manifest 2%' AND digest IS NULL") == 1);
    CHECK(number(all, "SELECT count(*) FROM metrics WHERE state = 4") == 2);
    CHECK(number(all, "SELECT count(*) FROM versions WHERE tags = 'one two''s' AND step = 40 AND \"a\"\"b\" = 1") == 1);
    // Any damage of the text is read.
    for (std::size_t i = 0; i < good.size(); i += 3) {
        std::string damaged = good;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
        states::settings_of(parse_description(damaged).settings);
        states::settings_of(parse_description(good.substr(0, i)).settings);
    }
}

TEST_CASE("catalogue: parents that are gone or go in a circle are told", "[states]") {
    const temporary_folder folder;
    const auto line = [&](const std::string& run, std::int64_t step, const std::string& version) {
        nlohmann::json text = made_lineage(folder.path / run, step, 0.5, 0.1);
        text["parent"] = {{"run", "/nowhere"}, {"version", version}, {"how", "branch"}};
        return text;
    };
    make_version(folder.path / "a", 10, 1, line("a", 10, "00000020-000000000002"));
    make_version(folder.path / "b", 20, 2, line("b", 20, "00000010-000000000001"));
    make_version(folder.path / "c", 30, 3, line("c", 30, "00000005-00000000000f"));
    make_version(folder.path / "d", 40, 4, line("d", 40, "00000040-000000000004"));
    const states::catalogue all(states::runs_at(folder.path));
    const auto of = [&](const std::string& name) {
        return states::history(all, locate_version((folder.path / name).string()).version.directory.string()).json();
    };
    CHECK(of("a")["circle"] == true);
    CHECK(of("a")["ancestors"].size() == 1);
    CHECK(of("d")["circle"] == true);
    CHECK(of("c")["circle"] == false);
    CHECK(of("c")["gone"]["version"] == "00000005-00000000000f");
}

TEST_CASE("versions are named by run, step, tag and directory; tagged and newest ones stay", "[states]") {
    const temporary_folder folder;
    make_family(folder.path, 1, 4);
    const std::string run = (folder.path / "run0").string();
    CHECK(locate_version(run).version.step == 40);
    CHECK(locate_version(run + "@20").version.step == 20);
    states::change_tags(locate_version(run + "@20"), {"good", "better"}, {});
    states::change_tags(locate_version(run + "@good"), {}, {"better"});
    CHECK(locate_version(run + "@good").version.step == 20);
    CHECK(locate_version(run + "/states/00000030-000000000001/").version.step == 30);
    CHECK_THAT(message_of([&] { locate_version(run + "@better"); }), Contains("20 (good)"));
    CHECK_THAT(message_of([&] { locate_version((folder.path / "none").string()); }), Contains("no run"));
    CHECK_THAT(message_of([&] { states::change_tags(locate_version(run), {"7"}, {}); }), Contains("no tag"));
    std::ofstream(locate_version(run).version.directory / "lineage.json") << "{";  // damaged: written anew
    states::change_tags(locate_version(run), {"last"}, {});
    CHECK(locate_version(run + "@last").version.step == 40);
    states::change_tags(locate_version(run), {}, {"last"});

    const auto remove = [&](const std::string& which, bool force = false) {
        return message_of([&] { states::remove_versions({locate_version(run + which)}, force); });
    };
    CHECK_THAT(remove(""), Contains("newest"));
    CHECK_THAT(remove("@good"), Contains("tagged good"));
    {
        const directory_lock at_work(run);
        CHECK_THAT(remove("@10"), Contains("in use"));
    }
    remove("@10");
    CHECK(versions_not_kept(folder.path / "run0/states", parse_retention({"last 1"})) ==
          std::vector<std::string>{"00000030-000000000001"});
    std::filesystem::create_directories(folder.path / "run0/states/.00000000000a-00000050");
    CHECK(states::collect(run, {"last 1"}, "").size() == 2);
    CHECK(list_versions(folder.path / "run0/states").size() == 2);
    remove("@good", true);
    CHECK(list_versions(folder.path / "run0/states").size() == 1);
}

TEST_CASE("versions of any two meshes are compared tensor by tensor", "[states]") {
    const temporary_folder folder;
    const std::filesystem::path at = folder.path / "states";
    commit_small_version(at, {1, {1, 0}}, 1, 3);
    commit_small_version(at, {2, {1, 0}}, 3, 3);
    commit_small_version(at, {3, {1, 0}}, 2, 4);
    const auto of = [&](int step) { return states::version_tensors(at / version_id{step, {1, 0}}.name()); };
    const states::comparison same = states::compare_versions(of(1), of(2), 0),
                             other = states::compare_versions(of(1), of(3), 0);
    CHECK(same.same());
    CHECK(same.equal == 4);
    REQUIRE(other.differences.size() == 4);
    const states::tensor_difference& first = other.differences.front();  // value i is seed · i
    CHECK(first.tensor == "model/all");
    CHECK((first.first == 1 && first.first_a == 3 && first.first_b == 4));
    CHECK((first.differ == 1499 && first.largest == 1499));
    CHECK(other.differences[2].what == "texts differ");
    CHECK(states::compare_versions(of(1), of(3), 1).differences.front().differ == 1498);  // but for the first two
    CHECK(states::compare_versions(of(1), of(3), 1500).differences.size() == 1);          // the texts
}

TEST_CASE("files that versions share are counted once", "[states]") {
    const temporary_folder folder;
    for (const char* name : {"00000010-000000000001", "00000020-000000000001"})
        std::filesystem::create_directories(folder.path / "run/states" / name);
    std::ofstream(folder.path / "run/states/00000010-000000000001/a.pack") << std::string(1000, 'x');
    std::ofstream(folder.path / "run/states/00000020-000000000001/b.pack") << std::string(10, 'x');
    std::filesystem::create_hard_link(folder.path / "run/states/00000010-000000000001/a.pack",
                                      folder.path / "run/states/00000020-000000000001/a.pack");
    const states::table t = states::disk_usage(states::runs_at(folder.path));
    REQUIRE(t.rows.size() == 3);
    CHECK((t.rows[0][2] == 1000 && t.rows[0][3] == 0));
    CHECK((t.rows[1][2] == 1010 && t.rows[1][3] == 10));
    CHECK(t.rows[2][2] == 1010);
}

}  // namespace cairn::test
