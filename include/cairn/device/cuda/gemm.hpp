#pragma once
// Matrix products on the GPU through cuBLASLt: float (exact, or TF32 where asked), double, bfloat16 and float16 with float accumulation. Row-major
// operands are the transposes of cuBLAS's column-major ones: C = A B is Cᵀ = Bᵀ Aᵀ, so a and b change places. The algorithm of each shape is
// cuBLASLt's first suggestion, kept. The one place that includes cuBLAS.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/work.hpp>
#include <cairn/device/cuda/reduce.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>

namespace cairn {

/// How float products are formed: `exact` in fp32, or with operands rounded to TF32's 10 fraction bits on the tensor cores. One for the process.
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

/// The largest power of two, up to what every block of the pool is a multiple of, that all addresses are multiples of. Not more: the same
/// product in another block must take the same algorithm, or ranks and repeated runs would differ in their last bits.
inline std::uint32_t common_alignment(const void* a, const void* b, const void* c) {
    const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                      reinterpret_cast<std::uintptr_t>(c) | std::uintptr_t{memory_pool::alignment};
    return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// Products with everything that cuBLASLt wants described, by shape.
class lt_products {
public:
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

    /// Of the calling thread: one handle a stream.
    static lt_products& mine() {
        thread_local lt_products all;
        return all;
    }

    struct product_shape {
        bool trans_a, trans_b;
        index m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
        cudaDataType_t type, c_type;
        bool tf32, reads_c;
        std::uint32_t alignment;  // bytes that the addresses of all operands are multiples of
        auto operator<=>(const product_shape&) const = default;
    };

    template <class S>
    void run(const product_shape& s, S alpha, const void* a, const void* b, S beta, void* c) {
        const plan& p = plan_of(s);
        if (!workspace_) workspace_.emplace(workspace_bytes);
        check(cublasLtMatmul(handle_, p.operation, &alpha, b, p.b, a, p.a, &beta, c, p.c, c, p.c, &p.algorithm,
                             workspace_->data(), workspace_bytes, cuda::stream()),
              "product of ", s.m, " x ", s.n, " x ", s.k);
    }

private:
    struct plan {
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
    };

    lt_products() { check(cublasLtCreate(&handle_), "starting"); }

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
        const cublasOperation_t first = s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                second = s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
        check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
              "transposing");
        check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
              "transposing");
        // Column-major: rows and columns as they lie in memory, a row-major (r, c) is (c, r).
        p.b = layout(s.type, s.trans_b ? s.k : s.n, s.trans_b ? s.n : s.k, s.ldb, s.batch, s.stride_b);
        p.a = layout(s.type, s.trans_a ? s.m : s.k, s.trans_a ? s.k : s.m, s.lda, s.batch, s.stride_a);
        p.c = layout(s.c_type, s.n, s.m, s.ldc, s.batch, s.stride_c);
        cublasLtMatmulPreference_t preference = nullptr;
        check(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
        check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &workspace_bytes, sizeof workspace_bytes),
              "asking for an algorithm");
        for (const auto which :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
            check(cublasLtMatmulPreferenceSetAttribute(preference, which, &s.alignment, sizeof s.alignment),
                  "asking for an algorithm");
        if (s.type == CUDA_R_16F) {  // parts of a sum are added in float, or not at all: halves would overflow
            const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
            check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                       sizeof schemes),
                  "asking for an algorithm");
        }
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        check(cublasLtMatmulAlgoGetHeuristic(handle_, p.operation, p.b, p.a, p.c, p.c, preference, 1, &found, &count),
              "looking for an algorithm for ", s.m, " x ", s.n, " x ", s.k);
        cublasLtMatmulPreferenceDestroy(preference);
        require(count > 0, "cuBLAS: no algorithm for a product of ", s.m, " x ", s.n, " x ", s.k);
        p.algorithm = found.algo;
        return plans_.emplace(s, p).first->second;
    }

    static cublasLtMatrixLayout_t layout(cudaDataType_t type, index rows, index columns, index ld, index batch,
                                         index stride) {
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

}  // namespace detail

/// `batch` products of equal size: c (m × n) = alpha op(a) op(b) + beta c, all row-major; operand i starts stride · i elements after the first.
/// T is float, double, bfloat16 or float16; alpha and beta are of the type of the sums, float for the short ones. R is T or that type. With
/// beta 0, c is not read.
template <class T, class S, class R>
void gemm_batched(cuda, bool trans_a, bool trans_b, index m, index n, index k, S alpha, const T* a, index lda,
                  index stride_a, const T* b, index ldb, index stride_b, S beta, R* c, index ldc, index stride_c,
                  index batch) {
    static_assert(std::is_same_v<S, grid::sum_type<T>>, "alpha and beta: double for double, else float");
    require(m >= 0 && n >= 0 && k >= 0 && batch >= 0, "gemm of ", m, " x ", n, " x ", k, ", batch of ", batch,
            ": negative size");
    require(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldc >= n, "gemm of ", m, " x ", n, " x ", k,
            ": a leading dimension is shorter than a row");
    const double mn = static_cast<double>(m) * static_cast<double>(n);
    work::count(static_cast<double>(batch) * 2 * mn * static_cast<double>(k),
                static_cast<double>(batch) * (static_cast<double>(sizeof(T)) * static_cast<double>((m + n) * k) +
                                              static_cast<double>(sizeof(R)) * mn * (beta == S{} ? 1 : 2)));
    if (m == 0 || n == 0 || batch == 0) return;
    if (k == 0) {  // cuBLAS wants something to multiply
        require(batch == 1 && ldc == n, "gemm: k of 0 with gaps in c");
        if (beta == S{})
            cuda::set_bytes(c, 0, m * n * index{sizeof(R)});
        else
            require(beta == S{1}, "gemm: k of 0 with beta ", beta);
        return;
    }
    const bool tf32 = std::is_same_v<T, float> && gpu_float_products() == float_products::tf32;
    detail::lt_products::mine().run(
        {trans_a, trans_b, m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c, detail::cuda_type<T>(),
         detail::cuda_type<R>(), tf32, beta != S{}, detail::common_alignment(a, b, c)},
        alpha, a, b, beta, c);
}

/// One product; sizes may be 0.
template <class T, class S, class R>
void gemm(cuda d, bool trans_a, bool trans_b, index m, index n, index k, S alpha, const T* a, index lda, const T* b,
          index ldb, S beta, R* c, index ldc) {
    gemm_batched(d, trans_a, trans_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

/// c += weight · rowsᵀ rows: rows (count, stride ≥ width), c (width, width) symmetric with rows of ldc numbers.
/// Sums of rows of bfloat16 and float16 are float, in which their products are exact.
template <class T>
void add_symmetric_product(cuda d, index count, index width, grid::sum_type<T> weight, const T* rows, index stride,
                           grid::sum_type<T>* c, index ldc) {
    gemm(d, true, false, width, width, count, weight, rows, stride, rows, stride, grid::sum_type<T>{1}, c, ldc);
}

}  // namespace cairn
