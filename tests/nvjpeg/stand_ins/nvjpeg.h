#pragma once
// What device/cuda/nvjpeg.hpp uses of nvJPEG, for machines without its header.

#include <cuda_runtime.h>

#include <cstddef>

enum nvjpegStatus_t {
    NVJPEG_STATUS_SUCCESS = 0,
    NVJPEG_STATUS_NOT_INITIALIZED,
    NVJPEG_STATUS_INVALID_PARAMETER,
    NVJPEG_STATUS_BAD_JPEG,
    NVJPEG_STATUS_JPEG_NOT_SUPPORTED,
    NVJPEG_STATUS_ALLOCATOR_FAILURE,
    NVJPEG_STATUS_EXECUTION_FAILED,
    NVJPEG_STATUS_ARCH_MISMATCH,
    NVJPEG_STATUS_INTERNAL_ERROR,
    NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED,
    NVJPEG_STATUS_INCOMPLETE_BITSTREAM
};
enum nvjpegBackend_t { NVJPEG_BACKEND_HYBRID = 1, NVJPEG_BACKEND_GPU_HYBRID, NVJPEG_BACKEND_HARDWARE };
enum nvjpegOutputFormat_t { NVJPEG_OUTPUT_RGBI = 5 };
enum { NVJPEG_MAX_COMPONENT = 4, NVJPEG_FLAGS_DEFAULT = 0 };

struct nvjpegImage_t {
    unsigned char* channel[NVJPEG_MAX_COMPONENT];
    std::size_t pitch[NVJPEG_MAX_COMPONENT];
};
struct nvjpegDevAllocatorV2_t {
    int (*dev_malloc)(void*, void**, std::size_t, cudaStream_t);
    int (*dev_free)(void*, void*, std::size_t, cudaStream_t);
    void* dev_ctx;
};
struct nvjpegPinnedAllocatorV2_t {
    int (*pinned_malloc)(void*, void**, std::size_t, cudaStream_t);
    int (*pinned_free)(void*, void*, std::size_t, cudaStream_t);
    void* pinned_ctx;
};
using nvjpegHandle_t = struct nvjpegHandle*;
using nvjpegJpegState_t = struct nvjpegJpegState*;
using nvjpegBufferPinned_t = struct nvjpegBufferPinned*;
using nvjpegBufferDevice_t = struct nvjpegBufferDevice*;
using nvjpegJpegStream_t = struct nvjpegJpegStream*;
using nvjpegDecodeParams_t = struct nvjpegDecodeParams*;
using nvjpegJpegDecoder_t = struct nvjpegJpegDecoder*;

extern "C" {
nvjpegStatus_t nvjpegCreateExV2(nvjpegBackend_t, nvjpegDevAllocatorV2_t*, nvjpegPinnedAllocatorV2_t*, unsigned,
                                nvjpegHandle_t*);
nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t);
nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t, nvjpegJpegState_t*);
nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t);
nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t, nvjpegJpegState_t, int, int, nvjpegOutputFormat_t);
nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t, nvjpegJpegState_t, const unsigned char* const*, const std::size_t*,
                                   nvjpegImage_t*, cudaStream_t);
nvjpegStatus_t nvjpegDecodeBatchedSupportedEx(nvjpegHandle_t, nvjpegJpegStream_t, nvjpegDecodeParams_t, int*);
nvjpegStatus_t nvjpegDecoderCreate(nvjpegHandle_t, nvjpegBackend_t, nvjpegJpegDecoder_t*);
nvjpegStatus_t nvjpegDecoderDestroy(nvjpegJpegDecoder_t);
nvjpegStatus_t nvjpegDecoderJpegSupported(nvjpegJpegDecoder_t, nvjpegJpegStream_t, nvjpegDecodeParams_t, int*);
nvjpegStatus_t nvjpegDecoderStateCreate(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t*);
nvjpegStatus_t nvjpegDecodeParamsCreate(nvjpegHandle_t, nvjpegDecodeParams_t*);
nvjpegStatus_t nvjpegDecodeParamsDestroy(nvjpegDecodeParams_t);
nvjpegStatus_t nvjpegDecodeParamsSetOutputFormat(nvjpegDecodeParams_t, nvjpegOutputFormat_t);
nvjpegStatus_t nvjpegBufferPinnedCreateV2(nvjpegHandle_t, nvjpegPinnedAllocatorV2_t*, nvjpegBufferPinned_t*);
nvjpegStatus_t nvjpegBufferPinnedDestroy(nvjpegBufferPinned_t);
nvjpegStatus_t nvjpegBufferDeviceCreateV2(nvjpegHandle_t, nvjpegDevAllocatorV2_t*, nvjpegBufferDevice_t*);
nvjpegStatus_t nvjpegBufferDeviceDestroy(nvjpegBufferDevice_t);
nvjpegStatus_t nvjpegStateAttachPinnedBuffer(nvjpegJpegState_t, nvjpegBufferPinned_t);
nvjpegStatus_t nvjpegStateAttachDeviceBuffer(nvjpegJpegState_t, nvjpegBufferDevice_t);
nvjpegStatus_t nvjpegJpegStreamCreate(nvjpegHandle_t, nvjpegJpegStream_t*);
nvjpegStatus_t nvjpegJpegStreamDestroy(nvjpegJpegStream_t);
nvjpegStatus_t nvjpegJpegStreamParse(nvjpegHandle_t, const unsigned char*, std::size_t, int, int, nvjpegJpegStream_t);
nvjpegStatus_t nvjpegJpegStreamGetFrameDimensions(nvjpegJpegStream_t, unsigned*, unsigned*);
nvjpegStatus_t nvjpegDecodeJpegHost(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, nvjpegDecodeParams_t,
                                    nvjpegJpegStream_t);
nvjpegStatus_t nvjpegDecodeJpegTransferToDevice(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t,
                                                nvjpegJpegStream_t, cudaStream_t);
nvjpegStatus_t nvjpegDecodeJpegDevice(nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, nvjpegImage_t*,
                                      cudaStream_t);
}
