// The emulated GPU finds what it says it finds.

#include "device/cuda/emulated_gpu.hpp"

#include "catch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace cairn {

namespace {

struct reverse_in_block {
    int* out;
    template <class Block>
    void operator()(Block& b) const {
        int* const all = b.template shared<int>();
        all[b.thread()] = static_cast<int>(b.thread());
        b.sync();
        out[b.block() * b.threads() + b.thread()] = all[b.threads() - 1 - b.thread()] + b.shuffle_xor(0, 1);
    }
};

struct without_sync {
    int* out;
    template <class Block>
    void operator()(Block& b) const {
        int* const all = b.template shared<int>();
        all[b.thread()] = static_cast<int>(b.thread());
        out[b.thread()] = all[b.threads() - 1 - b.thread()];
    }
};

struct leaves_early {
    template <class Block>
    void operator()(Block& b) const {
        if (b.thread() > 5) b.sync();
    }
};

struct fails {
    template <class Block>
    void operator()(Block& b) const {
        if (b.thread() == 3) fail("thread 3 fails");
        b.sync();
    }
};

// How a process ends that does this.
template <class Action>
int signal_of(Action&& action) {
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);
        action();
        std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("emulated GPU: threads of a block meet in sync", "[cuda]") {
    for (const bool backwards : {false, true}) {
        emulated_gpu::backwards = backwards;
        tensor<int, emulated_gpu> out({2 * 64});
        emulated_gpu::launch({.blocks = 2, .threads = 64, .shared = 64 * sizeof(int)}, reverse_in_block{out.data()});
        std::vector<int> host(128);
        emulated_gpu::copy_to_host(host.data(), out.data(), 128 * sizeof(int));
        for (int i = 0; i < 128; ++i) CHECK(host[static_cast<std::size_t>(i)] == 63 - i % 64);
    }
    emulated_gpu::backwards = false;
}

TEST_CASE("emulated GPU: a missing sync gives another result in one of the two orders", "[cuda]") {
    std::vector<int> host(64);
    int right = 0;
    for (const bool backwards : {false, true}) {
        emulated_gpu::backwards = backwards;
        tensor<int, emulated_gpu> out({64});
        emulated_gpu::launch({.blocks = 1, .threads = 64, .shared = 64 * sizeof(int)}, without_sync{out.data()});
        emulated_gpu::copy_to_host(host.data(), out.data(), 64 * sizeof(int));
        bool all = true;
        for (int i = 0; i < 64; ++i) all = all && host[static_cast<std::size_t>(i)] == 63 - i;
        right += all ? 1 : 0;
    }
    emulated_gpu::backwards = false;
    CHECK(right < 2);
}

TEST_CASE("emulated GPU: threads that leave while others wait, and exceptions, are errors", "[cuda]") {
    CHECK_THROWS_WITH(emulated_gpu::launch({.blocks = 1, .threads = 32}, leaves_early{}),
                      Catch::Contains("6 threads have left while 26 wait"));
    CHECK_THROWS_WITH(emulated_gpu::launch({.blocks = 1, .threads = 32}, fails{}), Catch::Contains("thread 3 fails"));
    CHECK_THROWS_WITH(emulated_gpu::launch({.blocks = 1, .threads = 33}, fails{}), Catch::Contains("33 threads"));
    CHECK_THROWS_WITH(emulated_gpu::launch({.blocks = 1, .threads = 288}, fails{}), Catch::Contains("288 threads"));
}

TEST_CASE("emulated GPU: its memory is closed to the host", "[cuda]") {
    tensor<int, emulated_gpu> t({4});
    emulated_gpu::set_bytes(t.data(), 0, 16);
    CHECK(signal_of([&] { *static_cast<volatile int*>(t.data()) = 1; }) != 0);
    CHECK(signal_of([&] {
              const emulated_gpu::opened memory;
              *static_cast<volatile int*>(t.data()) = 1;
          }) == 0);
    CHECK_THROWS_WITH((tensor<int, emulated_gpu>({index_t{1} << 40})),
                      Catch::Contains("out of memory of the emulated GPU"));
}

}  // namespace cairn
