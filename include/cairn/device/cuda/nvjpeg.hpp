#pragma once
// JPEG files to RGB on the GPU by nvJPEG. The one place that includes it, where it is there (CAIRN_HAS_NVJPEG).
// Files of one call that nvjpegDecodeBatchedSupported() takes are one batch: for the engines that some chips have
// beside their multiprocessors (A100, H100, H200), else by kernels (GPU_HYBRID). Others, progressive ones above all,
// follow one by one with Huffman's code read by the calling thread; what nvJPEG does not know at all it refuses. Memory
// is that of the pools of device/cuda/runtime.hpp, kept until the decoder goes.
// Engines write when they are called, whatever the stream still holds (torchcodec's #1634, measured on H100): before
// them, and where memory grows, the host waits.

#include <cairn/device/cuda/encoded_images.hpp>
#include <cairn/device/cuda/runtime.hpp>

#if !defined(CAIRN_HAS_NVJPEG)
#define CAIRN_HAS_NVJPEG 0
#endif

namespace cairn {

/// Whether this program can decode on a GPU.
inline constexpr bool has_nvjpeg = CAIRN_HAS_NVJPEG;

}  // namespace cairn

#if CAIRN_HAS_NVJPEG

#include <nvjpeg.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace cairn::nvjpeg {

inline const char* text_of(nvjpegStatus_t status) {
    switch (status) {
        case NVJPEG_STATUS_SUCCESS:
            return "success";
        case NVJPEG_STATUS_NOT_INITIALIZED:
            return "not initialised";
        case NVJPEG_STATUS_INVALID_PARAMETER:
            return "invalid parameter";
        case NVJPEG_STATUS_BAD_JPEG:
            return "bad JPEG";
        case NVJPEG_STATUS_JPEG_NOT_SUPPORTED:
            return "this JPEG is not supported";
        case NVJPEG_STATUS_ALLOCATOR_FAILURE:
            return "no memory";
        case NVJPEG_STATUS_EXECUTION_FAILED:
            return "execution failed";
        case NVJPEG_STATUS_ARCH_MISMATCH:
            return "not for this GPU";
        case NVJPEG_STATUS_INTERNAL_ERROR:
            return "internal error";
        case NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED:
            return "implementation not supported";
        case NVJPEG_STATUS_INCOMPLETE_BITSTREAM:
            return "incomplete bitstream";
    }
    return "unknown status";
}

/// Whether a status may be about a file, and not about the machine. Of single files of ImageNet nvJPEG says "invalid
/// parameter" and "execution failed" (DALI's #3160, #6026). Where the GPU itself has failed, the next call says so.
inline bool refuses(nvjpegStatus_t s) {
    return s != NVJPEG_STATUS_SUCCESS && s != NVJPEG_STATUS_NOT_INITIALIZED && s != NVJPEG_STATUS_ALLOCATOR_FAILURE &&
           s != NVJPEG_STATUS_ARCH_MISMATCH;
}

template <class... What>
void check(nvjpegStatus_t status, const What&... what) {
    if (status != NVJPEG_STATUS_SUCCESS)
        fail("nvJPEG: ", what..., ": ", text_of(status), " (", static_cast<int>(status), ')');
}

/// With a name, without which nvcc 13 ends in an internal error where a vector destroys it.
struct place : nvjpegImage_t {};
static_assert(sizeof(place) == sizeof(nvjpegImage_t));

/// Memory that nvJPEG asks for, out of the pools. Its callbacks may not throw.
class memory {
public:
    memory() {
        device_.dev_malloc = [](void* self, void** block, std::size_t bytes, cudaStream_t stream) {
            return of(self).take(cuda::memory(), block, bytes, stream);
        };
        device_.dev_free = [](void* self, void* block, std::size_t, cudaStream_t) { return of(self).let_go(block); };
        device_.dev_ctx = this;
        pinned_.pinned_malloc = [](void* self, void** block, std::size_t bytes, cudaStream_t stream) {
            return of(self).take(cuda::host_memory(), block, bytes, stream);
        };
        pinned_.pinned_free = [](void* self, void* block, std::size_t, cudaStream_t) { return of(self).let_go(block); };
        pinned_.pinned_ctx = this;
    }
    memory(const memory&) = delete;
    memory& operator=(const memory&) = delete;
    ~memory() {
        for (const auto& [block, b] : blocks_) b.pool->release(b.begin, b.bytes, memory_category::data);
    }

    nvjpegDevAllocatorV2_t* device() { return &device_; }
    nvjpegPinnedAllocatorV2_t* pinned() { return &pinned_; }
    /// Whose work may use what is let go; null: nobody's any more.
    void used_in(cudaStream_t stream) { stream_ = stream; }

private:
    struct taken {
        memory_pool* pool;
        void* begin;  // of what is the pool's; the block begins at the next multiple of library_alignment
        index_t bytes;
    };
    static memory& of(void* self) { return *static_cast<memory*>(self); }

