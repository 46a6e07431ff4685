// comm/nccl.hpp where something goes wrong: each rank gets an error that says what, and none waits for ever.

#include "catch.hpp"
#include "nccl/gpu_ranks.hpp"

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/require_equal.hpp>

#include <atomic>
#include <chrono>
#include <optional>

namespace cairn {

namespace {

using test::run_gpu_ranks;
using test::time_limit;

template <class Action>
std::string error_of(Action&& action) {
    try {
        action();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "no error";
}

/// On a rank, where Catch cannot be asked: all of `parts` are in `said`.
void expect(const std::string& said, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
        require(said.find(part) != std::string::npos, "'", said, "' has no '", part, "'");
}

/// Each rank's error.
template <class Body>
std::vector<std::string> told(int ranks, Body&& body) {
    std::vector<std::string> all(static_cast<std::size_t>(ranks));
    run_gpu_ranks(ranks, [&](nccl_communicator& c, threads_communicator& world) {
        all[static_cast<std::size_t>(world.rank())] = error_of([&] { body(c, world); });
    });
    return all;
}

struct quiet_nccl {
    explicit quiet_nccl(const emulated::nccl_behaviour& how) { emulated::behave(how); }
    ~quiet_nccl() { emulated::behave({}); }
    quiet_nccl(const quiet_nccl&) = delete;
};

using Catch::Contains;

}  // namespace

TEST_CASE("nccl: a rank that never comes to a collective is an error at the time limit", "[nccl]") {
    const time_limit limit("1");
    const quiet_nccl death({.deaths_are_seen = false});
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = told(3, [](nccl_communicator& c, threads_communicator&) {
        auto data = tensor<float, cuda>::zeros({1000});
        if (c.rank() != 1) all_reduce(c, data.span(), {.label = "gradients, bucket 3"});
    });
    CHECK(errors[1] == "no error");
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
        CHECK_THAT(errors[r], Contains(concat("NCCL: rank ", r, " of 3")) &&
                                  Contains("in native all-reduce of 1000 float (gradients, bucket 3)") &&
                                  Contains("all-reduce of 4000 bytes") && Contains("has taken 1 s") &&
                                  Contains("is another rank gone") && Contains("CAIRN_COMM_TIMEOUT") &&
                                  Contains("the communicator is aborted"));
    // Leaving has the limit too: rank 1 finalizes alone.
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: a rank that never joins is an error at the time limit", "[nccl]") {
    const time_limit limit("1");
    std::string first;
    run_ranks(2, {.time_limit = 5}, [&](threads_communicator& world) {
        cuda::choose(world.rank());
        std::optional<nccl_communicator> c;
        // Rank 1 dies between the agreement and joining: it plays its part of the agreement by hand.
        if (world.rank() == 0) {
            first = error_of([&] { c.emplace(world); });
        } else {
            std::array<char, 64 + 256> greeting{};
            greeting[0] = 'x';
            send(world, std::span<const char>(greeting), 0, max_tag - 4);
            std::array<char, sizeof(ncclUniqueId) + 512> decision{};
            recv(world, std::span<char>(decision), 0, max_tag - 4);
        }
    });
    CHECK_THAT(first, Contains("rank 0 of 2") && Contains("joining with GPU 0 has taken 1 s"));
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: a message without its other side is an error at the time limit", "[nccl]") {
    const time_limit limit("1");
    const quiet_nccl death({.deaths_are_seen = false});
    const auto errors = told(2, [](nccl_communicator& c, threads_communicator&) {
        auto data = tensor<float, cuda>::zeros({10});
        if (c.rank() == 0) recv(c, data.span(), 1, 17);
    });
    CHECK_THAT(errors[0], Contains("rank 0 of 2") && Contains("receive of 40 bytes from rank 1, tag 17") &&
                              Contains("has taken 1 s"));
}

TEST_CASE("nccl: where a rank fails, the others get an error that names rank, collective and elements", "[nccl]") {
    std::vector<std::string> errors(4);
    std::atomic<int> here = 0;
    CHECK_THROWS_WITH(run_gpu_ranks(4,
                                    [&](nccl_communicator& c, threads_communicator& world) {
                                        auto data = tensor<double, cuda>::zeros({77});
                                        if (c.rank() == 2) {
                                            while (here < 3) std::this_thread::yield();
                                            fail("the disk is full");
                                        }
                                        ++here;
                                        errors[static_cast<std::size_t>(world.rank())] =
                                            error_of([&] { broadcast(c, data.span(), 1); });
                                    }),
                      Contains("rank 2") && Contains("the disk is full"));
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
        CHECK_THAT(errors[r], Contains(concat("NCCL: rank ", r, " of 4")) && Contains("in broadcast of 77 double") &&
                                  Contains("remote process exited") && Contains("connection to rank 2 closed"));
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: an error that NCCL finds later is thrown by wait and by test", "[nccl]") {
    for (const bool waits : {true, false}) {
        const auto errors = told(2, [&](nccl_communicator& c, threads_communicator& world) {
            auto data = tensor<float, cuda>::zeros({10});
            nccl_communicator::request got;
            if (c.rank() == 0) {
                got = irecv(c, data.span(), 1, 3);
                require(!got.test(), "no rank has sent");  // it is under way
            }
            require_equal(world, "", "being here");
            if (c.rank() == 1) {
                emulated::break_gpu(0, ncclSystemError);
                require_equal(world, "", "being here");
                return;
            }
            require_equal(world, "", "being here");
            if (waits) return got.wait();
            const auto begin = std::chrono::steady_clock::now();
            while (!got.test())
                require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "test() sees nothing");
        });
        CHECK_THAT(errors[0],
                   Contains("rank 0 of 2") && Contains("receive of 40 bytes") && Contains("unhandled system error"));
    }
    // In a collective that has begun.
    std::atomic<bool> found = false;
    const auto errors = told(3, [&](nccl_communicator& c, threads_communicator&) {
        auto data = tensor<float, cuda>::zeros({10});
        if (c.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            emulated::break_gpu(0, ncclSystemError);
            const auto begin = std::chrono::steady_clock::now();
            while (!found && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10))
                std::this_thread::yield();
        }
        const std::string error = error_of([&] { all_reduce(c, data.span()); });
        if (c.rank() == 0) found = true;
        fail(error);
    });
    CHECK_THAT(errors[0], Contains("unhandled system error") && Contains("the test said so"));
    for (const std::size_t r : {std::size_t{1}, std::size_t{2}})
        CHECK_THAT(errors[r], Contains("remote process exited"));
}

