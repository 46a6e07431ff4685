// One run at a time writes in a directory, and what it writes is on disk.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/train/run_directory.hpp>

#include <csignal>
#include <sstream>

#include <sys/wait.h>

namespace cairn {

TEST_CASE("run directory: a second run is refused and told who the first one is", "[run_directory]") {
    const temporary_folder folder;
    {
        const run_directory first(folder.path);
        const std::string why = test::message_of([&] { run_directory second(folder.path); });
        CHECK(test::contains(why, concat("process ", getpid(), " on ")));
        CHECK(test::contains(why, "--out"));
        CHECK(std::filesystem::exists(folder / "run.lock"));
    }
    CHECK(!std::filesystem::exists(folder / "run.lock"));
    const run_directory again(folder.path);
}

TEST_CASE("run directory: a killed run leaves no lock", "[run_directory]") {
    const temporary_folder folder;
    const pid_t child = fork();
    if (child == 0) {
        const run_directory mine(folder.path);
        kill(getpid(), SIGKILL);
    }
    REQUIRE(child > 0);
    waitpid(child, nullptr, 0);
    CHECK(test::text_of(folder / "run.lock").starts_with(concat("process ", child, " on ")));
    const run_directory next(folder.path);
    CHECK(test::text_of(folder / "run.lock").starts_with(concat("process ", getpid(), " on ")));
}

TEST_CASE("run directory: fresh ones differ, though made in the same second", "[run_directory]") {
    const temporary_folder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path);
    const auto a = run_directory::fresh("name"), b = run_directory::fresh("name");
    CHECK(a != b);
    CHECK(std::filesystem::is_directory(a));
    CHECK(std::filesystem::is_directory(b));
    std::filesystem::current_path(before);
}

TEST_CASE("run directory: files are written whole, lines are added", "[run_directory]") {
    const temporary_folder folder;
    const run_directory run(folder.path);
    run.sync("lines");  // there is none yet
    run.write("whole", "first");
    run.write("whole", "second");
    run.append("lines", "a");
    run.append("lines", "b");
    run.sync("lines");
    CHECK(test::text_of(folder / "whole") == "second");
    CHECK(test::text_of(folder / "lines") == "a\nb\n");
    std::filesystem::create_directory(folder / "taken");
    CHECK(test::contains(test::message_of([&] { run.write("taken", "text"); }), "as it was before"));
    CHECK(!std::filesystem::exists(folder / "taken.tmp"));
}

}  // namespace cairn