    // What the calling thread has launched may use what this memory was before.
    int take(memory_pool& pool, void** block, std::size_t bytes, cudaStream_t) noexcept {
        try {
            const auto size = static_cast<index_t>(bytes) + library_alignment;
            void* const begin = pool.allocate(size, memory_category::data);
            *block = library_aligned(begin);
            blocks_[*block] = {&pool, begin, size};
            cuda::event().finish();
            return 0;
        } catch (...) {
            return 1;
        }
    }
    int let_go(void* block) noexcept {
        const auto found = blocks_.find(block);
        if (found == blocks_.end()) return block == nullptr ? 0 : 1;
        if (stream_) cudaStreamSynchronize(stream_);
        found->second.pool->release(found->second.begin, found->second.bytes, memory_category::data);
        blocks_.erase(found);
        return 0;
    }

    nvjpegDevAllocatorV2_t device_{};
    nvjpegPinnedAllocatorV2_t pinned_{};
    std::map<void*, taken> blocks_;
    cudaStream_t stream_ = nullptr;
};

/// An object of the library, by the function that ends it.
template <class Handle>
class owned {
public:
    explicit owned(nvjpegStatus_t (*end)(Handle)) : end_(end) {}
    owned(owned&& o) noexcept : h_(o.h_), end_(o.end_) { o.h_ = nullptr; }
    owned& operator=(owned&&) = delete;
    ~owned() {
        if (h_) end_(h_);
    }
    Handle get() const { return h_; }
    Handle* into() { return &h_; }

private:
    Handle h_ = nullptr;
    nvjpegStatus_t (*end_)(Handle);
};

/// Decodes for one thread, on its current GPU (JpegDecoder).
class decoder {
public:
    decoder() : memory_(std::make_unique<memory>()) {
        const auto make = [&](nvjpegBackend_t backend) {
            return nvjpegCreateExV2(backend, memory_->device(), memory_->pinned(), NVJPEG_FLAGS_DEFAULT,
                                    library_.into());
        };
        if (make(NVJPEG_BACKEND_HARDWARE) == NVJPEG_STATUS_SUCCESS)
            engines_ = true;
        else
            check(make(NVJPEG_BACKEND_GPU_HYBRID), "starting");
        check(nvjpegJpegStateCreate(library_.get(), batch_.into()), "making the state of a batch");
        check(nvjpegDecoderCreate(library_.get(), NVJPEG_BACKEND_HYBRID, single_.into()), "making a decoder");
        check(nvjpegDecodeParamsCreate(library_.get(), parameters_.into()), "making parameters");
        check(nvjpegDecodeParamsSetOutputFormat(parameters_.get(), NVJPEG_OUTPUT_RGBI), "setting the format");
        for (lane& l : lanes_) {
            check(nvjpegDecoderStateCreate(library_.get(), single_.get(), l.state.into()), "making a state");
            check(nvjpegBufferPinnedCreateV2(library_.get(), memory_->pinned(), l.pinned.into()), "making a buffer");
            check(nvjpegBufferDeviceCreateV2(library_.get(), memory_->device(), l.device.into()), "making a buffer");
            check(nvjpegStateAttachPinnedBuffer(l.state.get(), l.pinned.get()), "attaching a buffer");
            check(nvjpegStateAttachDeviceBuffer(l.state.get(), l.device.get()), "attaching a buffer");
            check(nvjpegJpegStreamCreate(library_.get(), l.file.into()), "making a stream of bytes");
        }
    }
    decoder(decoder&&) = default;
    ~decoder() {
        if (memory_) memory_->used_in(nullptr);
    }

    /// Whether batches are for engines of their own.
    bool by_engines() const { return engines_; }

    /// Marks what is refused. Files stay until what `queue` then holds is done.
    void decode(std::vector<jpeg_job>& jobs, cuda::copy_stream& queue) {
        const cudaStream_t stream = queue.stream();
        memory_->used_in(stream);
        together_.clear();
        alone_.clear();
        next_lane_ = 0;
        for (jpeg_job& j : jobs) sort(j);
        if (!together_.empty() && !decode_together(stream))
            alone_.insert(alone_.end(), together_.begin(), together_.end());
        for (jpeg_job* j : alone_) decode_alone(*j, stream);
    }

private:
    // Buffers of a file on its way, of which some are at once.
    struct lane {
        owned<nvjpegBufferPinned_t> pinned{nvjpegBufferPinnedDestroy};
        owned<nvjpegBufferDevice_t> device{nvjpegBufferDeviceDestroy};
        owned<nvjpegJpegStream_t> file{nvjpegJpegStreamDestroy};
        owned<nvjpegJpegState_t> state{nvjpegJpegStateDestroy};
        std::optional<cuda::event> done;
    };

