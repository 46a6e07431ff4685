#include "emulated_cuda.hpp"

#include <cairn/core/parallel.hpp>

#include <cuda.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace emulated {

struct moment {
    bool reached = false;
};

}  // namespace emulated

/// A stream. `steps` are asked under the lock; `work` runs without it.
struct CUstream_st {
    struct item {
        std::function<bool()> step;
        std::function<void()> work;
    };
    int gpu = 0;
    std::deque<item> items;
};

struct CUevent_st {
    int gpu = 0;
    std::shared_ptr<emulated::moment> last;  // where it was recorded
};

namespace emulated {

namespace {

struct machine {
    std::mutex mutex;
    std::condition_variable work_came, work_went;
    std::vector<std::unique_ptr<CUstream_st>> streams;  // also those that were destroyed and have work left
    std::set<cudaStream_t> live_streams;
    std::set<cudaEvent_t> live_events;
    struct range {
        char* begin;
        std::size_t bytes;
        std::array<std::size_t, gpus> open{};  // bytes from the beginning that each GPU may reach
    };
    std::array<std::vector<range>, gpus> memory;
    std::uint32_t state = 1;
    std::string failure;
    bool news = false;

    void run() {
        std::unique_lock guard(mutex);
        for (;;) {
            work_came.wait(guard, [&] { return news; });
            while (std::exchange(news, false) || pass(guard)) {}
        }
    }

    // Looks once at every stream, beginning anywhere. Whether anything happened.
    bool pass(std::unique_lock<std::mutex>& guard) {
        bool moved = false;
        const auto n = static_cast<unsigned>(streams.size());
        const unsigned first = n ? drawn(n) : 0;
        for (unsigned k = 0; k < n && k < streams.size(); ++k) {
            CUstream_st& s = *streams[(first + k) % static_cast<unsigned>(streams.size())];
            if (s.items.empty()) continue;
            if (s.items.front().step) {
                if (!s.items.front().step()) continue;
            } else {
                const auto work = std::move(s.items.front().work);
                guard.unlock();
                std::string why;
                try {
                    work();
                } catch (const std::exception& e) {
                    why = e.what();
                }
                guard.lock();
                if (failure.empty()) failure = why;
            }
            s.items.pop_front();
            moved = true;
            work_went.notify_all();
        }
        std::erase_if(streams, [&](const auto& s) { return s->items.empty() && !live_streams.contains(s.get()); });
        return moved || news;
    }

    unsigned drawn(unsigned n) {
        state = state * 1664525u + 1013904223u;
        return static_cast<unsigned>((std::uint64_t{state >> 8} * n) >> 24);
    }
};

machine& the_machine() {
    static machine* m = [] {
        auto* made = new machine;  // for ever: its thread may look at it to the end
        std::thread([made] {
            cairn::set_threads(1);
            made->run();
        }).detach();
        return made;
    }();
    return *m;
}

thread_local int current_gpu = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t said(cudaError_t what) {
    if (what != cudaSuccess) last_error = what;  // as a real one does with cudaErrorNotReady too
    return what;
}

bool knows(cudaStream_t s) { return the_machine().live_streams.contains(s); }
bool knows(cudaEvent_t e) { return the_machine().live_events.contains(e); }

template <class Done>
cudaError_t wait_until(std::unique_lock<std::mutex>& guard, Done&& done) {
    machine& m = the_machine();
    if (!m.work_went.wait_for(guard, std::chrono::duration<double>(patience), done))
        return said(cudaErrorLaunchTimeout);
    return said(m.failure.empty() ? cudaSuccess : cudaErrorLaunchFailure);
}

void put(cudaStream_t s, CUstream_st::item what) {
    s->items.push_back(std::move(what));
    changed();
}

// The driver's functions that runtime.hpp asks for by name.

CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(range);
    const std::scoped_lock guard(lock());
    the_machine().memory[static_cast<std::size_t>(current_gpu)].push_back({static_cast<char*>(range), bytes, {}});
    return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp*, unsigned long long) {
    *handle = 1;
    return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* to, std::size_t n) {
    const std::scoped_lock guard(lock());
    for (auto& ranges : the_machine().memory)
        for (machine::range& r : ranges) {
            const std::size_t begin = at - reinterpret_cast<CUdeviceptr>(r.begin);
            for (std::size_t i = 0; begin < r.bytes && i < n; ++i) {
                std::size_t& open = r.open[static_cast<std::size_t>(to[i].location.id)];
                if (begin > open) return CUDA_ERROR_INVALID_VALUE;
                open = std::max(open, begin + bytes);
            }
        }
    return mprotect(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}
CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
CUresult ask_device(int* value, CUdevice_attribute, CUdevice) {
    *value = 1;
    return CUDA_SUCCESS;
}

}  // namespace

std::mutex& lock() { return the_machine().mutex; }
void changed() {
    the_machine().news = true;
    the_machine().work_came.notify_all();
}
unsigned drawn(unsigned n) { return the_machine().drawn(n); }
void seed(unsigned value) {
    const std::scoped_lock guard(lock());
    the_machine().state = value;
}
void launch(cudaStream_t stream, std::function<void()> work) {
    const std::scoped_lock guard(lock());
    put(stream, {nullptr, std::move(work)});
}
void launch_step(cudaStream_t stream, std::function<bool()> done) { put(stream, {std::move(done), nullptr}); }
bool in_memory_of(int gpu, const void* at, std::size_t bytes) {
    const auto* p = static_cast<const char*>(at);
    return std::ranges::any_of(the_machine().memory[static_cast<std::size_t>(gpu)],
                               [&](const auto& r) { return p >= r.begin && p + bytes <= r.begin + r.bytes; });
}
bool may_reach(int gpu, const void* at, std::size_t bytes) {
    const auto* p = static_cast<const char*>(at);
    for (const auto& ranges : the_machine().memory)
        for (const machine::range& r : ranges)
            if (p >= r.begin && p + bytes <= r.begin + r.open[static_cast<std::size_t>(gpu)]) return true;
    return false;
}
int gpu_of(cudaStream_t stream) { return knows(stream) ? stream->gpu : -1; }
std::string failure() {
    const std::scoped_lock guard(lock());
    return std::exchange(the_machine().failure, {});
}

}  // namespace emulated

