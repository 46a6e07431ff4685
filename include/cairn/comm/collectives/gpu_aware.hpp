#pragma once
// Ranks whose buffers are on a device, over a communicator that takes pointers to its memory: an MPI with CUDA support,
// for instance.
//   require(why_mpi_takes_no_gpu_memory().empty(), …);
//   gpu_aware_communicator<cuda, mpi_communicator> gpus(world.split(0, world.rank()));
//   all_reduce(gpus, gradients.span());
// The library below knows nothing of what was launched: each call first waits on the host for what the calling thread
// has launched. Which way the bytes take, and what adds them, is the library's affair.

#include <cairn/comm/collectives/vendor.hpp>
#include <cairn/core/tensor.hpp>

#include <span>
#include <string>
#include <utility>

namespace cairn {

/// Ranks numbered as those of C.
template <Device D, Communicator C>
class gpu_aware_communicator {
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

    bool has_vendor() const { return has_vendor_all_reduce<float>(inner_); }
    template <class T>
    void vendor_all_reduce(std::span<T> data, reduction r = reduction::sum) requires requires(C& c) {
        c.vendor_all_reduce(data, r);
    }
    {
        D::wait();
        inner_.vendor_all_reduce(data, r);
    }
    bool has_vendor_broadcast() const { return cairn::has_vendor_broadcast(inner_); }
    template <class T>
    void vendor_broadcast(std::span<T> data, int root) requires requires(C& c) {
        c.vendor_broadcast(data, root);
    }
    {
        D::wait();
        inner_.vendor_broadcast(data, root);
    }

private:
    C inner_;
};

}  // namespace cairn