TEST_CASE("nccl: what comes after an abort says so, and why", "[nccl]") {
    const time_limit limit("1");
    const auto errors = told(2, [](nccl_communicator& c, threads_communicator& world) {
        auto data = tensor<float, cuda>::zeros({10}), more = tensor<float, cuda>::zeros({10});
        if (c.rank() == 1) return require_equal(world, "", "being through");
        auto first = irecv(c, data.span(), 1, 1), second = irecv(c, more.span(), 1, 2);
        expect(error_of([&] { first.wait(); }), {"has taken 1 s"});
        const std::string why =
            "rank 0 of 2: the communicator was aborted before: receive of 40 bytes from rank 1, tag 1";
        // The second was in the same group; it is not done, although nothing of it is left on the GPU.
        expect(error_of([&] { second.wait(); }), {why});
        expect(error_of([&] { second.test(); }), {why});
        expect(error_of([&] { auto r = isend(c, data.span(), 1, 1); }), {why});
        expect(error_of([&] { c.vendor()->all_reduce(data.span()); }), {why});
        expect(error_of([&] { auto part = c.split(0, 0); }), {why});
        require_equal(world, "", "being through");
    });
    CHECK(errors == std::vector<std::string>{"no error", "no error"});
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: a transfer that is dropped under way ends the communicator", "[nccl]") {
    const auto errors = told(2, [](nccl_communicator& c, threads_communicator& world) {
        auto data = tensor<float, cuda>::zeros({10});
        if (c.rank() == 0) {
            {
                auto got = irecv(c, data.span(), 1, 9);
                require(!got.test(), "no rank has sent");
            }
            require_equal(world, "", "dropping");
            c.vendor()->all_reduce(data.span());
        } else {
            require_equal(world, "", "dropping");
            c.vendor()->all_reduce(data.span());
        }
    });
    CHECK_THAT(errors[0], Contains("aborted before: its receive of 40 bytes from rank 1, tag 9 was dropped"));
    CHECK_THAT(errors[1], Contains("remote process exited"));
    // One that is done is not under way, even if its state was never asked for.
    CHECK(told(2, [](nccl_communicator& c, threads_communicator&) {
              auto data = tensor<float, cuda>::zeros({10}), more = tensor<float, cuda>::zeros({10});
              {
                  auto got = irecv(c, data.span(), 1 - c.rank(), 9);
                  auto sent = isend(c, more.span(), 1 - c.rank(), 9);
                  got.wait();
              }
              c.vendor()->all_reduce(data.span());
          }) == std::vector<std::string>{"no error", "no error"});
}

