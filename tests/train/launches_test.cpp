// The processes that a run has had: their seconds add up, also where some were killed.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/train/launches.hpp>

namespace cairn {

namespace {

nlohmann::json launches_of(const std::filesystem::path& folder) {
    return nlohmann::json::parse(test::text_of(folder / "launches.json"));
}

}  // namespace

TEST_CASE("launches: seconds of all processes add up", "[launches]") {
    const temporary_folder folder;
    const run_directory run(folder / "run");
    {
        run_launches first;
        first.begin(run, 0);
        CHECK(first.earlier() == 0);
        first.end(run, 4, 100);
    }
    {
        run_launches second;  // with a last line of metrics before its state was saved
        second.begin(run, 3.5);
        CHECK(second.earlier() == 4);
    }  // killed after a line that says 6.5 s in all
    {
        run_launches third;
        third.begin(run, 6.5);
        CHECK(third.earlier() == 6.5);
    }  // killed before its first line
    run_launches last;
    last.begin(run, 6.5);
    CHECK(last.earlier() == 6.5);
    last.end(run, 2, 50);
    const nlohmann::json all = launches_of(folder / "run");
    REQUIRE(all.size() == 4);
    std::vector<double> seconds;
    for (const nlohmann::json& e : all) seconds.push_back(e["seconds"]);
    CHECK(seconds == std::vector<double>{4, 2.5, 0, 2});
    CHECK(all == last.all());
    CHECK(all[0]["samples_per_s"] == 100);
    CHECK(!all[1].contains("samples_per_s"));
    for (const nlohmann::json& e : all) CHECK(e["node"] == node_name());
}

TEST_CASE("launches: joules of all processes add up, and are unknown where one did not count", "[launches]") {
    const temporary_folder folder;
    const run_directory run(folder / "run");
    const auto process = [&](double here, bool ends) {
        run_launches launches;
        launches.begin(run, 0);
        const auto all = launches.joules_with(here);
        CHECK(!launches.joules_with(std::nullopt));
        if (ends) launches.end(run, 4, 100, here);
        return all;
    };
    CHECK(process(30, true) == 30.0);
    CHECK(process(12, true) == 42.0);
    CHECK(process(5, false) == 47.0);
    CHECK(process(8, true) == std::nullopt);  // behind one that was killed
    CHECK(process(8, true) == std::nullopt);
    CHECK(launches_of(folder / "run")[1]["joules"] == 12);
    std::ofstream(folder / "run" / "launches.json") << R"([{"seconds": 1, "joules": "many"}])";
    CHECK(process(9, true) == 9.0);  // the file is lost
}

TEST_CASE("launches: a run of an earlier program, and a damaged file", "[launches]") {
    const temporary_folder folder;
    const run_directory run(folder / "run");
    run_launches of_log;
    of_log.begin(run, 40);
    CHECK(of_log.earlier() == 40);
    CHECK(of_log.all().size() == 2);
    for (const char* text : {"[{\"seconds\": \"long\"}]", "{", "3", "[1]", ""}) {
        CAPTURE(text);
        std::ofstream(folder / "run" / "launches.json") << text;
        run_launches anew;
        anew.begin(run, 40);
        CHECK(anew.earlier() == 40);
        CHECK(launches_of(folder / "run").size() == 2);
    }
}

TEST_CASE("launches: texts that scripts hash have their hashes", "[launches]") {
    CHECK(hashed("") == "cbf29ce484222325");  // published values of FNV-1a
    CHECK(hashed("a") == "af63dc4c8601ec8c");
    CHECK(hashed("foobar") == "85944171f73967e8");
    CHECK(host_machine().at("processors") >= 1);
    CHECK(utc_time().size() == 20);
}

}  // namespace cairn
