#pragma once
// The GPU as a device: memory, streams, copies, launches. Files that launch kernels are compiled by nvcc. Work is put
// into one stream of the calling thread and runs in order; copies from and to the host wait. Memory that is let go is
// handed out again at once: one thread launches on a GPU, and another waits for what it launched before it lets go of
// its memory.
//
//   tensor<float, cuda> x({4});                       // from the pool of the current GPU
//   cuda::copy_to_device(x.data(), values, 16);
//
// Environment: CUDA_VISIBLE_DEVICES chooses among GPUs.

#include <cairn/device/cuda/driver.hpp>
#include <cairn/device/cuda/pools.hpp>
#include <cairn/device/grid/grid.hpp>

#include <array>
#include <memory>
#include <mutex>
#include <string>

namespace cairn {

namespace detail {

/// State of each GPU, made at its first use.
struct gpu_state {
    std::once_flag made, asked, pinned;
    gpu_memory* memory = nullptr;  // never destroyed, so that tensors of static storage outlive nothing
    pinned_memory* of_host = nullptr;
    cudaDeviceProp properties{};
};

inline std::array<gpu_state, 64>& gpus() {
    static auto* all = new std::array<gpu_state, 64>;
    return *all;
}

#if defined(__CUDACC__)

/// A block of a GPU (grid.hpp).
class gpu_block {
public:
    __device__ index_t thread() const { return threadIdx.x; }
    __device__ index_t threads() const { return blockDim.x; }
    __device__ index_t block() const { return blockIdx.x; }
    __device__ index_t blocks() const { return gridDim.x; }
    __device__ void sync() { __syncthreads(); }
    template <class T>
    __device__ T shuffle_xor(T v, int mask) {
        return __shfl_xor_sync(0xffffffffu, v, mask);
    }
    __device__ void add(std::uint32_t* to, std::uint32_t n) { atomicAdd(to, n); }
    template <class T>
    __device__ T* shared() {
        extern __shared__ __align__(32) unsigned char memory[];  // as wmma wants its tiles
        return reinterpret_cast<T*>(memory);
    }
};

template <class Body>
__global__ void __launch_bounds__(most_threads<Body>) run_kernel(const Body body) {
    gpu_block b;
    body(b);
}

#endif

}  // namespace detail

/// The current GPU of the calling thread.
struct cuda {
    static constexpr const char* name = "cuda";

    static detail::gpu_memory& memory() {
        auto& all = detail::gpus();
        auto& mine = all[static_cast<std::size_t>(current())];
        std::call_once(mine.made, [&] { mine.memory = new detail::gpu_memory(current()); });
        return *mine.memory;
    }

    /// Memory of the host for the current GPU: copies from it run while the host goes on.
    static memory_pool& host_memory() {
        auto& mine = detail::gpus()[static_cast<std::size_t>(current())];
        std::call_once(mine.pinned, [&] { mine.of_host = new detail::pinned_memory(current()); });
        return *mine.of_host;
    }

    /// GPUs of this process. Throws where there is no driver or none.
    static int count() {
        int found = 0;
        check(cudaGetDeviceCount(&found), "looking for GPUs");
        return found;
    }
    static int current() {
        int gpu = 0;
        check(cudaGetDevice(&gpu), "asking for the current GPU");
        return gpu;
    }
    /// Makes GPU `gpu` that of the calling thread, before anything else is done on it.
    static void choose(int gpu) {
        require(gpu >= 0 && gpu < count(), "CUDA: GPU ", gpu, " of ", count(), " (0 is the first)");
        check(cudaSetDevice(gpu), "choosing GPU ", gpu);
        const cudaDeviceProp& p = properties();
        require(p.major >= 8, "CUDA: GPU ", gpu, " (", p.name, ") has compute capability ", p.major, '.', p.minor,
                "; 8.0 is needed");
    }
    static const cudaDeviceProp& properties() {
        auto& mine = detail::gpus()[static_cast<std::size_t>(current())];
        std::call_once(mine.asked, [&] {
            check(cudaGetDeviceProperties(&mine.properties, current()), "asking for the properties of the GPU");
        });
        return mine.properties;
    }
    /// Identity of the current GPU on any machine: its UUID in hexadecimal digits.
    static std::string identity() {
        std::string text;
        for (const char byte : properties().uuid.bytes) {
            constexpr const char* digits = "0123456789abcdef";
            const auto b = static_cast<unsigned char>(byte);
            text += digits[b >> 4];
            text += digits[b & 15];
        }
        return text;
    }
    static int multiprocessors() { return properties().multiProcessorCount; }

