// Whatever goes wrong while an image is written, what is at its path is the complete old or the complete new one.

#include "catch.hpp"
#include "state/breaking_system.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/core/tensor.hpp>
#include <cairn/state/direct_file.hpp>

#include <sys/resource.h>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

// An aligned image whose bytes depend on `seed`.
struct image_to_write {
    std::size_t bytes;
    std::unique_ptr<char, void (*)(void*)> data;

    explicit image_to_write(std::size_t n, unsigned seed = 1)
        : bytes(n),
          data(static_cast<char*>(std::aligned_alloc(direct_block, n / direct_block * direct_block + 8192)),
               std::free) {
        for (std::size_t i = 0; i < n; ++i) data.get()[i] = static_cast<char>((i + seed) * 2654435761u >> 11);
    }
    std::string text() const { return {data.get(), bytes}; }

    template <class System = posix_system>
    void write(const std::filesystem::path& path, System system = {}) const {
        direct_file<System> file(path, system);
        file.write(data.get(), bytes);
        file.commit();
    }
};

// No O_DIRECT, found out when a file is opened or when it is first written; or writes that are cut short.
struct limited_system : posix_system {
    bool refuse_open = false, refuse_write = false;
    std::size_t most = std::size_t{1} << 40;
    int* direct_writes;

    explicit limited_system(int* count) : direct_writes(count) {}

    static bool is_direct(int file) { return (::fcntl(file, F_GETFL) & O_DIRECT) != 0; }
    int open(const char* path, int flags) {
        if (refuse_open && (flags & O_DIRECT)) return errno = EINVAL, -1;
        return posix_system::open(path, flags);
    }
    ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t at) {
        if (is_direct(file) && refuse_write) return errno = EINVAL, -1;
        if (!is_direct(file)) return posix_system::pwrite(file, data, std::min(bytes, most), at);
        ++*direct_writes;
        if (most % direct_block == 0) return posix_system::pwrite(file, data, std::min(bytes, most), at);
        const int plain = ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_WRONLY);  // as a full disk does
        const ssize_t done = ::pwrite(plain, data, std::min(bytes, most), at);
        ::close(plain);
        return done;
    }
};

}  // namespace

TEST_CASE("an image of any length is written whole") {
    const temporary_folder folder;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                    std::size_t{4097}, std::size_t{16 << 20}, std::size_t{(33 << 20) + 4123}}) {
        const image_to_write image(bytes);
        INFO(bytes << " bytes");
        image.write(folder / "f");
        CHECK((text_of(folder / "f") == image.text()));
        for (const int how : {0, 1, 2, 3}) {
            int direct_writes = 0;
            limited_system system(&direct_writes);
            system.refuse_open = how == 0;
            system.refuse_write = how == 1;
            if (how == 2) system.most = 8192;  // cut short, at blocks and within them
            if (how == 3) system.most = 5000;
            if (how >= 2 && bytes > (1 << 20)) system.most *= 40;
            image_to_write(100, 7).write(folder / "f");
            image.write(folder / "f", system);
            CHECK((text_of(folder / "f") == image.text()));
            if (how < 2) CHECK(direct_writes == 0);
            CHECK_FALSE(std::filesystem::exists(folder / "f.tmp"));
        }
    }
    const image_to_write image(9000);
    direct_file<> file(folder / "g");
    CHECK_THROWS_WITH(file.write(image.data.get() + 64, 100), Contains("g.tmp") && Contains("multiple of 4096"));
}

TEST_CASE("an image goes past the cache where the file system allows it") {
    const temporary_folder folder;
    const int probe = ::open((folder / "p").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0666);
    if (probe < 0) {
        WARN("skipped: no O_DIRECT in " << folder.path);
        return;
    }
    ::close(probe);
    int direct_writes = 0;
    image_to_write((33 << 20) + 1).write(folder / "f", limited_system(&direct_writes));
    CHECK(direct_writes == 4);  // 16 MiB twice, 1 MiB, the padded block
}

