#pragma once
// The CUDA runtime and the functions of the driver that it does not have: the one place that includes them, and how
// their errors are told. Where there is no driver, no GPU, or one that this program has no code for, the first use says
// so.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <cuda.h>
#include <cuda_runtime.h>

namespace cairn {

/// Throws the CUDA runtime's error, with the action that failed.
template <class... What>
void check(cudaError_t status, const What&... what) {
    if (status == cudaSuccess) return;
    const char* hint = "";
    if (status == cudaErrorNoDevice) hint = "; there is no GPU that this process may use (CUDA_VISIBLE_DEVICES?)";
    if (status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary)
        hint = "; there is no NVIDIA driver, or it is older than this program's CUDA: nvidia-smi shows which";
    if (status == cudaErrorNoKernelImageForDevice)
        hint = "; the program has no code for this GPU: configure with -DCMAKE_CUDA_ARCHITECTURES for it";
    cudaGetLastError();  // so that the next call does not report it again
    fail("CUDA: ", what..., ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ')', hint);
}

namespace detail {

/// A function of the driver, which is not linked: a program that only may use a GPU starts without one.
template <class F>
F* driver_function(const char* name) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found), "looking for ", name);
    require(found == cudaDriverEntryPointSuccess && address, "CUDA: the driver has no ", name);
    return reinterpret_cast<F*>(address);
}

/// For calls whose answer is dealt with where it comes: the runtime keeps it as the thread's last error, also
/// cudaErrorNotReady, and the next query would take it for its own.
inline cudaError_t dealt_with(cudaError_t status) {
    if (status != cudaSuccess) cudaGetLastError();
    return status;
}

inline void check_driver(CUresult status, const char* what, index_t bytes) {
    require(status == CUDA_SUCCESS, "CUDA: ", what, " of ", bytes, " bytes failed, the driver says ",
            static_cast<int>(status));
}

}  // namespace detail

}  // namespace cairn
