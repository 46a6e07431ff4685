#pragma once
// Ranks whose buffers are on a device, over a communicator that takes pointers to its memory: an MPI with CUDA support, for instance.
//   require(why_mpi_takes_no_gpu_memory().empty(), …);
//   direct_communicator<cuda, mpi_communicator> gpus(world.split(0, world.rank()));      all_reduce(gpus, gradients.span());
// The library below knows nothing of what was launched: each call first waits on the host for what the calling thread has launched. Which way
// the bytes take, and what adds them, is the library's affair.

#include <cairn/comm/collectives/native.hpp>
#include <cairn/core/tensor.hpp>

#include <span>
#include <string>
#include <utility>

namespace cairn {

/// Ranks numbered as those of C.
template <Device D, Communicator C>
class direct_communicator {
public:
    using request = typename C::request;

    explicit direct_communicator(C inner) : inner_(std::move(inner)) {}

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
    [[nodiscard]] direct_communicator split(int colour, int key) {
        return direct_communicator(inner_.split(colour, key));
    }
    [[nodiscard]] auto enter(const collective_call& call) { return cairn::enter(inner_, call); }

    bool has_native() const { return has_native_all_reduce<float>(inner_); }
    template <class T>
    void native_all_reduce(std::span<T> data, reduction r = reduction::sum) requires requires(C& c) {
        c.native_all_reduce(data, r);
    }
    {
        D::wait();
        inner_.native_all_reduce(data, r);
    }
    bool has_native_broadcast() const { return cairn::has_native_broadcast(inner_); }
    template <class T>
    void native_broadcast(std::span<T> data, int root) requires requires(C& c) {
        c.native_broadcast(data, root);
    }
    {
        D::wait();
        inner_.native_broadcast(data, root);
    }

private:
    C inner_;
};

}  // namespace cairn