TEST_CASE("a call that fails while an image is written leaves the earlier file or the new one") {
    const temporary_folder folder;
    const image_to_write old(5000, 1), changed((5 << 20) + 77, 2);
    for (const int reason : {ENOSPC, EIO, EDQUOT, EROFS})
        for (const bool forever : {false, true}) {
            bool succeeded = false;
            int failures = 0, kept = 0;
            for (int k = 1; !succeeded; ++k) {
                REQUIRE(k < 40);
                old.write(folder / "f");
                int left = k;
                const std::string message = [&] {
                    try {
                        changed.write(folder / "f", breaking_system(&left, reason, forever));
                        return std::string();
                    } catch (const error& e) {
                        return std::string(e.what());
                    }
                }();
                succeeded = message.empty();
                failures += !succeeded;
                INFO(message);
                if (!succeeded) CHECK_THAT(message, Contains((folder / "f").string()) && Contains(strerror(reason)));
                const std::string found = text_of(folder / "f");
                kept += found == old.text();
                REQUIRE((found == old.text() || found == changed.text()));
                CHECK_FALSE(std::filesystem::exists(folder / "f.tmp"));
            }
            CHECK(failures >= 9);  // open, 3 writes, ftruncate, fsync, close, rename, open and fsync of the folder
            CHECK(kept >= failures - 3);
        }
}

TEST_CASE("a signal at any call while an image is written does no harm") {
    const temporary_folder folder;
    const image_to_write image((5 << 20) + 77);
    for (int k = 1;; ++k) {
        int left = k;
        image.write(folder / "f", breaking_system(&left, EINTR));
        REQUIRE((text_of(folder / "f") == image.text()));
        std::filesystem::remove(folder / "f");
        if (left > 0) break;
    }
}

TEST_CASE("a process that dies while an image is written leaves the earlier file or the new one") {
    const temporary_folder folder;
    const image_to_write old(5000, 1), changed((5 << 20) + 77, 2);
    old.write(folder / "f");
    int deaths = 0;
    for (int k = 1;; ++k) {
        REQUIRE(k < 40);
        const int status = in_child([&] {
            int left = k;
            changed.write(folder / "f", breaking_system(&left));
        });
        const std::string found = text_of(folder / "f");
        REQUIRE((found == old.text() || found == changed.text()));
        if (WIFEXITED(status)) {
            CHECK(WEXITSTATUS(status) == 0);
            CHECK((found == changed.text()));
            break;
        }
        REQUIRE(WTERMSIG(status) == SIGKILL);
        ++deaths;
    }
    CHECK(deaths >= 10);
    old.write(folder / "f");  // what a dead process left behind is no hindrance
    CHECK_FALSE(std::filesystem::exists(folder / "f.tmp"));
}

TEST_CASE("fsync is not called again on a file where it failed") {
    struct failing_fsync : posix_system {
        int* calls;
        int fsync(int) { return ++*calls, errno = EIO, -1; }
    };
    const temporary_folder folder;
    int calls = 0;
    failing_fsync system;
    system.calls = &calls;
    CHECK_THROWS_WITH(image_to_write(5000).write(folder / "f", system),
                      Contains("f.tmp: fsync failed, byte 5000: Input/output error"));
    CHECK(calls == 1);
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a limit on the size of files is told with its byte") {
    const temporary_folder folder;
    const int status = in_child([&] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1'000'000, 1'000'000};
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
            image_to_write(5 << 20).write(folder / "f");
        } catch (const error& e) {
            if (std::string(e.what()).find("f.tmp: write failed, byte 1000000: File too large") != std::string::npos)
                _exit(42);
            std::cerr << e.what() << std::endl;
        }
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
    CHECK(std::filesystem::is_empty(folder.path));
}

}  // namespace cairn::test
