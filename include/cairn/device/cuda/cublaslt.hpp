#pragma once
// Matrix products as cuBLASLt has them: everything that one wants described is kept by shape, with the algorithm that
// its heuristic suggests first. Row-major operands are the transposes of cuBLAS's column-major ones: C = A B is Cᵀ = Bᵀ
// Aᵀ, so a and b change places, a column of C is a row of cuBLAS's D, and its bias, one number a row of D, is one a
// column of C. The one place that includes cuBLAS.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cuda/runtime.hpp>
#include <cairn/device/gemm_size.hpp>

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>

namespace cairn {

/// How float products are formed: `exact` in fp32, or with operands rounded to TF32's 10 fraction bits on the tensor
/// cores. One for the process.
enum class float_products { exact, tf32 };

inline float_products& gpu_float_products() {
    static float_products chosen = float_products::exact;
    return chosen;
}

namespace detail {

template <class... What>
void check(cublasStatus_t status, const What&... what) {
    require(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: ", what..., ": ", cublasLtGetStatusString(status));
}

/// cuBLAS for what cuBLASLt has not: triangular solves (linalg.hpp).
inline cublasHandle_t triangular_solver() {
    thread_local const auto mine = cuda::library_handle<cublasHandle_t>(
        cublasCreate, cublasSetStream, [](cublasStatus_t s, const char* what) { check(s, what); });
    return mine;
}

template <class T>
constexpr cudaDataType_t cuda_type() {
    if constexpr (std::is_same_v<T, double>)
        return CUDA_R_64F;
    else if constexpr (std::is_same_v<T, float>)
        return CUDA_R_32F;
    else if constexpr (std::is_same_v<T, float16>)
        return CUDA_R_16F;
    else {
        static_assert(std::is_same_v<T, bfloat16>);
        return CUDA_R_16BF;
    }
}

/// The largest power of two, up to what every block of the pool is a multiple of, that all numbers are multiples of.
/// Not more: the same product in another block must take the same algorithm, or ranks and repeated runs would differ in
/// their last bits.
template <class... Number>
std::uint32_t common_power(Number... n) {
    const auto bits = (static_cast<std::uintptr_t>(n) | ... | std::uintptr_t{memory_pool::alignment});
    return static_cast<std::uint32_t>(bits & (~bits + 1));
}

template <class... Address>
std::uint32_t common_alignment(const Address*... a) {
    return common_power(reinterpret_cast<std::uintptr_t>(a)...);
}

/// The products of the calling thread, in its stream.
class lt_products {
public:
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

    static lt_products& mine() {
        thread_local lt_products all;
        return all;
    }

    struct product_shape {
        bool trans_a, trans_b;
        index_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
        cudaDataType_t type, c_type;
        bool tf32;
        std::uint32_t alignment;  // bytes that the addresses of all operands, of the whole batch, are multiples of
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        std::uint32_t vector_alignment = 0;  // of what the epilogue adds or leaves; 0: it needs none
        auto operator<=>(const product_shape&) const = default;
    };

    /// Launches d = alpha op(a) op(b) + beta c; rows of d and c are equally far apart. `vector`: the bias or its
    /// gradient, of the type of d. False, and nothing is launched, where cuBLASLt has no algorithm with this epilogue,
    /// or none that is known to be safe: of a vector that no packet fits, its heuristic has named kernels that read
    /// packets of 16 bytes (pytorch's #194497). Without an epilogue that is an error.
    template <class S>
    bool run(const product_shape& s, S alpha, const void* a, const void* b, S beta, const void* c, void* d,
             void* vector = nullptr) {
        if (vector && s.vector_alignment < 16) return false;
        const plan& p = plan_of(s);
        if (!p.possible) return false;
        if (vector) set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
        if (!workspace_) workspace_.emplace(workspace_bytes);
        check(cublasLtMatmul(handle_, p.operation, &alpha, b, p.b, a, p.a, &beta, c, p.c, d, p.c, &p.algorithm,
                             workspace_->data(), workspace_bytes, cuda::stream()),
              "product of ", s.m, " x ", s.n, " x ", s.k);
        return true;
    }

private:
    struct plan {
        bool possible = false;
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
    };

    lt_products() { check(cublasLtCreate(&handle_), "starting"); }

    template <class V>
    static void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, const V& value) {
        check(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value), "describing a product");
    }
    template <class V>
    static void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, const V& value) {
        check(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value), "asking for an algorithm");
    }

    const plan& plan_of(const product_shape& s) {
        const auto known = plans_.find(s);
        if (known != plans_.end()) return known->second;
        plan p;
        const bool is_double = s.type == CUDA_R_64F;
        const cublasComputeType_t compute = is_double ? CUBLAS_COMPUTE_64F
                                            : s.tf32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : CUBLAS_COMPUTE_32F;
        check(cublasLtMatmulDescCreate(&p.operation, compute, is_double ? CUDA_R_64F : CUDA_R_32F),
              "describing a product");
        set(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (s.epilogue != CUBLASLT_EPILOGUE_DEFAULT) set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, s.epilogue);
        if (s.vector_alignment >
            0)  // the heuristic reads off this address how far others are aligned, and nothing else
            set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                reinterpret_cast<void*>(std::uintptr_t{1 << 20} + s.vector_alignment));
        // Column-major: rows and columns as they lie in memory, a row-major (r, c) is (c, r).
        p.b = layout(s.type, s.trans_b ? s.k : s.n, s.trans_b ? s.n : s.k, s.ldb, s.batch, s.stride_b);
        p.a = layout(s.type, s.trans_a ? s.m : s.k, s.trans_a ? s.k : s.m, s.lda, s.batch, s.stride_a);
        p.c = layout(s.c_type, s.n, s.m, s.ldc, s.batch, s.stride_c);
        cublasLtMatmulPreference_t preference = nullptr;
        check(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
        set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
        if (s.c_type == CUDA_R_16BF ||
            s.c_type == CUDA_R_16F)  // parts of a sum are added in float, not in what c is stored in
            set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        for (const auto which :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
            set(preference, which, s.alignment);
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        const cublasStatus_t said =
            cublasLtMatmulAlgoGetHeuristic(handle_, p.operation, p.b, p.a, p.c, p.c, preference, 1, &found, &count);
        cublasLtMatmulPreferenceDestroy(preference);
        p.possible = said == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
        const bool no_epilogue = s.epilogue == CUBLASLT_EPILOGUE_DEFAULT,
                   may_refuse = said == CUBLAS_STATUS_NOT_SUPPORTED || said == CUBLAS_STATUS_INVALID_VALUE;
        if (no_epilogue || !may_refuse) check(said, "looking for an algorithm for ", s.m, " x ", s.n, " x ", s.k);
        require(p.possible || !no_epilogue, "cuBLAS: no algorithm for a product of ", s.m, " x ", s.n, " x ", s.k);
        p.algorithm = found.algo;
        return plans_.emplace(s, p).first->second;
    }

    static cublasLtMatrixLayout_t layout(cudaDataType_t type, index_t rows, index_t columns, index_t ld, index_t batch,
                                         index_t stride) {
        cublasLtMatrixLayout_t l = nullptr;
        check(cublasLtMatrixLayoutCreate(&l, type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), ld),
              "describing a matrix of ", rows, " x ", columns);
        if (batch > 1) {
            const auto count = static_cast<std::int32_t>(batch);
            const auto step = static_cast<std::int64_t>(stride);
            check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                  "batching");
            check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
                  "batching");
        }
        return l;
    }

    cublasLtHandle_t handle_ = nullptr;
    std::map<product_shape, plan> plans_;
    std::optional<gpu_workspace> workspace_;
};

/// A product of T into R and what is asked of cuBLASLt for it.
template <class T, class R>
lt_products::product_shape product_of(const gemm_size& s, const T* a, const T* b, const R* c) {
    const bool tf32 = std::is_same_v<T, float> && gpu_float_products() == float_products::tf32;
    return {s.trans_a,
            s.trans_b,
            s.m,
            s.n,
            s.k,
            s.lda,
            s.ldb,
            s.ldc,
            1,
            0,
            0,
            0,
            cuda_type<T>(),
            cuda_type<R>(),
            tf32,
            common_alignment(a, b, c)};
}

}  // namespace detail

}  // namespace cairn
