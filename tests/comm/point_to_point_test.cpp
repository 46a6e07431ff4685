// Laws of every communicator: order, sizes, both directions at once, split, errors.

#include "catch.hpp"

#include "comm/point_to_point_laws.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/comm/wait_for.hpp>

namespace cairn {

namespace {

/// A device whose memory laws can look at.
struct beside_the_host {
    static constexpr const char* name = "beside_the_host";
    static inline std::atomic<int> to_host = 0, to_device = 0;
    static memory_pool& memory() { return memory_pool::host(); }
    static void copy_to_host(void* to, const void* from, index_t bytes) { ++to_host, copy(to, from, bytes); }
    static void copy_to_device(void* to, const void* from, index_t bytes) { ++to_device, copy(to, from, bytes); }

private:
    static void copy(void* to, const void* from, index_t bytes) {
        if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
};

}  // namespace

TEST_CASE("communicator laws: self", "[comm]") {
    self_communicator c;
    laws::all(c);
    any_communicator any(self_communicator{});
    laws::all(any);
}

TEST_CASE("communicator laws: threads, 1 to 9 ranks", "[comm]") {
    for (int ranks = 1; ranks <= 9; ++ranks) run_ranks(ranks, [](threads_communicator& c) { laws::all(c); });
}

TEST_CASE("communicator laws: threads with a mailbox of no bytes, all sends wait for their receiver", "[comm]") {
    for (const int ranks : {2, 5})
        run_ranks(ranks, {.mailbox_bytes = 0}, [](threads_communicator& c) { laws::all(c); });
}

TEST_CASE("communicator laws: any and counting over threads", "[comm]") {
    for (const int ranks : {1, 2, 3, 4})
        run_ranks(ranks, [](threads_communicator& c) {
            any_communicator any(c.split(0, c.rank()));
            laws::all(any);
            counting_communicator<threads_communicator> counted(c.split(0, c.rank()));
            laws::all(counted);
        });
}

TEST_CASE("communicator laws: staged over threads", "[comm]") {
    for (const int ranks : {1, 2, 3, 4})
        run_ranks(ranks, [](threads_communicator& c) {
            staged_communicator<beside_the_host, threads_communicator> staged(c.split(0, c.rank()));
            laws::all(staged);
            any_communicator any(staged.split(0, c.rank()));
            laws::all(any);
        });
}

TEST_CASE("staged: an all-reduce goes to the host once and back once, and adds as the host does", "[comm]") {
    run_ranks(3, [](threads_communicator& c) {
        any_communicator staged(staged_communicator<beside_the_host, threads_communicator>(c.split(0, c.rank())));
        require(buffers_on_gpu(staged) && !buffers_on_gpu(c), "where are the buffers?");
        std::vector<float> host(1000), device;
        for (std::size_t i = 0; i < host.size(); ++i)
            host[i] = 0.1f * static_cast<float>(i) + static_cast<float>(c.rank());
        device = host;
        require_equal(c, "before", "the test");  // nobody copies yet
        const int before = beside_the_host::to_host + beside_the_host::to_device;
        require_equal(c, "between", "the test");
        all_reduce(staged, std::span<float>(device));
        require_equal(c, "after", "the test");
        const int copies = beside_the_host::to_host + beside_the_host::to_device - before;
        require(copies == 2 * c.size(), copies, " copies for ", c.size(), " ranks");
        all_reduce(c, std::span<float>(host));
        require(host == device, "another sum");
    });
}

namespace {

/// Has a broadcast of its own.
struct library : staged_communicator<beside_the_host, threads_communicator> {
    using staged_communicator::staged_communicator;
    library split(int colour, int key) { return library(other_.split(colour, key)); }
    library(threads_communicator c) : staged_communicator(c.split(0, c.rank())), other_(std::move(c)) {}
    void broadcast(std::span<std::byte> data, int root) override {
        ++calls;
        cairn::broadcast(other_, data, root);
    }
    static inline std::atomic<int> calls = 0;

private:
    threads_communicator other_;
};

}  // namespace

TEST_CASE("broadcast: of buffers on GPUs by the library's own, where there is one", "[comm]") {
    library::calls = 0;
    run_ranks(3, [](threads_communicator& c) {
        any_communicator own(library(c.split(0, c.rank()))),
            none(staged_communicator<beside_the_host, threads_communicator>(c.split(0, c.rank())));
        for (any_communicator* any : {&own, &none}) {
            std::vector<double> data(300'000, any->rank() == 1 ? 2.5 : 0);
            broadcast(*any, std::span<double>(data), 1);
            require(std::ranges::count(data, 2.5) == 300'000, "not what rank 1 sent");
        }
    });
    CHECK(library::calls == 3);
}

TEST_CASE("threads: split_node makes pretended nodes", "[comm]") {
    run_ranks(5, {.ranks_per_node = 2}, [](threads_communicator& c) {
        auto node = c.split_node();
        require(node.size() == (c.rank() < 4 ? 2 : 1) && node.rank() == c.rank() % 2, "node ", node.rank(), " of ",
                node.size());
    });
}

TEST_CASE("threads: a send that is dropped before its receiver comes is not delivered", "[comm]") {
    run_ranks(2, {.mailbox_bytes = 16}, [](threads_communicator& c) {
        std::vector<int> large(1000, 1), small{7};
        if (c.rank() == 0) {
            { const auto dropped = isend(c, std::span<const int>(large), 1, 3); }
            send(c, std::span<const int>(small), 1, 4);  // rank 1 comes now
            std::ranges::fill(large, 2);
            send(c, std::span<const int>(large), 1, 3);
        } else {
            recv(c, std::span<int>(small), 0, 4);
            recv(c, std::span<int>(large), 0, 3);
            require(std::ranges::count(large, 2) == 1000, "a dropped send was delivered");
        }
    });
}

TEST_CASE("threads: a full mailbox keeps the order of messages that fit and messages that do not", "[comm]") {
    run_ranks(2, {.mailbox_bytes = 40}, [](threads_communicator& c) {
        const std::vector<std::size_t> sizes{1, 30, 2, 9, 0, 100, 1, 1};  // of 4 bytes
        std::vector<std::vector<int>> messages;
        std::vector<threads_communicator::request> sent;
        for (std::size_t k = 0; k < sizes.size(); ++k) messages.emplace_back(sizes[k], static_cast<int>(k));
        if (c.rank() == 0) {
            for (const auto& m : messages) sent.push_back(isend(c, std::span<const int>(m), 1, 3));
            int ready = 1;
            send(c, std::span<const int>(&ready, 1), 1, 4);
            for (auto& s : sent) s.wait();
        } else {
            int ready = 0;
            recv(c, std::span<int>(&ready, 1), 0, 4);
            for (const auto& m : messages) {
                std::vector<int> room(m.size(), -1);
                recv(c, std::span<int>(room), 0, 3);
                require(room == m, "messages overtook each other");
            }
        }
    });
}

TEST_CASE("threads: the first rank that fails ends all, and is named", "[comm]") {
    std::atomic<int> told = 0;
    const auto run = [&] {
        run_ranks(4, [&](threads_communicator& c) {
            if (c.rank() == 2) fail("out of paper");
            try {
                int x = 0;
                recv(c, std::span<int>(&x, 1), 2, 1);
            } catch (const error& e) {
                if (std::string(e.what()).find("rank 2 failed: out of paper") != std::string::npos) ++told;
                throw;
            }
        });
    };
    CHECK_THROWS_WITH(run(), Catch::Equals("rank 2: out of paper"));
    CHECK(told == 3);
}

TEST_CASE("threads: a wait without end names every rank, its collective, peer, tag and bytes", "[comm]") {
    const auto run = [] {
        run_ranks(2, {.time_limit = 1}, [](threads_communicator& c) {
            const auto scope = enter(c, {"ring all-reduce", "float", 1000, -1, "bucket 3"});
            std::vector<float> room(250);
            recv(c, std::span<float>(room), 1 - c.rank(), 7);
        });
    };  // whichever of the two gives up first
    CHECK_THROWS_WITH(run(), Catch::Contains("1 s") && Catch::Contains("ring all-reduce of 1000 float (bucket 3)") &&
                                 Catch::Contains("1000 bytes from rank 0, tag 7") &&
                                 Catch::Contains("1000 bytes from rank 1, tag 7") &&
                                 Catch::Contains("rank 0 waits in") && Catch::Contains("rank 1 waits in"));
}

TEST_CASE("threads: wrong sizes, peers and tags", "[comm]") {
    const auto sizes = [] {
        run_ranks(2, [](threads_communicator& c) {
            std::array<char, 8> room{};
            if (c.rank() == 0)
                send(c, std::span<char>(room), 1, 3);
            else
                recv(c, std::span<char>(room).first(5), 0, 3);
        });
    };
    CHECK_THROWS_WITH(sizes(), Catch::Contains("rank 0 sends 8 bytes to rank 1 with tag 3, which expects 5"));
    const auto peer = [] { run_ranks(2, [](threads_communicator& c) { send(c, std::span<int>(), 2, 1); }); };
    CHECK_THROWS_WITH(peer(), Catch::Contains("there is no rank 2"));
    const auto tag = [] { run_ranks(2, [](threads_communicator& c) { send(c, std::span<int>(), 0, -1); }); };
    CHECK_THROWS_WITH(tag(), Catch::Contains("tag -1"));
    const auto overlap = [](std::size_t received_at) {
        run_ranks(2, [=](threads_communicator& c) {
            std::array<int, 6> numbers{1, 2, 3};
            const auto all = std::span<int>(numbers);
            sendrecv(c, all.first(3), 1 - c.rank(), all.subspan(received_at, 3), 1 - c.rank(), 1);
            require(numbers[5] == 3, "not what the other rank sent");
        });
    };
    CHECK_THROWS_WITH(overlap(0), Catch::Contains("the buffers overlap"));
    CHECK_THROWS_WITH(overlap(2), Catch::Contains("sendrecv of 12 bytes to rank") && Catch::Contains("overlap"));
    overlap(3);  // beside it
    self_communicator self;
    int x = 0;
    CHECK_THROWS_WITH(recv(self, std::span<int>(&x, 1), 0, 4), Catch::Contains("wait forever"));
    CHECK_THROWS_WITH(run_ranks(0, [](threads_communicator&) {}), Catch::Contains("at least 1"));
}

TEST_CASE("wait_for: a rank that computes for longer than the time limit of a message", "[comm]") {
    run_ranks(3, {.time_limit = 0.05}, [](threads_communicator& c) {
        if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        wait_for(c, 1);
        if (c.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        wait_for(c, 0);
    });
    CHECK_THROWS_WITH(run_ranks(2, {},
                                [](threads_communicator& c) {
                                    if (c.rank() == 0)
                                        wait_for(c, 1, 0.05);
                                    else
                                        std::this_thread::sleep_for(std::chrono::seconds(1));
                                }),
                      Catch::Contains("rank 0 waited 0.05 s for rank 1"));
}

TEST_CASE("agree: ranks with other settings are named on every rank", "[comm]") {
    std::atomic<int> told = 0;
    run_ranks(4, [&](threads_communicator& c) {
        require_equal(c, "lr = 0.1", "settings");
        try {
            require_equal(c, c.rank() == 3 ? "lr = 0.2" : "lr = 0.1", "settings");
        } catch (const error& e) {
            told += std::string(e.what()).find("ranks differ in settings: that of rank(s) 3") != std::string::npos;
        }
    });
    CHECK(told == 4);
}

}  // namespace cairn
