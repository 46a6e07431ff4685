// comm/nccl.hpp keeps what communicators promise, over the emulated NCCL: messages, splits, collectives against plain
// loops.

#include "collectives/laws.hpp"
#include "catch.hpp"
#include "comm/point_to_point_laws.hpp"
#include "nccl/gpu_ranks.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/gpu_aware.hpp>
#include <cairn/comm/counting_communicator.hpp>

namespace cairn {

namespace {

using test::run_gpu_ranks;

const std::vector<int> numbers_of_ranks{1, 2, 3, 4, 5, 8};

}  // namespace

TEST_CASE("communicator laws: nccl, but for tags, which it has not", "[nccl]") {
    for (const int ranks : numbers_of_ranks)
        for (const unsigned seed : {1u, 2u, 3u}) {
            emulated::seed(seed);
            run_gpu_ranks(ranks, [](nccl_communicator& c, threads_communicator&) {
                test::through_gpus<false> host(c);
                laws::order_and_sizes(host);
                laws::testing(host);
                laws::splitting(host);
                laws::nested_splitting(host);
                laws::traffic(host);
                laws::dropping(host);
            });
        }
    CHECK(emulated::failure().empty());
    CHECK(emulated::open_communicators() == 0);
}

TEST_CASE("nccl: asking whether a message has come leaves no error for the next launch to report", "[nccl]") {
    run_gpu_ranks(2, [](nccl_communicator& c, threads_communicator& world) {
        auto data = tensor<float, cuda>::filled({10}, static_cast<float>(c.rank()));
        if (c.rank() == 0) {
            auto coming = irecv(c, data.span(), 1, 0);
            const bool came_at_once = coming.test();  // cudaErrorNotReady on the way
            require(!came_at_once && cudaGetLastError() == cudaSuccess, "test() leaves an error");
            require_equal(world, "", "the other may send");
            coming.wait();
            require(cudaGetLastError() == cudaSuccess, "wait() leaves an error");
            require(data.on_host()[9] == 1, "the message");
        } else {
            require_equal(world, "", "the other may send");
            isend(c, data.span(), 0, 0).wait();
        }
        require_equal(world, "", "both have what they wanted");
        if (c.rank() == 0) {
            auto dropped = irecv(c, data.span(), 1, 1);
            dropped.test();
        }
        require(cudaGetLastError() == cudaSuccess, "dropping leaves an error");
    });
    CHECK(detail::dealt_with(cudaEventQuery(nullptr)) != cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("communicator laws: memory of GPUs handed to a communicator that takes it", "[nccl]") {
    using direct = gpu_aware_communicator<cuda, threads_communicator>;
    for (const int ranks : numbers_of_ranks)
        run_ranks(ranks, {.kernel_threads = 1}, [](threads_communicator& world) {
            cuda::choose(world.rank());
            direct gpus(world.split(0, world.rank()));
            require(buffers_on_gpu(gpus) && !vendor_of(gpus), "where are the buffers?");
            test::through_gpus<false, direct> host(gpus);
            laws::all(host);
            any_communicator any(host.split(0, host.rank()));
            laws::all_gather_law<any_communicator, float>(any, 840);
            laws::broadcast_law<any_communicator, float>(any, 840);
        });
    // Collectives of the library below.
    run_gpu_ranks(3, [](nccl_communicator& c, threads_communicator&) {
        gpu_aware_communicator<cuda, nccl_communicator> gpus(c);
        require(vendor_of(gpus), "what NCCL has");
        auto data = tensor<float, cuda>::filled({10}, static_cast<float>(c.rank()));
        all_reduce(gpus, data.span());
        require(data.on_host()[9] == 3, "the sum");
        broadcast(gpus, data.span().subspan(0, 5), 1);
    });
    CHECK(emulated::failure().empty());
}

namespace {

/// The collectives of NCCL, of T, by way of any_communicator or not.
template <class T, Communicator C>
void vendor_laws(C& c, const std::vector<laws::expected<T>>& made) {
    for (const laws::expected<T>& e : made) {
        laws::all_reduce_law(c, e, all_reduce_algorithm::vendor);
        laws::reduce_scatter_law(c, e);
        laws::all_gather_law<C, T>(c, e.count);
        laws::broadcast_law<C, T>(c, e.count);
    }
}

template <class T>
std::vector<laws::expected<T>> expectations(int p) {
    std::vector<laws::expected<T>> made;
    for (const index_t n : {0, 7, 840}) made.emplace_back(p, n);  // 840: 1 to 8 ranks have equal parts
    return made;
}

template <class T>
void vendor_laws_of(const std::vector<int>& numbers = {2, 5}) {
    for (const int ranks : numbers) {
        const auto made = expectations<T>(ranks);
        run_gpu_ranks(ranks, [&](nccl_communicator& c, threads_communicator&) {
            test::through_gpus<true> direct(c);
            vendor_laws<T>(direct, made);
            if (c.size() > 3) return;
            any_communicator any(test::through_gpus<true>(c.split(0, c.rank())));
            vendor_laws<T>(any, made);
        });
    }
}

/// Collectives of nccl_communicator alone, for every type, against plain loops.
template <class T>
void own_collectives_of() {
    for (const int ranks : numbers_of_ranks)
        run_gpu_ranks(ranks, [](nccl_communicator& c, threads_communicator&) {
            const index_t p = c.size(), n = 5;
            const auto value = [](index_t rank, index_t i) {
                return static_cast<T>(static_cast<std::int8_t>((7 * rank + 3 * i) % 11));
            };
            const auto filled = [&](index_t count, auto&& f) {
                std::vector<T> host(static_cast<std::size_t>(count));
                for (index_t i = 0; i < count; ++i) host[static_cast<std::size_t>(i)] = f(i);
                return test::sent_to_gpu(std::span<const T>(host));
            };
            const auto check = [&](const tensor<T, cuda>& there, const char* what, auto&& f) {
                const tensor<T> here = there.on_host();
                for (index_t i = 0; i < here.size(); ++i)
                    require(here[i] == f(i), what, ", rank ", c.rank(), " of ", p, ", element ", i);
            };
            const auto over_ranks = [&](reduction r, index_t i) {
                T all = value(0, i);
                for (index_t k = 1; k < p; ++k) {
                    const T x = value(k, i);
                    all = r == reduction::sum   ? static_cast<T>(all + x)
                          : r == reduction::max ? std::max(all, x)
                                                : std::min(all, x);
                }
                return all;
            };
            const index_t me = c.rank();
            const auto of_me = [&](index_t i) { return value(me, i); };
            for (const reduction r : {reduction::sum, reduction::max, reduction::min}) {
                auto data = filled(p * n, of_me);
                c.vendor()->all_reduce(data.span(), r);
                check(data, "all-reduce", [&](index_t i) { return over_ranks(r, i); });
            }
            auto all = filled(p * n, of_me);
            c.vendor()->broadcast(std::as_writable_bytes(all.span()), static_cast<int>(p - 1));
            check(all, "broadcast", [&](index_t i) { return value(p - 1, i); });
        });
}

}  // namespace

TEST_CASE("nccl: collectives by parts and in place, against plain loops", "[nccl]") {
    vendor_laws_of<float>(numbers_of_ranks);
    vendor_laws_of<double>();
    vendor_laws_of<bfloat16>({3, 8});
    vendor_laws_of<float16>({2});
    vendor_laws_of<std::int32_t>();
    CHECK(emulated::failure().empty());
}

TEST_CASE("nccl: its own collectives, of every type", "[nccl]") {
    own_collectives_of<float>();
    own_collectives_of<double>();
    own_collectives_of<bfloat16>();
    own_collectives_of<float16>();
    own_collectives_of<std::int32_t>();
    CHECK(emulated::failure().empty());
}

TEST_CASE("nccl: equal parts are one call, others a broadcast or a reduction each", "[nccl]") {
    const auto calls_of = [](const std::vector<range>& parts) {
        const std::vector<const char*> kinds{"all-gather", "broadcast", "reduce-scatter", "reduce"};
        std::vector<int> calls;
        for (const char* kind : kinds) calls.push_back(-emulated::nccl_calls(kind));
        run_gpu_ranks(3, [&](nccl_communicator& c, threads_communicator&) {
            auto data = tensor<float, cuda>::zeros({12});
            all_gather(c, data.span(), parts);
            reduce_scatter(c, data.span(), parts);
        });
        for (std::size_t k = 0; k < kinds.size(); ++k) calls[k] += emulated::nccl_calls(kinds[k]);
        return calls;
    };
    CHECK(calls_of({{0, 4}, {4, 4}, {8, 4}}) == std::vector<int>{3, 0, 3, 0});
    CHECK(calls_of({{0, 5}, {5, 0}, {5, 7}}) == std::vector<int>{0, 6, 0, 6});  // two parts on three ranks
    CHECK(calls_of({{4, 4}, {0, 4}, {8, 4}}) == std::vector<int>{0, 9, 0, 9});
}

TEST_CASE("counting: NCCL's collectives count as those of a ring", "[nccl][counting]") {
    const std::vector<range> parts{{0, 5}, {5, 1}, {6, 9}, {15, 6}};
    const auto run = [&](auto& c, all_reduce_algorithm algorithm) {
        std::vector<float> data(21, 1.0f);
        all_reduce(c, std::span<float>(data), {.algorithm = algorithm});
        all_gather(c, std::span<float>(data), parts);
        reduce_scatter(c, std::span<float>(data), parts);
        return c.counts();
    };
    std::vector<communication_counts> ring(4), vendor(4);
    run_ranks(4, [&](threads_communicator& threads) {
        counting_communicator<threads_communicator> c(threads);
        ring[static_cast<std::size_t>(c.rank())] = run(c, all_reduce_algorithm::ring);
    });
    run_gpu_ranks(4, [&](nccl_communicator& nccl, threads_communicator&) {
        counting_communicator<test::through_gpus<true>> c{test::through_gpus<true>(nccl)};
        vendor[static_cast<std::size_t>(c.rank())] = run(c, all_reduce_algorithm::vendor);
        const communication_counts before = c.counts();
        std::vector<double> values(10, 1.0);
        broadcast(c, std::span<double>(values), 2);
        require(c.counts().bytes - before.bytes == (c.rank() == 1 ? 0 : 80), "broadcast: the last of the ring sends");
        require(c.counts().received_bytes - before.received_bytes == (c.rank() == 2 ? 0 : 80), "broadcast: received");
    });
    for (std::size_t r = 0; r < 4; ++r) {
        CHECK(vendor[r].bytes == ring[r].bytes);
        CHECK(vendor[r].received_bytes == ring[r].received_bytes);
        CHECK(vendor[r].messages == ring[r].messages);
        CHECK(vendor[r].rounds == ring[r].rounds);
    }
}

}  // namespace cairn
