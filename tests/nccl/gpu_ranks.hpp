#pragma once
// Ranks with an emulated GPU each, joined by the emulated NCCL, and a communicator that lets laws written for memory of
// the host run over them.

#include "nccl/emulated_cuda.hpp"
#include "nccl/emulated_nccl.hpp"

#include <cairn/comm/nccl.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/threads.hpp>

#include <cstdlib>
#include <memory>
#include <variant>
#include <vector>

namespace cairn::test {

/// The time limit of communicators made while this lives, in seconds.
class time_limit {
public:
    explicit time_limit(const char* seconds) { setenv("CAIRN_COMM_TIMEOUT", seconds, 1); }
    ~time_limit() { unsetenv("CAIRN_COMM_TIMEOUT"); }
    time_limit(const time_limit&) = delete;
};

/// Runs body(nccl, world) on `ranks` threads with a GPU each.
template <class Body>
void run_gpu_ranks(int ranks, Body&& body) {
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& world) {
        cuda::choose(world.rank());
        nccl_communicator c(world);
        require_equal(world, "", "having joined");
        body(c, world);
    });
}

/// A copy on the GPU that is not waited for.
template <class T>
tensor<T, cuda> sent_to_gpu(std::span<const T> host) {
    tensor<T, cuda> there({static_cast<index_t>(host.size())});
    auto kept = std::make_shared<std::vector<T>>(host.begin(), host.end());
    T* const to = there.data();
    emulated::launch(cuda::stream(), [kept, to] { std::copy(kept->begin(), kept->end(), to); });
    return there;
}

/// C, whose buffers are on GPUs, for buffers of the host: what is sent goes to the GPU first, what has come is fetched
/// from there. `Native`: collectives take those of the library, as they do for buffers on a GPU.
template <bool Native, Communicator C = nccl_communicator>
class through_gpus : private vendor_collectives {
public:
    class request {
    public:
        request() = default;
        request(request&&) noexcept = default;
        request& operator=(request&& other) noexcept {
            inner_ = std::move(other.inner_);
            there_ = std::move(other.there_);
            host_ = std::exchange(other.host_, nullptr);
            return *this;
        }
        void wait() {
            inner_.wait();
            arrive();
        }
        bool test() {
            if (!inner_.test()) return false;
            arrive();
            return true;
        }

    private:
        friend class through_gpus;
        void arrive() {
            if (host_) cuda::copy_to_host(host_, there_.data(), there_.bytes());
            host_ = nullptr;
        }
        tensor<std::uint8_t, cuda> there_;
        std::byte* host_ = nullptr;
        typename C::request inner_;  // last: goes before its memory
    };

    explicit through_gpus(C c) : inner_(std::move(c)) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }
    std::string name() const { return inner_.name(); }
    static constexpr bool buffers_on_gpu() { return Native; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        request r;
        r.there_ = sent_to_gpu(std::span(reinterpret_cast<const std::uint8_t*>(data.data()), data.size()));
        r.inner_ = inner_.isend(std::as_bytes(r.there_.span()), peer, tag);
        return r;
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        request r;
        r.there_ = tensor<std::uint8_t, cuda>({static_cast<index_t>(room.size())});
        r.host_ = room.data();
        r.inner_ = inner_.irecv(std::as_writable_bytes(r.there_.span()), peer, tag);
        return r;
    }
    [[nodiscard]] through_gpus split(int colour, int key) { return through_gpus(inner_.split(colour, key)); }
    [[nodiscard]] auto enter(const collective_call& call) { return inner_.enter(call); }

    vendor_collectives* vendor() { return this; }

private:
    void all_reduce(vendor_span data, reduction r) override {
        std::visit([&](auto d) { there_and_back(d, [&](auto there) { own().all_reduce(there, r); }); }, data);
    }
    void broadcast(std::span<std::byte> data, int root) override {
        there_and_back(data, [&](auto there) { own().broadcast(there, root); });
    }
    void all_gather(std::span<std::byte> data, const std::vector<range>& parts) override {
        there_and_back(data, [&](auto there) { own().all_gather(there, parts); });
    }
    void reduce_scatter(vendor_span data, const std::vector<range>& parts, reduction r) override {
        std::visit([&](auto d) { there_and_back(d, [&](auto there) { own().reduce_scatter(there, parts, r); }); },
                   data);
    }
    vendor_collectives& own() { return *vendor_of(inner_); }

    template <class T, class Change>
    static void there_and_back(std::span<T> data, Change&& change) {
        tensor<T, cuda> there = sent_to_gpu(std::span<const T>(data));
        change(there.span());
        cuda::copy_to_host(data.data(), there.data(), there.bytes());
    }

    C inner_;
};

}  // namespace cairn::test
