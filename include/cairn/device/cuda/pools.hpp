#pragma once
// The pools of a GPU: its own memory, and memory of the host that it copies from and to by itself.
// Environment: CAIRN_GPU_MEMORY_LIMIT (bytes) bounds the first.

#include <cairn/core/memory.hpp>
#include <cairn/device/cuda/driver.hpp>

#include <mutex>
#include <string>
#include <vector>

namespace cairn::detail {

/// Address space as large as the GPU's memory, backed piece by piece as the pool grows: the driver's figure is the
/// pool's peak. All GPUs of this process that can reach each other may: NCCL's kernels read and write the memory of
/// ranks of the same process (llama.cpp's #24489).
class gpu_memory final : public memory_pool {
public:
    explicit gpu_memory(int gpu) : gpu_memory(gpu, range_of(gpu)) {
        auto& [mutex, all] = of_process();
        const std::scoped_lock lock(mutex);
        for (gpu_memory* const other : all) {
            other->open_to(gpu);
            open_to(other->gpu_);
        }
        all.push_back(this);
    }

private:
    static constexpr index_t piece = index_t{32} << 20;

    struct range {
        char* begin;
        index_t bytes, limit;
    };

    gpu_memory(int gpu, range r)
        : memory_pool(r.begin, r.bytes, r.limit, concat("memory of GPU ", gpu), "CAIRN_GPU_MEMORY_LIMIT"),
          gpu_(gpu),
          mapped_(r.begin),
          open_to_{access_of(gpu)} {
        int can = 0;
        check_driver(driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                         &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, gpu),
                     "asking about GPUDirect for memory", r.bytes);
        network_reads_ = can != 0;
    }

    // Those of this process; the lock also guards what each of them has mapped, and to whom.
    struct process {
        std::mutex mutex;
        std::vector<gpu_memory*> all;
    };
    static process& of_process() {
        static auto* one = new process;
        return *one;
    }

    static CUmemAccessDesc access_of(int gpu) {
        return {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }

    void open_to(int other) {
        int can = 0;
        check(cudaDeviceCanAccessPeer(&can, other, gpu_), "asking whether GPU ", other, " can reach GPU ", gpu_);
        if (can == 0) return;
        open_to_.push_back(access_of(other));
        if (mapped_ > begin()) open(begin(), mapped_ - begin(), &open_to_.back(), 1);
    }

    static void open(char* from, index_t bytes, const CUmemAccessDesc* to, std::size_t n) {
        check_driver(driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(
                         reinterpret_cast<CUdeviceptr>(from), static_cast<std::size_t>(bytes), to, n),
                     "opening memory", bytes);
    }

    static range range_of(int gpu) {
        check(cudaSetDevice(gpu), "choosing GPU ", gpu);
        check(cudaFree(nullptr), "starting GPU ", gpu);
        std::size_t available = 0, total = 0;
        check(cudaMemGetInfo(&available, &total), "asking for the memory of GPU ", gpu);
        const index_t bytes = static_cast<index_t>(2 * total) / piece * piece;
        const index_t limit = memory_limit_of_environment("CAIRN_GPU_MEMORY_LIMIT", static_cast<index_t>(total));
        CUdeviceptr at = 0;
        check_driver(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(
                         &at, static_cast<std::size_t>(bytes), 0, 0, 0),
                     "reserving address space", bytes);
        return {reinterpret_cast<char*>(at), bytes, limit};
    }

    bool commit(char* to) override {
        const std::scoped_lock lock(of_process().mutex);
        while (mapped_ < to) {
            CUmemAllocationProp what{};
            what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            what.location = open_to_[0].location;
            what.allocFlags.gpuDirectRDMACapable = network_reads_;
            CUmemGenericAllocationHandle handle{};
            const CUresult made = driver_function<decltype(cuMemCreate)>("cuMemCreate")(&handle, piece, &what, 0);
            if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
            check_driver(made, "making memory (a kernel launched before may have failed)", piece);
            const auto at = reinterpret_cast<CUdeviceptr>(mapped_);
            check_driver(driver_function<decltype(cuMemMap)>("cuMemMap")(at, piece, 0, handle, 0), "mapping memory",
                         piece);
            open(mapped_, piece, open_to_.data(), open_to_.size());
            check_driver(driver_function<decltype(cuMemRelease)>("cuMemRelease")(handle), "naming memory", piece);
            mapped_ += piece;
        }
        return true;
    }

    std::string beside() const override {
        std::size_t available = 0, total = 0;
        if (dealt_with(cudaMemGetInfo(&available, &total)) != cudaSuccess) return {};
        return concat(", ", static_cast<index_t>(available), " of ", static_cast<index_t>(total), " free on the GPU");
    }

    int gpu_;
    char* mapped_;                          // the range is backed up to here
    std::vector<CUmemAccessDesc> open_to_;  // this GPU first
    bool network_reads_ = false;            // network cards may: NCCL over several hosts, MPI that knows GPUs
};

/// Memory of the host that a GPU copies from and to by itself: its pages stay where they are. Each block is an
/// allocation of the driver, so it is for buffers that are kept.
class pinned_memory final : public memory_pool {
public:
    explicit pinned_memory(int gpu)
        : memory_pool(nullptr, 0, host().limit(), concat("pinned memory of the host for GPU ", gpu),
                      "CAIRN_MEMORY_LIMIT"),
          gpu_(gpu) {
        use_system();
    }

private:
    void* allocate_alone(index_t bytes) noexcept override {
        void* block = nullptr;  // by any thread, which may have chosen no GPU yet
        if (dealt_with(cudaSetDevice(gpu_)) != cudaSuccess) return nullptr;
        const auto size = static_cast<std::size_t>(bytes);
        return dealt_with(cudaHostAlloc(&block, size, cudaHostAllocDefault)) == cudaSuccess ? block : nullptr;
    }
    void release_alone(void* block) noexcept override { cudaFreeHost(block); }

    int gpu_;
};

}  // namespace cairn::detail
