#pragma once
// Ranks whose buffers are on a device, over a communicator of the host: what is sent is copied to the host first, what
// has come is copied to the device. For GPUs that NCCL cannot join: several ranks on one GPU, machines without a
// network that it knows.
//   staged_communicator<cuda, mpi_communicator> gpus(world.split(0, world.rank()));
//   all_reduce(gpus, gradients.span());
// Bytes across the bus: each message once to the host and once from there; host memory: as much as is under way.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

/// Calls change(numbers) with a copy of a device's numbers on the host, which then goes back.
template <Device D, class T, class Change>
void by_way_of_host(std::span<T> there, Change&& change) {
    tensor<T> here({static_cast<index_t>(there.size())}, memory_category::communication);
    D::copy_to_host(here.data(), there.data(), here.bytes());
    change(here.span());
    D::copy_to_device(there.data(), here.data(), here.bytes());
}

/// Ranks numbered as those of C. A message's host memory lives as long as its request.
template <Device D, Communicator C>
class staged_communicator : private vendor_collectives {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            inner_ = std::move(other.inner_);  // what was under way is cancelled before its memory goes
            host_ = std::move(other.host_);
            device_ = std::exchange(other.device_, nullptr);
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
        friend class staged_communicator;
        explicit request(index_t bytes) : host_({bytes}, memory_category::communication) {}

        void arrive() {
            if (device_) D::copy_to_device(device_, host_.data(), host_.size());
            device_ = nullptr;
            host_.reset();
        }

        tensor<std::uint8_t> host_;    // what is sent, or has come
        std::byte* device_ = nullptr;  // where it goes then
        typename C::request inner_;    // last: goes before its memory
    };

    explicit staged_communicator(C inner) : inner_(std::move(inner)) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }
    std::string name() const { return "staged " + std::string(inner_.name()); }
    static constexpr bool buffers_on_gpu() { return true; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        request r(static_cast<index_t>(data.size()));
        D::copy_to_host(r.host_.data(), data.data(), r.host_.size());
        r.inner_ = inner_.isend(std::as_bytes(r.host_.span()), peer, tag);
        return r;
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        request r(static_cast<index_t>(room.size()));
        r.device_ = room.data();
        r.inner_ = inner_.irecv(std::as_writable_bytes(r.host_.span()), peer, tag);
        return r;
    }

    [[nodiscard]] staged_communicator split(int colour, int key) {
        return staged_communicator(inner_.split(colour, key));
    }
    [[nodiscard]] auto enter(const collective_call& call) { return cairn::enter(inner_, call); }

    /// Those of the host, the fastest there.
    vendor_collectives* vendor() { return this; }

private:
    void all_reduce(vendor_span data, reduction r) override {
        on_host(data, [&](auto here) { cairn::all_reduce(inner_, here, {.op = r}); });
    }
    void broadcast(std::span<std::byte> data, int root) override {
        on_host(data, [&](auto here) { cairn::broadcast(inner_, here, root); });
    }
    void all_gather(std::span<std::byte> data, const std::vector<range>& parts) override {
        on_host(data, [&](auto here) { cairn::all_gather(inner_, here, parts); });
    }
    void reduce_scatter(vendor_span data, const std::vector<range>& parts, reduction r) override {
        on_host(data, [&](auto here) { cairn::reduce_scatter(inner_, here, parts, r); });
    }
    template <class Change>
    static void on_host(vendor_span data, const Change& change) {
        std::visit([&](auto there) { by_way_of_host<D>(there, change); }, data);
    }
    template <class Change>
    static void on_host(std::span<std::byte> data, const Change& change) {
        by_way_of_host<D>(data, change);
    }

    C inner_;
};

}  // namespace cairn