using emulated::current_gpu, emulated::knows, emulated::last_error, emulated::put, emulated::said,
    emulated::the_machine, emulated::wait_until;

cudaError_t cudaGetDeviceCount(int* count) {
    *count = emulated::gpus;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_gpu;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= emulated::gpus) return said(cudaErrorInvalidDevice);
    current_gpu = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
    *prop = {};
    std::strcpy(prop->name, "emulated");
    for (int i = 0; i < 16; ++i) prop->uuid.bytes[i] = static_cast<char>(16 * device + i);
    prop->major = 9;
    prop->multiProcessorCount = 1;
    return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int gpu, int other) {
    *can = gpu != other;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
    *available = *total = std::size_t{1} << 29;
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
    *block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *block ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* block) {
    std::free(block);
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    const std::string name = symbol;
    *function = name == "cuMemAddressReserve"    ? reinterpret_cast<void*>(&emulated::reserve)
                : name == "cuMemCreate"          ? reinterpret_cast<void*>(&emulated::create)
                : name == "cuMemMap"             ? reinterpret_cast<void*>(&emulated::map)
                : name == "cuMemSetAccess"       ? reinterpret_cast<void*>(&emulated::set_access)
                : name == "cuMemRelease"         ? reinterpret_cast<void*>(&emulated::release)
                : name == "cuDeviceGetAttribute" ? reinterpret_cast<void*>(&emulated::ask_device)
                                                 : nullptr;
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorLaunchTimeout           ? "the emulated GPU waited too long"
           : error == cudaErrorLaunchFailure         ? "work on the emulated GPU failed"
           : error == cudaErrorInvalidResourceHandle ? "invalid resource handle"
                                                     : "emulated error";
}
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    const std::scoped_lock guard(emulated::lock());
    auto made = std::make_unique<CUstream_st>();
    made->gpu = current_gpu;
    *stream = made.get();
    the_machine().live_streams.insert(made.get());
    the_machine().streams.push_back(std::move(made));
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::scoped_lock guard(emulated::lock());
    if (the_machine().live_streams.erase(stream) == 0) return said(cudaErrorInvalidResourceHandle);
    emulated::changed();
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = cudaStreamCaptureStatusNone;  // these streams are not recorded
    return said(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    std::unique_lock guard(emulated::lock());
    if (!knows(stream)) return said(cudaErrorInvalidResourceHandle);
    return wait_until(guard, [&] { return stream->items.empty(); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    const std::scoped_lock guard(emulated::lock());
    *event = new CUevent_st{current_gpu, nullptr};
    the_machine().live_events.insert(*event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::scoped_lock guard(emulated::lock());
    if (the_machine().live_events.erase(event) == 0) return said(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::scoped_lock guard(emulated::lock());
    if (!knows(event) || !knows(stream) || event->gpu != stream->gpu) return said(cudaErrorInvalidResourceHandle);
    const auto here = std::make_shared<emulated::moment>();
    event->last = here;
    put(stream, {[here] { return here->reached = true; }, nullptr});
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const std::scoped_lock guard(emulated::lock());
    if (!knows(event) || !knows(stream)) return said(cudaErrorInvalidResourceHandle);
    if (const auto moment = event->last) put(stream, {[moment] { return moment->reached; }, nullptr});
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    const std::scoped_lock guard(emulated::lock());
    if (!knows(event)) return said(cudaErrorInvalidResourceHandle);
    if (!the_machine().failure.empty()) return said(cudaErrorLaunchFailure);
    return said(!event->last || event->last->reached ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    std::unique_lock guard(emulated::lock());
    if (!knows(event)) return said(cudaErrorInvalidResourceHandle);
    const auto moment = event->last;
    return wait_until(guard, [&] { return !moment || moment->reached; });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    const std::scoped_lock guard(emulated::lock());
    if (!knows(stream)) return said(cudaErrorInvalidResourceHandle);
    put(stream, {nullptr, [=] { std::memmove(to, from, bytes); }});
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    const std::scoped_lock guard(emulated::lock());
    if (!knows(stream)) return said(cudaErrorInvalidResourceHandle);
    put(stream, {nullptr, [=] { std::memset(to, value, bytes); }});
    return cudaSuccess;
}
