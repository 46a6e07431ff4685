// The registry of choices: measuring, forcing, saving, replaying, and files that are not what they should be.
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/device/autotune.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

using cairn::test::contains, cairn::test::message_of;

namespace {

constexpr const char* names[] = {"slow", "fast", "broken"};

void spin(double seconds) {
    const cairn::stopwatch watch;
    while (watch.seconds() < seconds) {}
}

// Candidates of known speed; counts how often they run.
struct candidates {
    int runs = 0;
    auto runner() {
        return [this] {
            return [this](std::size_t i) {
                ++runs;
                if (i == 2) cairn::fail("does not work here");
                spin(i == 0 ? 4e-3 : 5e-4);
            };
        };
    }
};

struct folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("cairn_choices_" + std::to_string(::getpid()));
    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }
    std::string operator/(const char* name) const { return (path / name).string(); }
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("autotune: the fastest candidate that works, measured once", "[autotune]") {
    cairn::autotune_cache c;
    candidates k;
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 1);
    const int runs = k.runs;
    CHECK(runs >= 5);
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 1);
    CHECK(k.runs == runs);
    const auto entry = c.entries().at("test/a");
    CHECK(entry.choice == "fast");
    CHECK(entry.seconds.size() == 2);  // not the broken one
    std::ostringstream text;
    c.print(text);
    CHECK(contains(text.str(), "test/a: fast"));
    CHECK(contains(text.str(), "slow"));
}

TEST_CASE("autotune: a candidate with wrong results is never chosen, however fast, and the file says why",
          "[autotune]") {
    struct checked {
        void operator()(std::size_t i) const { spin(i == 0 ? 4e-3 : 5e-4); }
        auto checker() const {
            return [](std::size_t i) { return std::string(i == 1 ? "relative error 0.5" : ""); };
        }
    };
    constexpr const char* two[] = {"slow", "fast"};
    const auto runner = [] { return checked{}; };
    cairn::autotune_cache c;
    CHECK(c.get_or_measure("test/a", two, runner) == 0);
    CHECK(c.entries().at("test/a").rejected.at("fast") == "relative error 0.5");
    std::ostringstream text;
    c.print(text);
    CHECK(contains(text.str(), "rejected fast: relative error 0.5"));

    const folder dir;
    c.save(dir / "file", "m");
    cairn::autotune_cache replay;
    CHECK(replay.load(dir / "file", "m") == 1);
    CHECK(replay.entries().at("test/a").rejected == c.entries().at("test/a").rejected);
    CHECK(replay.get_or_measure("test/a", two, runner) == 0);

    c.force("test", "slow");
    CHECK(c.get_or_measure("test/a", two, runner) == 0);
    c.force("test", "fast");
    CHECK(contains(message_of([&] { c.get_or_measure("test/a", two, runner); }), "fast is forced for test/a"));
}

TEST_CASE("autotune: policies and forcing", "[autotune]") {
    cairn::autotune_cache c;
    candidates k;
    c.set_policy(cairn::autotune_policy::first);
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 0);
    CHECK(k.runs == 0);
    const auto epoch = c.epoch();
    c.force("test", "broken");
    CHECK(c.epoch() != epoch);
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 2);
    CHECK(c.get_or_measure("testing/a", names, k.runner()) == 0);  // another family
    c.force("test", "unheard of");                                 // not a candidate: the registry's answer stands
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 0);
    c.force("test", "");
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 0);
}

TEST_CASE("autotune: no candidate, or none that works, is an error that says why", "[autotune]") {
    cairn::autotune_cache c;
    const auto runner = [] { return [](std::size_t) { cairn::fail("out of luck"); }; };
    CHECK(contains(message_of([&] { c.get_or_measure("test/none", {}, runner); }), "test/none"));
    CHECK(contains(message_of([&] { c.get_or_measure("test/bad", names, runner); }), "test/bad"));
    CHECK(contains(message_of([&] { c.get_or_measure("test/bad", names, runner); }), "out of luck"));
}

TEST_CASE("autotune: candidates may make choices of their own", "[autotune]") {
    cairn::autotune_cache c;
    candidates inner;
    const auto outer = [&] { return [&](std::size_t) { c.get_or_measure("test/inner", names, inner.runner()); }; };
    c.get_or_measure("test/outer", names, outer);
    CHECK(c.entries().size() == 2);
}

TEST_CASE("autotune: two threads asking at once measure once and agree", "[autotune]") {
    cairn::autotune_cache c;
    std::atomic<int> measured{0};
    std::size_t answer[2];
    const auto ask = [&](int i) {
        answer[i] = c.get_or_measure("test/a", names, [&] {
            ++measured;
            return [](std::size_t j) { spin(j == 0 ? 2e-3 : 1e-4); };
        });
    };
    std::thread other(ask, 1);
    ask(0);
    other.join();
    CHECK(measured == 1);
    CHECK(answer[0] == answer[1]);
}

