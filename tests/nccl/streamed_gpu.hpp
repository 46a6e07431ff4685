#pragma once
// A device whose kernels run on the host in the streams of the emulated CUDA (emulated_cuda.hpp), concurrently with the
// thread that launches them: memory, streams, copies and marks are those of device/cuda/runtime.hpp itself. What is
// read before it was waited for is wrong here too.

#include "device/cuda/emulated_libraries.hpp"
#include "nccl/emulated_cuda.hpp"

#include <cairn/device/cuda/runtime.hpp>

namespace cairn {

/// See the top of the file.
struct streamed_gpu {
    static constexpr const char* name = "streamed_gpu";
    using event = cuda::event;

    /// A kernel among the copies runs in the stream of the calling thread, which waits for those before, and those
    /// behind wait for it.
    class copy_stream : public cuda::copy_stream {
    public:
        template <class Body>
        void launch(const grid_size& g, const Body& body) {
            done().wait();
            streamed_gpu::launch(g, body);
            after(event());
        }
    };

    static memory_pool& memory() { return cuda::memory(); }
    static memory_pool& host_memory() { return cuda::host_memory(); }
    static int multiprocessors() { return 1; }

    template <class Body>
    static void launch(const grid_size& g, const Body& body) {
        require(g.blocks >= 1 && g.threads >= warp_threads && g.threads <= 1024 && g.threads % warp_threads == 0 &&
                    g.shared >= 0 && g.shared <= emulated_gpu::most_shared,
                "streamed GPU: a grid of ", g.blocks, " blocks, ", g.threads, " threads, ", g.shared, " bytes");
        run([=] {
            emulation::block_runner runner(g, emulated_gpu::backwards);
            for (index_t block = 0; block < g.blocks; ++block) runner.run(block, body);
        });
    }
    static void run(std::function<void()> work) {
        check(cudaGetLastError(), "launching");  // which a launch reports as its own
        emulated::launch(cuda::stream(), std::move(work));
    }
    static void wait() { cuda::wait(); }

    static void copy_to_device(void* to, const void* from, index_t bytes) { cuda::copy_to_device(to, from, bytes); }
    static void copy_to_host(void* to, const void* from, index_t bytes) { cuda::copy_to_host(to, from, bytes); }
    static void copy_within(void* to, const void* from, index_t bytes) { cuda::copy_within(to, from, bytes); }
    static void set_bytes(void* to, int value, index_t bytes) { cuda::set_bytes(to, value, bytes); }
};

static_assert(GridDevice<streamed_gpu>);

// The libraries' functions are those of the emulated GPU, in the stream.

template <class... Arguments>
void gemm(streamed_gpu, Arguments... a) {
    streamed_gpu::run([=] { gemm(emulated_gpu{}, a...); });
}
template <class... Arguments>
void gemm_bias(streamed_gpu, Arguments... a) {
    streamed_gpu::run([=] { gemm_bias(emulated_gpu{}, a...); });
}
template <class... Arguments>
void linear_gradients(streamed_gpu, Arguments... a) {
    streamed_gpu::run([=] { linear_gradients(emulated_gpu{}, a...); });
}
template <class... Arguments>
void add_symmetric_product(streamed_gpu, Arguments... a) {
    streamed_gpu::run([=] { add_symmetric_product(emulated_gpu{}, a...); });
}
template <class... Arguments>
void conv_forward(streamed_gpu, const conv_geometry& g, Arguments... a) {
    streamed_gpu::run([=] { conv_forward(emulated_gpu{}, g, a...); });
}
template <class... Arguments>
void conv_backward_input(streamed_gpu, const conv_geometry& g, Arguments... a) {
    streamed_gpu::run([=] { conv_backward_input(emulated_gpu{}, g, a...); });
}
template <class... Arguments>
void conv_backward_weight(streamed_gpu, const conv_geometry& g, Arguments... a) {
    streamed_gpu::run([=] { conv_backward_weight(emulated_gpu{}, g, a...); });
}

template <class T>
struct streamed_eigen_decomposition {
    tensor<T, streamed_gpu> values, vectors;
};
template <class T>
streamed_eigen_decomposition<T> eigh(streamed_gpu, const tensor<T, streamed_gpu>& a) {
    const auto d = eigh(cpu{}, a.on_host());
    return {tensor<T, streamed_gpu>::copy_of(d.values), tensor<T, streamed_gpu>::copy_of(d.vectors)};
}
template <class T>
tensor<T, streamed_gpu> orthonormal_columns(streamed_gpu, const tensor<T, streamed_gpu>& a) {
    return tensor<T, streamed_gpu>::copy_of(orthonormal_columns(cpu{}, a.on_host()));
}
template <class T>
tensor<T, streamed_gpu> inverse_of_positive(streamed_gpu, const tensor<T, streamed_gpu>& a) {
    return tensor<T, streamed_gpu>::copy_of(inverse_of_positive(cpu{}, a.on_host()));
}

}  // namespace cairn
