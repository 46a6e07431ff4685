#pragma once
// Ranks whose buffers are on a device, over a communicator that takes pointers to its memory: an MPI with CUDA support,
// for instance.
//   require(why_mpi_takes_no_gpu_memory().empty(), …);
//   gpu_aware_communicator<cuda, mpi_communicator> gpus(world.split(0, world.rank()));
//   all_reduce(gpus, gradients.span());
// The library does not know of launches: each call first waits on the host for the calling thread's launches. The
// library decides on the route of the bytes and on the processor that adds them.

#include <cairn/comm/vendor_collectives.hpp>
#include <cairn/core/tensor.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Ranks numbered as those of C.
template <Device D, Communicator C>
class gpu_aware_communicator : private vendor_collectives {
public:
    using request = typename C::request;

    explicit gpu_aware_communicator(C inner) : inner_(std::move(inner)) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }
    std::string name() const { return "direct " + std::string(inner_.name()); }
    static constexpr bool buffers_on_gpu() { return true; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        D::wait();
        return inner_.isend(data, peer, tag);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        D::wait();
        return inner_.irecv(room, peer, tag);
    }
    [[nodiscard]] gpu_aware_communicator split(int colour, int key) {
        return gpu_aware_communicator(inner_.split(colour, key));
    }
    [[nodiscard]] auto enter(const collective_call& call) { return cairn::enter(inner_, call); }

    vendor_collectives* vendor() { return vendor_of(inner_) ? this : nullptr; }

private:
    vendor_collectives& after_launches() {
        D::wait();
        return *vendor_of(inner_);
    }
    void all_reduce(vendor_span data, reduction r) override { after_launches().all_reduce(data, r); }
    void broadcast(std::span<std::byte> data, int root) override { after_launches().broadcast(data, root); }
    void all_gather(std::span<std::byte> data, const std::vector<range>& parts) override {
        after_launches().all_gather(data, parts);
    }
    void reduce_scatter(vendor_span data, const std::vector<range>& parts, reduction r) override {
        after_launches().reduce_scatter(data, parts, r);
    }

    C inner_;
};

}  // namespace cairn