TEST_CASE("autotune: saved ones are replayed, on the same machine only", "[autotune]") {
    const folder dir;
    const std::string path = dir / "autotune.tsv";
    cairn::autotune_cache made;
    candidates k;
    made.get_or_measure("test/a", names, k.runner());
    made.set("test/b", {"broken", {}});
    made.save(path, "machine one");

    cairn::autotune_cache replay, elsewhere;
    CHECK(replay.load(path, "machine one") == 2);
    CHECK(elsewhere.load(path, "machine two") == 0);
    const int runs = k.runs;
    CHECK(replay.get_or_measure("test/a", names, k.runner()) == 1);
    CHECK(replay.get_or_measure("test/b", names, k.runner()) == 2);
    CHECK(k.runs == runs);
    const auto before = made.entries().at("test/a").seconds, after = replay.entries().at("test/a").seconds;
    REQUIRE(before.size() == after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
        CHECK(before[i].first == after[i].first);
        CHECK(after[i].second == Approx(before[i].second).epsilon(1e-4));
    }
    // A run that did not know them yet keeps its choices to itself, and adds what is new.
    cairn::autotune_cache beside;
    beside.set("test/a", {"slow", {}});
    beside.set("test/c", {"fast", {}});
    beside.save(path, "machine one");
    CHECK(replay.load(path, "machine one") == 3);
    CHECK(replay.entries().at("test/a").choice == "fast");
    // Another machine adds its section; ours stays.
    elsewhere.set("test/a", {"slow", {}});
    elsewhere.save(path, "machine two");
    CHECK(cairn::autotune_cache().load(path, "machine one") == 3);
    CHECK(cairn::autotune_cache().load(path, "machine two") == 1);
    CHECK(std::distance(std::filesystem::directory_iterator(dir.path), {}) == 1);  // no temporary file left
}

TEST_CASE("autotune: those that were measured while others had the processors are marked in the file", "[autotune]") {
    const folder dir;
    cairn::autotune_cache made, again;
    made.set("test/steady", {"fast", {{"fast", 1e-3}}});
    made.set("test/shaken", {"fast", {{"fast", 4e-3}}, true});
    made.save(dir / "autotune.tsv", "m");
    CHECK(again.load(dir / "autotune.tsv", "m") == 2);
    CHECK(again.entries().at("test/shaken").disturbed);
    CHECK(again.entries().at("test/shaken").seconds.size() == 1);
    CHECK_FALSE(again.entries().at("test/steady").disturbed);
}

TEST_CASE("CPU contention: other processes are noticed", "[autotune]") {
#ifdef __linux__
    if (!std::filesystem::exists("/proc/thread-self/schedstat")) {
        WARN("skipped: this kernel has no schedstat");
        return;
    }
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    std::vector<pid_t> children;
    for (int i = 0; i < 2 * cores; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);  // whatever happens to its parent
            for (;;) getppid();
        }
        children.push_back(child);
    }
    const cairn::cpu_contention crowded;
    spin(0.3);
    const bool felt = crowded.felt();
    for (const pid_t child : children) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    CHECK(felt);
#endif
}

TEST_CASE("autotune: a recorded choice that is no candidate any more is measured anew", "[autotune]") {
    cairn::autotune_cache c;
    c.set("test/a", {"removed kernel", {}});
    candidates k;
    const folder dir;
    c.save(dir / "file", "m");
    CHECK(c.get_or_measure("test/a", names, k.runner()) == 1);
    c.save(dir / "file", "m");
    cairn::autotune_cache again;
    again.load(dir / "file", "m");
    CHECK(again.entries().at("test/a").choice == "fast");
}

TEST_CASE("autotune: files that are missing, damaged or not writable", "[autotune]") {
    const folder dir;
    cairn::autotune_cache c;
    CHECK(c.load(dir / "missing", "m") == 0);
    write(dir / "empty", "");
    CHECK(c.load(dir / "empty", "m") == 0);
    const char* damaged[] = {"key\tchoice\n",          "@\tm\nkey only\n",      "@\tm\nk\tc\tslow\n",
                             "@\tm\nk\tc\tslow=abc\n", "@\tm\nk\tc\tslow=1x\n", "@\tm\nk\tc\tslow=\n",
                             "\177ELF\x01\x02"};
    for (const char* text : damaged) {
        write(dir / "damaged", text);
        INFO(text);
        CHECK(contains(message_of([&] { c.load(dir / "damaged", "m"); }), "damaged"));
        CHECK(contains(message_of([&] { c.load(dir / "damaged", "m"); }), "line "));
    }
    CHECK(contains(message_of([&] { c.save("/nonexistent/folder/choices", "m"); }), "cannot be created"));
}
