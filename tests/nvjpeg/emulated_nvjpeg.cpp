#include "nvjpeg/emulated_nvjpeg.hpp"

#include "nccl/emulated_cuda.hpp"

#include <cairn/data/image_jpeg.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace emulated {

// Not without a name: where all sources are compiled as one file, nvJPEG's own types, which have linkage, are made of
// these.
namespace of_nvjpeg {

// Where the program is wrong: the real library's "invalid parameter" may be about a file as well.
constexpr nvjpegStatus_t misused = NVJPEG_STATUS_NOT_INITIALIZED;

bool aligned(const void* block) { return reinterpret_cast<std::uintptr_t>(block) % 256 == 0; }

struct counted {
    counted() { ++nvjpeg_objects; }
    ~counted() { --nvjpeg_objects; }
    counted(const counted&) = delete;
};

/// Memory of an allocator, grown as it is needed.
struct room {
    int (*take)(void*, void**, std::size_t, cudaStream_t) = nullptr;
    int (*let_go)(void*, void*, std::size_t, cudaStream_t) = nullptr;
    void* context = nullptr;
    void* block = nullptr;
    std::size_t bytes = 0;

    bool grow(std::size_t wanted, cudaStream_t stream) {
        if (wanted <= bytes) return true;
        if (block && let_go(context, block, bytes, stream) != 0) return false;
        block = nullptr;
        bytes = 0;
        if (take(context, &block, wanted, stream) != 0) return false;
        bytes = wanted;
        return aligned(block);
    }
    ~room() {
        if (block) let_go(context, block, bytes, nullptr);
    }
};
room of(const nvjpegDevAllocatorV2_t& a) { return {a.dev_malloc, a.dev_free, a.dev_ctx}; }
room of(const nvjpegPinnedAllocatorV2_t& a) { return {a.pinned_malloc, a.pinned_free, a.pinned_ctx}; }

// The frame's marker, size and channels; 0: there is none.
struct frame {
    unsigned marker = 0, height = 0, width = 0, channels = 0;
};
frame frame_of(const unsigned char* data, std::size_t n) {
    for (std::size_t at = 2; at + 9 < n && data[at] == 0xff;) {
        const unsigned marker = data[at + 1];
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
            return {marker, data[at + 5] * 256u + data[at + 6], data[at + 7] * 256u + data[at + 8], data[at + 9]};
        at += 2 + data[at + 2] * std::size_t{256} + data[at + 3];
    }
    return {};
}

void decode_now(const unsigned char* data, std::size_t bytes, const nvjpegImage_t& to) {
    cairn::image out;
    cairn::jpeg_decoder({data, bytes}, "emulated nvJPEG").decode(out);
    for (cairn::index_t y = 0; y < out.height; ++y)
        std::memcpy(to.channel[0] + static_cast<std::size_t>(y) * to.pitch[0], out.row(y),
                    static_cast<std::size_t>(out.width * 3));
}

}  // namespace of_nvjpeg

using namespace of_nvjpeg;

}  // namespace emulated

using emulated::counted, emulated::frame, emulated::misused, emulated::room;

struct nvjpegHandle : counted {
    nvjpegDevAllocatorV2_t device{};
    nvjpegPinnedAllocatorV2_t pinned{};
    bool engines = false;
};
struct nvjpegBufferPinned : counted {
    room memory;
};
struct nvjpegBufferDevice : counted {
    room memory;
};
struct nvjpegJpegStream : counted {
    const unsigned char* data = nullptr;
    std::size_t bytes = 0;
    frame of;
};
struct nvjpegJpegState : counted {
    int batch = 0;
    room device, pinned;  // of batches
    nvjpegBufferPinned* pinned_buffer = nullptr;
    nvjpegBufferDevice* device_buffer = nullptr;
    std::vector<unsigned char> file;  // between the phases
    bool there = false;
    std::shared_ptr<std::atomic<int>> on_their_way = std::make_shared<std::atomic<int>>(0);
};
struct nvjpegDecodeParams : counted {
    bool format = false;
};
struct nvjpegJpegDecoder : counted {};