TEST_CASE("nccl: what was begun is under way when all ranks do something together", "[nccl]") {
    const time_limit limit("5");
    for (const bool splits : {false, true})
        CHECK(told(2, [&](nccl_communicator& c, threads_communicator&) {
                  auto data = tensor<float, cuda>::filled({10}, static_cast<float>(c.rank()));
                  auto sum = tensor<float, cuda>::filled({10}, 1);
                  const auto together = [&] {
                      if (splits)
                          auto part = c.split(0, 0);
                      else
                          c.vendor()->all_reduce(sum.span());
                  };
                  if (c.rank() == 0) {
                      auto sent = isend(c, data.span(), 1, 0);
                      together();
                      sent.wait();
                  } else {
                      recv(c, data.span(), 0, 0);
                      together();
                  }
                  require(data.on_host()[9] == 0, "the message");
              }) == std::vector<std::string>{"no error", "no error"});
}

TEST_CASE("nccl: ranks that share a GPU, that have none, or that get no id: all are told", "[nccl]") {
    const auto joining = [](int ranks, const std::function<int(int)>& gpu_of) {
        std::vector<std::string> errors(static_cast<std::size_t>(ranks));
        run_ranks(ranks, [&](threads_communicator& world) {
            cuda::choose(gpu_of(world.rank()));
            errors[static_cast<std::size_t>(world.rank())] = error_of([&] { nccl_communicator c(world); });
        });
        return errors;
    };
    for (const std::string& told : joining(4, [](int r) { return r == 3 ? 1 : r; }))
        CHECK_THAT(told, Contains("NCCL: ranks 1 and 3 share GPU 101112") && Contains("start fewer ranks"));
    const quiet_nccl broken({.gives_ids = false});
    for (const std::string& told : joining(2, [](int r) { return r; }))
        CHECK_THAT(told, Contains("NCCL: no id: unhandled system error (no network)"));
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: an error that NCCL finds while ranks join says what it is and how to learn more", "[nccl]") {
    for (const ncclResult_t state : {ncclInternalError, ncclSystemError}) {
        const quiet_nccl broken({.joining = state});
        for (const int ranks : {1, 2}) {
            std::vector<std::string> errors(static_cast<std::size_t>(ranks));
            run_ranks(ranks, [&](threads_communicator& world) {
                cuda::choose(world.rank());
                errors[static_cast<std::size_t>(world.rank())] = error_of([&] { nccl_communicator c(world); });
            });
            int causes = 0;  // a rank that gives up closes its connections, and others may see that first
            for (const std::string& told : errors) {
                CHECK_THAT(told, Contains("joining with GPU"));
                if (told.find("connection to rank") != std::string::npos) continue;
                CHECK_THAT(told, Contains("error (the test said so)") && Contains("NCCL_DEBUG=WARN") &&
                                     Contains("NCCL_SOCKET_IFNAME=lo"));
                ++causes;
            }
            CHECK(causes >= 1);
        }
    }
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: one rank alone splits, also where NCCL answers before the part is there", "[nccl]") {
    for (int i = 0; i < 20; ++i)
        CHECK(told(1, [](nccl_communicator& c, threads_communicator&) {
                  auto part = c.split(0, 0);
                  auto data = tensor<float, cuda>::filled({3}, 1);
                  part.vendor()->all_reduce(data.span());
                  require(part.size() == 1 && data.on_host()[2] == 1, "alone");
              }) == std::vector<std::string>{"no error"});
}