    /// The stream of the calling thread.
    static cudaStream_t stream() {
        thread_local cudaStream_t mine = [] {
            cudaStream_t s = nullptr;
            check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
            return s;
        }();
        return mine;
    }
    /// A handle of a library of NVIDIA's in that stream. `check(status, what)` throws where a call fails.
    template <class Handle, class Create, class SetStream, class Check>
    static Handle library_handle(Create create, SetStream set_stream, Check check) {
        Handle made = nullptr;
        check(create(&made), "starting");
        check(set_stream(made, stream()), "choosing a stream");
        return made;
    }
    /// Whether launches of the calling thread are recorded in place of run.
    static bool is_recording() {
        cudaStreamCaptureStatus status{};
        check(cudaStreamIsCapturing(stream(), &status), "asking whether launches are recorded");
        return status != cudaStreamCaptureStatusNone;
    }
    /// Waits for all that the calling thread has launched.
    static void wait() {
        check(cudaStreamSynchronize(stream()), "waiting for the GPU (a kernel launched before may have failed)");
    }

    /// A moment in what the calling thread launches (core/event.hpp). After wait(), the thread's GPU is the one that it
    /// was made on.
    class event {
    public:
        explicit event(cudaStream_t of = stream()) : gpu_(current()) {
            cudaEvent_t handle = nullptr;
            check(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), "making an event");
            event_ = {handle, [](cudaEvent_t e) { cudaEventDestroy(e); }};
            check(cudaEventRecord(handle, of), "recording an event");
        }
        void wait() const {
            if (current() != gpu_) check(cudaSetDevice(gpu_), "choosing GPU ", gpu_);
            wait_on(stream());
        }
        void wait_on(cudaStream_t other) const {
            check(cudaStreamWaitEvent(other, event_.get(), 0), "waiting for an event");
        }
        /// The host waits.
        void finish() const { check(cudaEventSynchronize(event_.get()), "waiting for an event"); }

    private:
        int gpu_;
        std::shared_ptr<CUevent_st> event_;
    };

    /// Copies from host_memory() in a stream of their own, beside what the calling thread launches.
    class copy_stream {
    public:
        copy_stream() {
            cudaStream_t s = nullptr;
            check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
            stream_.reset(s);
        }
        ~copy_stream() { cudaStreamSynchronize(stream_.get()); }  // both ends of the copies live until here
        copy_stream(const copy_stream&) = delete;

        /// Copies from now on begin when m has come.
        void after(const event& m) { m.wait_on(stream_.get()); }
        void copy(void* to, const void* from, index_t bytes) {
            cuda::copy(to, from, bytes, cudaMemcpyHostToDevice, stream_.get());
        }
#if defined(__CUDACC__)
        /// After the copies until now, and before later ones.
        template <class Body>
        void launch(const grid_size& g, const Body& body) {
            launch_in(stream_.get(), g, body);
        }
#endif
        /// All copies and launches until now.
        event done() const { return event(stream_.get()); }

    private:
        struct destroy {
            void operator()(CUstream_st* s) const { cudaStreamDestroy(s); }
        };
        std::unique_ptr<CUstream_st, destroy> stream_;
    };

    class recording;

    /// Launches that were recorded, run as a whole (core/captured_graph.hpp).
    class graph {
    public:
        void launch() const {
            if (ready_) check(cudaGraphLaunch(ready_.get(), stream()), "launching a graph");
        }
        /// Nothing was launched while it was recorded.
        bool empty() const { return !ready_; }

    private:
        friend class recording;
        struct destroy {
            void operator()(CUgraph_st* g) const { cudaGraphDestroy(g); }
            void operator()(CUgraphExec_st* g) const { cudaGraphExecDestroy(g); }
        };
        explicit graph(cudaGraph_t raw) {
            const std::unique_ptr<CUgraph_st, destroy> recorded(raw);
            std::size_t nodes = 0;
            check(cudaGraphGetNodes(raw, nullptr, &nodes), "looking at a graph");
            if (nodes == 0) return;
            cudaGraphExec_t ready = nullptr;
            check(cudaGraphInstantiate(&ready, raw, 0), "making a graph");
            ready_.reset(ready);
        }
        std::unique_ptr<CUgraphExec_st, destroy> ready_;
    };