namespace {
template <class T>
nvjpegStatus_t made(T** out) {
    *out = new T;
    return NVJPEG_STATUS_SUCCESS;
}
template <class T>
nvjpegStatus_t gone(T* h) {
    delete h;
    return NVJPEG_STATUS_SUCCESS;
}
}  // namespace

nvjpegStatus_t nvjpegCreateExV2(nvjpegBackend_t backend, nvjpegDevAllocatorV2_t* device,
                                nvjpegPinnedAllocatorV2_t* pinned, unsigned, nvjpegHandle_t* out) {
    if (backend == NVJPEG_BACKEND_HARDWARE && !emulated::nvjpeg_engines) return NVJPEG_STATUS_ARCH_MISMATCH;
    made(out);
    (*out)->device = *device;
    (*out)->pinned = *pinned;
    (*out)->engines = backend == NVJPEG_BACKEND_HARDWARE;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t h) { return gone(h); }
nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t h, nvjpegJpegState_t* out) {
    made(out);
    (*out)->device = emulated::of(h->device);
    (*out)->pinned = emulated::of(h->pinned);
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t s) { return gone(s); }
nvjpegStatus_t nvjpegDecoderStateCreate(nvjpegHandle_t h, nvjpegJpegDecoder_t, nvjpegJpegState_t* out) {
    return nvjpegJpegStateCreate(h, out);
}
nvjpegStatus_t nvjpegDecoderCreate(nvjpegHandle_t, nvjpegBackend_t, nvjpegJpegDecoder_t* out) { return made(out); }
nvjpegStatus_t nvjpegDecoderDestroy(nvjpegJpegDecoder_t d) { return gone(d); }
nvjpegStatus_t nvjpegDecodeParamsCreate(nvjpegHandle_t, nvjpegDecodeParams_t* out) { return made(out); }
nvjpegStatus_t nvjpegDecodeParamsDestroy(nvjpegDecodeParams_t p) { return gone(p); }
nvjpegStatus_t nvjpegDecodeParamsSetOutputFormat(nvjpegDecodeParams_t p, nvjpegOutputFormat_t format) {
    p->format = format == NVJPEG_OUTPUT_RGBI;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegBufferPinnedCreateV2(nvjpegHandle_t, nvjpegPinnedAllocatorV2_t* a, nvjpegBufferPinned_t* out) {
    made(out);
    (*out)->memory = emulated::of(*a);
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegBufferPinnedDestroy(nvjpegBufferPinned_t b) { return gone(b); }
nvjpegStatus_t nvjpegBufferDeviceCreateV2(nvjpegHandle_t, nvjpegDevAllocatorV2_t* a, nvjpegBufferDevice_t* out) {
    made(out);
    (*out)->memory = emulated::of(*a);
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegBufferDeviceDestroy(nvjpegBufferDevice_t b) { return gone(b); }
nvjpegStatus_t nvjpegStateAttachPinnedBuffer(nvjpegJpegState_t s, nvjpegBufferPinned_t b) {
    s->pinned_buffer = b;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegStateAttachDeviceBuffer(nvjpegJpegState_t s, nvjpegBufferDevice_t b) {
    s->device_buffer = b;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegJpegStreamCreate(nvjpegHandle_t, nvjpegJpegStream_t* out) { return made(out); }
nvjpegStatus_t nvjpegJpegStreamDestroy(nvjpegJpegStream_t s) { return gone(s); }
nvjpegStatus_t nvjpegJpegStreamParse(nvjpegHandle_t, const unsigned char* data, std::size_t n, int, int,
                                     nvjpegJpegStream_t into) {
    into->data = data;
    into->bytes = n;
    into->of = emulated::frame_of(data, n);
    return into->of.marker ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_BAD_JPEG;
}
nvjpegStatus_t nvjpegJpegStreamGetFrameDimensions(nvjpegJpegStream_t s, unsigned* width, unsigned* height) {
    *width = s->of.width + (emulated::nvjpeg_reads_other_sizes ? 1 : 0);
    *height = s->of.height;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDecodeBatchedSupportedEx(nvjpegHandle_t, nvjpegJpegStream_t s, nvjpegDecodeParams_t p, int* no) {
    if (!p->format) return misused;
    if (emulated::nvjpeg_bad_questions > 0) {
        --emulated::nvjpeg_bad_questions;
        return NVJPEG_STATUS_INTERNAL_ERROR;
    }
    *no = s->of.marker == 0xc0 && s->of.channels != 4 ? 0 : 1;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDecoderJpegSupported(nvjpegJpegDecoder_t, nvjpegJpegStream_t s, nvjpegDecodeParams_t, int* no) {
    *no = s->of.marker <= 0xc2 && s->of.channels != 4 ? 0 : 1;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t, nvjpegJpegState_t s, int n, int, nvjpegOutputFormat_t) {
    s->batch = n;
    return n > 0 ? NVJPEG_STATUS_SUCCESS : misused;
}
nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t h, nvjpegJpegState_t s, const unsigned char* const* data,
                                   const std::size_t* lengths, nvjpegImage_t* places, cudaStream_t stream) {
    if (s->batch == 0) return misused;
    if (emulated::nvjpeg_bad_batches > 0) {
        --emulated::nvjpeg_bad_batches;
        return NVJPEG_STATUS_EXECUTION_FAILED;
    }
    std::size_t bytes = 0;
    for (int i = 0; i < s->batch; ++i) bytes += lengths[i];
    if (!s->pinned.grow(bytes, stream) || !s->device.grow(bytes, stream)) return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    if (h->engines) std::memset(s->device.block, 0, bytes);
    for (int i = 0; i < s->batch; ++i) {
        if (h->engines && !emulated::aligned(places[i].channel[0])) return misused;
        const auto decode = [file = data[i], n = lengths[i], to = places[i]] { emulated::decode_now(file, n, to); };
        if (h->engines)
            decode();  // at once, whatever the stream holds
        else
            emulated::launch(stream, decode);
    }
    emulated::nvjpeg_together += s->batch;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDecodeJpegHost(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t s, nvjpegDecodeParams_t,
                                    nvjpegJpegStream_t file) {
    if (!s->pinned_buffer || !s->device_buffer || *s->on_their_way > 0) return misused;
    if (emulated::nvjpeg_bad_files > 0) {
        --emulated::nvjpeg_bad_files;
        return NVJPEG_STATUS_INVALID_PARAMETER;
    }
    if (!s->pinned_buffer->memory.grow(file->bytes, nullptr)) return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    std::memcpy(s->pinned_buffer->memory.block, file->data, file->bytes);
    s->file.resize(file->bytes);
    s->there = false;
    return NVJPEG_STATUS_SUCCESS;
}
nvjpegStatus_t nvjpegDecodeJpegTransferToDevice(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t s,
                                                nvjpegJpegStream_t, cudaStream_t stream) {
    if (!s->device_buffer->memory.grow(s->file.size(), stream)) return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    s->there = true;
    return cudaMemcpyAsync(s->device_buffer->memory.block, s->pinned_buffer->memory.block, s->file.size(),
                           cudaMemcpyHostToDevice, stream) == cudaSuccess
               ? NVJPEG_STATUS_SUCCESS
               : NVJPEG_STATUS_EXECUTION_FAILED;
}
nvjpegStatus_t nvjpegDecodeJpegDevice(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t s, nvjpegImage_t* to,
                                      cudaStream_t stream) {
    if (!s->there) return misused;
    ++*s->on_their_way;
    emulated::launch(stream, [file = static_cast<const unsigned char*>(s->device_buffer->memory.block),
                              n = s->file.size(), place = *to, busy = s->on_their_way] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the host's part
        emulated::decode_now(file, n, place);
        --*busy;
    });
    ++emulated::nvjpeg_alone;
    return NVJPEG_STATUS_SUCCESS;
}