    static place place_of(const jpeg_job& j) {
        place out{};
        out.channel[0] = j.pixels;
        out.pitch[0] = static_cast<std::size_t>(j.width) * 3;
        return out;
    }

    nvjpegStatus_t parse(const jpeg_job& j, nvjpegJpegStream_t into) const {
        return nvjpegJpegStreamParse(library_.get(), j.file.data(), j.file.size(), 0, 0, into);
    }

    // Who decodes a file, by its header alone. Nothing is written beyond the room that our own reading of the header
    // has made.
    void sort(jpeg_job& j) {
        const nvjpegJpegStream_t file = lanes_[0].file.get();
        if (lanes_[0].done) lanes_[0].done->finish();
        unsigned width = 0, height = 0;
        nvjpegStatus_t said = parse(j, file);
        if (said == NVJPEG_STATUS_SUCCESS) said = nvjpegJpegStreamGetFrameDimensions(file, &width, &height);
        if (said != NVJPEG_STATUS_SUCCESS) {
            if (!refuses(said)) check(said, "reading a header");
            j.refused = true;
            return;
        }
        j.refused = width != j.width || height != j.height;
        if (j.refused) return;
        const auto takes = [](nvjpegStatus_t answer, int no) {
            if (!refuses(answer)) check(answer, "asking about a file");
            return answer == NVJPEG_STATUS_SUCCESS && no == 0;
        };
        int no = 1;
        said = nvjpegDecodeBatchedSupportedEx(library_.get(), file, parameters_.get(), &no);
        if (takes(said, no)) return together_.push_back(&j);
        no = 1;
        said = nvjpegDecoderJpegSupported(single_.get(), file, parameters_.get(), &no);
        if (takes(said, no)) return alone_.push_back(&j);
        j.refused = true;
    }

    // False: one of the files is refused, and nothing says which.
    bool decode_together(cudaStream_t stream) {
        const int n = static_cast<int>(together_.size());
        if (n != batch_size_) {
            batch_size_ = 0;
            check(nvjpegDecodeBatchedInitialize(library_.get(), batch_.get(), n, 1, NVJPEG_OUTPUT_RGBI),
                  "preparing a batch of ", n);
            batch_size_ = n;
        }
        files_.clear(), lengths_.clear(), places_.clear();
        for (const jpeg_job* j : together_) {
            files_.push_back(j->file.data());
            lengths_.push_back(j->file.size());
            places_.push_back(place_of(*j));
        }
        if (engines_) cairn::check(cudaStreamSynchronize(stream), "waiting before engines write");
        const nvjpegStatus_t said =
            nvjpegDecodeBatched(library_.get(), batch_.get(), files_.data(), lengths_.data(), places_.data(), stream);
        if (refuses(said)) {
            batch_size_ = 0;
            return false;
        }
        check(said, "decoding ", n, " files");
        return true;
    }

    void decode_alone(jpeg_job& j, cudaStream_t stream) {
        lane& l = lanes_[next_lane_];
        next_lane_ = (next_lane_ + 1) % lanes_.size();
        if (l.done) l.done->finish();
        place out = place_of(j);
        nvjpegStatus_t said = parse(j, l.file.get());
        if (said == NVJPEG_STATUS_SUCCESS)
            said = nvjpegDecodeJpegHost(library_.get(), single_.get(), l.state.get(), parameters_.get(), l.file.get());
        if (said == NVJPEG_STATUS_SUCCESS)
            said = nvjpegDecodeJpegTransferToDevice(library_.get(), single_.get(), l.state.get(), l.file.get(), stream);
        if (said == NVJPEG_STATUS_SUCCESS)
            said = nvjpegDecodeJpegDevice(library_.get(), single_.get(), l.state.get(), &out, stream);
        l.done.emplace(stream);
        if (said == NVJPEG_STATUS_SUCCESS) return;
        if (!refuses(said)) check(said, "decoding a file");
        j.refused = true;
    }

    // In the order in which they are made; they go the other way round.
    std::unique_ptr<memory> memory_;
    owned<nvjpegHandle_t> library_{nvjpegDestroy};
    owned<nvjpegJpegState_t> batch_{nvjpegJpegStateDestroy};
    owned<nvjpegJpegDecoder_t> single_{nvjpegDecoderDestroy};
    owned<nvjpegDecodeParams_t> parameters_{nvjpegDecodeParamsDestroy};
    std::array<lane, 4> lanes_;
    std::size_t next_lane_ = 0;
    bool engines_ = false;
    int batch_size_ = 0;
    std::vector<jpeg_job*> together_, alone_;
    std::vector<const unsigned char*> files_;
    std::vector<std::size_t> lengths_;
    std::vector<place> places_;
};

}  // namespace cairn::nvjpeg

#endif