    /// While it lives, what this thread launches on its stream is recorded, and nothing of it runs. Who waits for the
    /// GPU gets an error.
    class recording {
    public:
        recording() { begin(); }
        ~recording() {
            if (!on_) return;  // else the record is given up
            cudaGraph_t raw = nullptr;
            cudaStreamEndCapture(stream(), &raw);
            if (raw) cudaGraphDestroy(raw);
            cudaGetLastError();  // so that the next call does not report it
        }
        recording(const recording&) = delete;
        recording& operator=(const recording&) = delete;

        /// The launches recorded until now. Later ones belong to the next graph.
        graph cut() {
            graph before = end();
            begin();
            return before;
        }
        /// The launches recorded since the last cut. Ends the recording.
        graph end() {
            on_ = false;
            cudaGraph_t raw = nullptr;
            check(cudaStreamEndCapture(stream(), &raw), "ending the record of a graph");
            return graph(raw);
        }

    private:
        void begin() {
            check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "recording a graph");
            on_ = true;
        }
        bool on_ = false;
    };

    static void copy_to_device(void* to, const void* from, index_t bytes) {
        copy(to, from, bytes, cudaMemcpyHostToDevice), wait();
    }
    static void copy_to_host(void* to, const void* from, index_t bytes) {
        copy(to, from, bytes, cudaMemcpyDeviceToHost), wait();
    }
    /// From host_memory(), behind what was launched before; `from` may be written again after finish() of what is
    /// returned.
    static event begin_copy_to_device(void* to, const void* from, index_t bytes) {
        copy(to, from, bytes, cudaMemcpyHostToDevice);
        return event{};
    }
    /// Into host_memory(), behind what was launched before; the host has it after finish() of what is returned.
    static event begin_copy_to_host(void* to, const void* from, index_t bytes) {
        copy(to, from, bytes, cudaMemcpyDeviceToHost);
        return event{};
    }
    static void copy_within(void* to, const void* from, index_t bytes) {
        copy(to, from, bytes, cudaMemcpyDeviceToDevice);
    }
    static void set_bytes(void* to, int value, index_t bytes) {
        if (bytes > 0)
            check(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), stream()), "setting ", bytes, " bytes");
    }

#if defined(__CUDACC__)
    template <class Body>
    static void launch(const grid_size& g, const Body& body) {
        launch_in(stream(), g, body);
    }
#endif

private:
#if defined(__CUDACC__)
    template <class Body>
    static void launch_in(cudaStream_t in, const grid_size& g, const Body& body) {
        static_assert(sizeof(Body) <= 4096, "a kernel's arguments have at most 4 KiB");
        require(g.blocks >= 1 && g.blocks < (index_t{1} << 31), "CUDA: a grid of ", g.blocks,
                " blocks; 1 to 2^31 - 1 are possible");
        require(g.threads >= warp_threads && g.threads <= most_threads<Body> && g.threads % warp_threads == 0,
                "CUDA: blocks of ", g.threads, " threads; multiples of ", warp_threads, " up to ", most_threads<Body>,
                " are possible");
        const dim3 blocks(static_cast<unsigned>(g.blocks)), threads(static_cast<unsigned>(g.threads));
        const auto shared = static_cast<std::size_t>(g.shared);
        const auto kernel = detail::run_kernel<Body>;
        require(g.shared >= 0 && g.shared <= grid_size::most_shared, "CUDA: ", g.shared,
                " bytes of shared memory; 0 to ", grid_size::most_shared, " are possible");
        if (g.shared > 48 << 10)  // given to who asks; once less is asked for, launches that were recorded may not run
            check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(grid_size::most_shared)),
                  "asking for shared memory");
        void* arguments[] = {const_cast<Body*>(&body)};
        check(cudaLaunchKernel(kernel, blocks, threads, arguments, shared, in), "launching ", g.blocks, " blocks of ",
              g.threads, " threads");
    }
#endif

    static void copy(void* to, const void* from, index_t bytes, cudaMemcpyKind how, cudaStream_t in = stream()) {
        if (bytes > 0)
            check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), how, in), "copying ", bytes, " bytes");
    }
};

static_assert(GridDevice<cuda>);

/// Memory for a library's call, aligned as libraries want it.
class gpu_workspace {
public:
    explicit gpu_workspace(std::size_t bytes)
        : block_({static_cast<index_t>(bytes) + library_alignment}, memory_category::workspace), bytes_(bytes) {}
    void* data() { return library_aligned(block_.data()); }
    std::size_t bytes() const { return bytes_; }

private:
    tensor<std::uint8_t, cuda> block_;
    std::size_t bytes_;
};

}  // namespace cairn
