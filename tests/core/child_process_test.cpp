// Child processes: what they return, throw, and die of; several at once.

#include "catch.hpp"

#include <cairn/core/child_process.hpp>
#include <cairn/core/parallel.hpp>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace cairn {

TEST_CASE("a child's text, longer than a pipe holds, and its changes stay in the child") {
    int here = 1;
    const std::string text = in_child_process([&] { return ++here, std::string(300'000, 'x') + std::to_string(here); });
    CHECK(text == std::string(300'000, 'x') + '2');
    CHECK(here == 1);
}

TEST_CASE("what a child throws is thrown, and its death is told") {
    CHECK_THROWS_WITH(in_child_process([]() -> std::string { throw error("no such workload"); }), "no such workload");
    CHECK_THROWS_WITH(in_child_process([]() -> std::string { throw 7; }), Catch::Contains("unknown exception"));
    CHECK_THROWS_WITH(in_child_process([]() -> std::string { return raise(SIGKILL), ""; }),
                      Catch::Contains("by signal 9") && Catch::Contains("memory"));
    CHECK_THROWS_AS(in_child_process([]() -> std::string { return raise(SIGKILL), ""; }), child_killed);
    CHECK_THROWS_WITH(in_child_process([]() -> std::string { _exit(3); }), Catch::Contains("with status 3"));
}

TEST_CASE("children run side by side; one that is not asked is ended") {
    std::vector<child_process> all;
    for (int i = 0; i < 5; ++i) all.emplace_back([i] { return std::to_string(i * i); });
    const child_process endless([]() -> std::string {
        for (;;) pause();
    });
    for (int i = 5; i-- > 0;) CHECK(all[static_cast<std::size_t>(i)].text() == std::to_string(i * i));
}

TEST_CASE("a child that computed in parallel leaves nothing in shared memory") {
    const std::string child = in_child_process([] {
        set_threads(1);  // this process's threads, for which GCC's OpenMP would wait, are not in the child
        parallel_chunks(2, 1, [](index_t, index_t, index_t) {});
        return std::to_string(getpid());
    });
    CHECK_FALSE(std::filesystem::exists(concat("/dev/shm/__KMP_REGISTERED_LIB_", child, '_', getuid())));
}

}  // namespace cairn