TEST_CASE("nccl: wrong arguments are refused before anything is sent", "[nccl]") {
    CHECK(told(2, [](nccl_communicator& c, threads_communicator&) {
              auto data = tensor<float, cuda>::zeros({10});
              const std::span<float> all = data.span();
              const std::string me = concat("rank ", c.rank(), " of 2: ");
              const auto refused = [&](const std::vector<std::string>& why, auto&& action) {
                  expect(error_of(action), why);
              };
              for (const int peer : {-1, 2}) {
                  const std::string no_peer = concat(me, "there is no rank ", peer);
                  refused({no_peer, "(send of 40 bytes, tag 4)"}, [&] { auto r = isend(c, all, peer, 4); });
                  refused({no_peer, "(receive of 40 bytes, tag 4)"}, [&] { auto r = irecv(c, all, peer, 4); });
                  refused({concat(me, "native broadcast: there is no rank ", peer)},
                          [&] { c.vendor()->broadcast(std::as_writable_bytes(all), peer); });
              }
              refused({me, "native all-gather: 1 parts for 2 ranks"}, [&] {
                  c.vendor()->all_gather(std::as_writable_bytes(all), {{0, 40}});
              });
              refused({me, "native reduce-scatter: the part from 5 to 11 is not in 10 elements"}, [&] {
                  c.vendor()->reduce_scatter(all, {{0, 5}, {5, 6}}, reduction::sum);
              });
              refused({me, "split: colour 1073741824"}, [&] { auto part = c.split(1 << 30, 0); });
              cuda::choose(c.rank() + 2);
              refused({me, concat("this thread's GPU is ", c.rank() + 2, ", the communicator's ", c.rank()),
                       "cuda::choose"},
                      [&] { c.vendor()->all_reduce(all); });
              cuda::choose(c.rank());
              c.vendor()->all_reduce(all);  // none of this has done any harm
          }) == std::vector<std::string>{"no error", "no error"});
}

TEST_CASE("nccl: memory that is not the GPU's, and ranks that call different things, end in errors", "[nccl]") {
    for (const std::string& e : told(2, [](nccl_communicator&c, threads_communicator&) {
             std::vector<float> host(10);
             c.vendor()->all_reduce(std::span<float>(host));
         }))
        CHECK_THAT(e, Contains("invalid argument (a buffer that is not in the memory of the communicator's GPU)") ||
                          Contains("remote process exited"));
    for (const std::string& e : told(2, [](nccl_communicator&c, threads_communicator&) {
             auto data = tensor<float, cuda>::zeros({10});
             c.vendor()->all_reduce(data.span().subspan(0, c.rank() == 0 ? 10 : 9));
         }))
        CHECK_THAT(e, Contains("invalid usage") || Contains("remote process exited"));
    for (const std::string& e : told(2, [](nccl_communicator&c, threads_communicator&) {
             auto data = tensor<float, cuda>::zeros({10});
             if (c.rank() == 0)
                 send(c, data.span(), 1, 0);
             else
                 recv(c, data.span().subspan(1), 0, 0);
         }))
        CHECK_THAT(e,
                   Contains("rank 0 sends 40 bytes to rank 1, which expects 36") || Contains("remote process exited"));
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: parts may outlive the whole, and requests all of them", "[nccl]") {
    const time_limit limit("5");
    run_ranks(4, [](threads_communicator& world) {
        cuda::choose(world.rank());
        std::optional<nccl_communicator> whole(std::in_place, world), part(whole->split(world.rank() % 2, 0));
        std::optional<nccl_communicator> copy = whole;
        auto data = tensor<float, cuda>::filled({3}, 1);
        whole.reset();
        copy->vendor()->all_reduce(data.span());
        copy.reset();
        part->vendor()->all_reduce(data.span());
        require(data.on_host()[2] == 8, "sums of 4 and of 2");
        tensor<float, cuda> room({3});
        auto got = irecv(*part, room.span(), 1 - part->rank(), 0),
             sent = isend(*part, data.span(), 1 - part->rank(), 0);
        auto dropped = irecv(*part, data.span(), 0, 0);
        dropped = {};
        part.reset();
        got.wait();
        sent.wait();
        require(room.on_host()[0] == 8, "what was sent");
    });
    CHECK(emulated::open_communicators() == 0);
    CHECK(emulated::failure().empty());
}

}  // namespace cairn
