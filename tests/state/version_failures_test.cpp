// Versions while a system call fails or the process dies, at each call of prepare, commit, retention and cleaning: the
// versions in the list are whole, none that was announced is lost, and the next start leaves nothing behind.

#include "catch.hpp"
#include "messages.hpp"
#include "state/small_version.hpp"

#include <functional>
#include <set>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

const version_id older{400, {0x3f2a9c41d07b5e66, 7}}, newer{500, {0x3f2a9c41d07b5e66, 7}};

std::set<std::string> whole_versions(const std::filesystem::path& states) {
    std::set<std::string> names;
    for (const stored_version& v : list_versions(states)) {
        verify_version(v.directory, true);
        names.insert(v.name);
    }
    return names;
}

// What a test does in a directory that `prepare` has made. `check` gets the names of the versions that are there, all
// whole, and whether the action has returned.
struct experiment {
    std::function<void(const std::filesystem::path&)> prepare;
    std::function<void(const std::filesystem::path&, breaking_system)> action;
    std::function<void(const std::set<std::string>&, bool)> check;
};

// What every case has in common: afterwards versions are whole, and the next start tidies up.
void look_after(const std::filesystem::path& states, const experiment& e, bool returned) {
    const std::set<std::string> before = whole_versions(states);
    e.check(before, returned);
    clean_leavings(states, hurried_system());
    CHECK(leavings_in(states).empty());
    CHECK(whole_versions(states) == before);
}

// Returns the number of calls.
int fail_everywhere(const experiment& e) {
    int calls = 0;
    for (const int reason : {ENOSPC, EIO, EROFS, EINTR})
        for (const bool forever : {false, true}) {
            if (reason == EINTR && forever) continue;
            bool returned = false;
            for (int k = 1, left = 0; left <= 0; ++k) {
                REQUIRE(k < 200);
                const temporary_folder run;
                e.prepare(run.path);
                left = k;
                breaking_system system(&left, reason, forever);
                system.removing_fails = true;
                const std::string message = message_of([&] { e.action(run.path, system); });
                INFO("call " << k << ": " << strerror(reason) << ": " << message);
                returned = message.empty();
                if (!returned) CHECK_THAT(message, Contains(run.path.string()) && Contains(strerror(reason)));
                if (reason == EINTR || left > 0) CHECK(returned);
                look_after(run.path, e, returned);
                calls = std::max(calls, k - 1);
            }
        }
    return calls;
}

int die_everywhere(const experiment& e) {
    for (int k = 1;; ++k) {
        REQUIRE(k < 200);
        const temporary_folder run;
        e.prepare(run.path);
        const int status = in_child([&] {
            int left = k;
            e.action(run.path, breaking_system(&left));
        });
        INFO("call " << k);
        const bool returned = WIFEXITED(status);
        if (returned)
            REQUIRE(WEXITSTATUS(status) == 0);
        else
            REQUIRE(WTERMSIG(status) == SIGKILL);
        look_after(run.path, e, returned);
        if (returned) return k - 1;
    }
}

experiment of_commit() {
    return {[](const auto& states) { commit_small_version(states, older, 2, 1, hurried_system()); },
            [](const auto& states, breaking_system system) { commit_small_version(states, newer, 2, 2, system); },
            [](const std::set<std::string>& names, bool returned) {
                CHECK(names.contains(older.name()));
                if (returned) CHECK(names.contains(newer.name()));
            }};
}

experiment of_removal() {
    return {[](const auto& states) {
                commit_small_version(states, older, 2, 1, hurried_system());
                commit_small_version(states, newer, 1, 2, hurried_system());
            },
            [](const auto& states, breaking_system system) { remove_version(states, older.name(), system); },
            [](const std::set<std::string>& names, bool returned) {
                CHECK(names.contains(newer.name()));
                if (returned) CHECK(names.size() == 1);
            }};
}

experiment of_cleaning() {
    return {[](const auto& states) {
                commit_small_version(states, older, 1, 1, hurried_system());
                prepare_small_version(states, newer, 2, 2, hurried_system());
                std::filesystem::create_directories(states / ".removed-00000300-3f2a9c41d07b/x");
            },
            [](const auto& states, breaking_system system) { clean_leavings(states, system); },
            [](const std::set<std::string>& names, bool) { CHECK(names == std::set{older.name()}); }};
}

experiment of_sharing() {
    return {[](const auto& states) { commit_small_version(states, older, 1, 1, hurried_system()); },
            [](const auto& states, breaking_system system) {
                const auto d = prepare_version(states, newer, system);
                const pack_id id{newer, 0, 1};
                share_pack(states / older.name() / id.file(), d / id.file_of(older), system);
                abandon_version(states, newer, system);
            },
            [](const std::set<std::string>& names, bool) { CHECK(names == std::set{older.name()}); }};
}

}  // namespace

TEST_CASE("a version is committed or not, whichever call fails") {
    CHECK(fail_everywhere(of_commit()) >= 40);
    CHECK(fail_everywhere(of_sharing()) >= 8);
}

TEST_CASE("a version is committed or not, wherever the process dies") {
    CHECK(die_everywhere(of_commit()) >= 40);
    CHECK(die_everywhere(of_sharing()) >= 8);
}

TEST_CASE("a version is removed or not, whichever call fails or kills") {
    CHECK(fail_everywhere(of_removal()) >= 9);
    CHECK(die_everywhere(of_removal()) >= 9);
}

TEST_CASE("cleaning may fail or die anywhere, and be done again") {
    CHECK(fail_everywhere(of_cleaning()) >= 5);
    CHECK(die_everywhere(of_cleaning()) >= 5);
}

TEST_CASE("writes that are cut short make the same version") {
    for (const std::size_t most : {1u, 7u, 4096u}) {
        const temporary_folder run;
        hurried_system system;
        system.most = most;
        CHECK(commit_small_version(run.path, newer, 2, 2, system).digest == digest_of_small_version(2));
        CHECK(whole_versions(run.path).size() == 1);
    }
}

TEST_CASE("a copy in place of a link may fail or die anywhere") {
    struct no_links : breaking_system {
        using breaking_system::breaking_system;
        int link(const char*, const char*) { return breaks() ? -1 : (errno = EXDEV, -1); }
    };
    for (const bool dies : {false, true}) {
        bool done = false;
        for (int k = 1; !done; ++k) {
            REQUIRE(k < 50);
            const temporary_folder run;
            std::ofstream(run / "from") << std::string(5000, 'x');
            const int status = in_child([&] {
                int left = k;
                share_pack(run / "from", run / "to", no_links(&left, dies ? 0 : ENOSPC));
            });
            done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            const std::string found = text_of(run / "to");
            CHECK((found.empty() || found.size() == 5000));
            if (done) CHECK(found.size() == 5000);
        }
    }
}

}  // namespace cairn::test
