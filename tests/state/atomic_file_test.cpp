// Whatever goes wrong while a state is saved, what is at its path is the complete old or the complete new state.

#include "catch.hpp"
#include "state/breaking_system.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/state_file.hpp>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <thread>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace cairn;
using cairn::test::breaking_system, cairn::test::in_child;
using Catch::Matchers::Contains;

namespace {

// A state whose every number is the same, so that a mixture shows.
struct uniform_state {
    tensor<double> small = tensor<double>::zeros({3});
    tensor<float> large = tensor<float>::zeros({300, 701});
    std::int64_t number = 0;
    std::string text;

    void set(int value) {
        std::fill_n(small.data(), small.size(), value);
        std::fill_n(large.data(), large.size(), static_cast<float>(value));
        number = value;
        text = std::to_string(value);
    }
    state_view view() {
        state_view v;
        v.add("small", small);
        v.add("large", large);
        v.add("number", number);
        v.add("text", text);
        return v;
    }
    bool is(int value) const {
        for (double x : small.span())
            if (x != value) return false;
        for (float x : large.span())
            if (x != static_cast<float>(value)) return false;
        return number == value && text == std::to_string(value);
    }
};

// Number of the file at `path`, another one for each version that is renamed into place; 0 when there is none.
ino_t identity(const std::filesystem::path& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

TEST_CASE("a system call that fails leaves the earlier state or the new one") {
    const temporary_folder folder;
    const auto path = folder / "s";
    uniform_state old, changed, found;
    old.set(1);
    changed.set(2);
    bool succeeded = false;
    int failures = 0, kept = 0;
    for (int k = 1; !succeeded; ++k) {
        REQUIRE(k < 100);
        save_state(path, old.view());
        int left = k;
        try {
            save_state(path, changed.view(), breaking_system{&left, ENOSPC});
            succeeded = true;
        } catch (const error& e) {
            ++failures;
            INFO(e.what());
            CHECK(std::string(e.what()).find((folder / "s").string()) != std::string::npos);
            CHECK(std::string(e.what()).find("No space left") != std::string::npos);
        }
        load_state(path, found.view());
        const bool is_old = found.is(1);
        kept += is_old;
        REQUIRE((is_old || found.is(2)));
        CHECK_FALSE(std::filesystem::exists(folder / "s.tmp"));
    }
    CHECK(failures >= 12);        // create, writes, fsync, close, rename, open and fsync of the folder
    CHECK(kept >= failures - 2);  // only these last two come after the rename
}

TEST_CASE("a process that dies at any system call leaves the earlier state or the new one") {
    const temporary_folder folder;
    const auto path = folder / "s";
    uniform_state old, changed, found;
    old.set(1);
    changed.set(2);
    save_state(path, old.view());
    int deaths = 0;
    for (int k = 1;; ++k) {
        REQUIRE(k < 100);
        const int status = in_child([&] {
            int left = k;
            save_state(path, changed.view(), breaking_system{&left});
        });
        load_state(path, found.view());
        REQUIRE((found.is(1) || found.is(2)));
        if (WIFEXITED(status)) {
            CHECK(WEXITSTATUS(status) == 0);
            break;
        }
        REQUIRE(WTERMSIG(status) == SIGKILL);
        ++deaths;
    }
    CHECK(deaths >= 12);
    CHECK(found.is(2));
    save_state(path, old.view());  // what a dead process left behind is no hindrance
    CHECK_FALSE(std::filesystem::exists(folder / "s.tmp"));
}

TEST_CASE("a process killed at any time leaves a complete state") {
    const temporary_folder folder;
    const auto path = folder / "s";
    uniform_state found;
    std::int64_t newest = 0;
    for (std::uint64_t round = 0; round < 20; ++round) {
        const ino_t before = identity(path);
        std::cout.flush();
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            uniform_state state;
            for (int value = static_cast<int>(newest) + 1;; ++value) {
                state.set(value);
                try {
                    save_state(path, state.view());
                } catch (...) {
                    _exit(1);
                }
            }
        }
        for (int wait = 0; wait < 20'000 && identity(path) == before; ++wait)  // until one is complete, at most 20 s
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::microseconds(random_stream{3, 0, 0}.below(10'000, round)));
        kill(child, SIGKILL);
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        load_state(path, found.view());
        REQUIRE(found.is(static_cast<int>(found.number)));
        REQUIRE(found.number > newest);
        newest = found.number;
    }
}

TEST_CASE("a limit on the size of files leaves the earlier state") {
    const temporary_folder folder;
    const auto path = folder / "s";
    uniform_state old, changed, found;
    old.set(1);
    changed.set(2);
    save_state(path, old.view());
    const int status = in_child([&] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{100'000, 100'000};
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
            save_state(path, changed.view());
        } catch (const error& e) {
            const std::string message = e.what();
            if (message.find("s.tmp: write failed, byte 100000: File too large; s is as it was before") !=
                std::string::npos)
                _exit(42);
            _exit(2);
        }
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
    load_state(path, found.view());
    CHECK(found.is(1));
    CHECK_FALSE(std::filesystem::exists(folder / "s.tmp"));
}

TEST_CASE("a full disk leaves the earlier state") {
    const temporary_folder folder;
    if (mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=1m") != 0) {
        WARN("skipped: no right to mount a small file system here (" << std::strerror(errno)
                                                                     << "); the limit on file sizes stands in");
        return;
    }
    uniform_state old, changed, found;
    old.set(1);
    changed.set(2);
    save_state(folder / "s", old.view());  // 841 kB: one fits, two do not
    std::string message;
    try {
        save_state(folder / "s", changed.view());
    } catch (const error& e) {
        message = e.what();
    }
    load_state(folder / "s", found.view());
    const bool left_over = std::filesystem::exists(folder / "s.tmp");
    umount(folder.path.c_str());
    CHECK_THAT(message, Contains("s.tmp: write failed, byte") && Contains("No space left on device"));
    CHECK(found.is(1));
    CHECK_FALSE(left_over);
}

TEST_CASE("places that cannot be written are named") {
    const temporary_folder folder;
    uniform_state state;
    CHECK_THROWS_WITH(save_state(folder / "absent/s", state.view()),
                      Contains("absent/s.tmp: cannot be created") && Contains("No such file"));
    std::ofstream(folder / "file") << "x";
    CHECK_THROWS_WITH(save_state(folder / "file/s", state.view()), Contains("Not a directory"));
    std::filesystem::create_directory(folder / "taken");
    std::ofstream(folder / "taken/x") << "x";
    CHECK_THROWS_WITH(save_state(folder / "taken", state.view()), Contains("cannot be renamed to taken"));
    CHECK_FALSE(std::filesystem::exists(folder / "taken.tmp"));
}
