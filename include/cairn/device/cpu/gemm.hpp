#pragma once
// GEMM on the host: c = alpha op(a) op(b) + beta c, row-major. Three kernels: oneDNN's, the installed BLAS's, and the
// portable one of gemm_builtin.hpp. Which of them is used is measured at first use, for each class of sizes (powers of
// two of m, n and k, transposes, threads), and entered in the registry of choices as "gemm/…". No installed library is
// best on every processor: Debian's OpenBLAS 0.3.21, for one, takes the newest AMD cores for Haswell and gives half
// their peak. CAIRN_GEMM=builtin, onednn or cblas forces one. CAIRN_HAS_CBLAS: 1 where <cblas.h> is found, or as the
// build says.
//
// Bits: the same on every run with the same kernel and number of threads; the built-in kernel's on any number. oneDNN
// splits long sums over the threads where c is small, as weight gradients of small layers over many rows are.
//
// Operands of bfloat16 are summed in float, with results in bfloat16 or in float: by oneDNN, or widened, by copies of
// the operands in float and one of the kernels above; "widened" is also measured, and all there is on processors
// without instructions for bfloat16.

#include <cairn/core/compiled.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/device/cpu/blas_threads.hpp>
#include <cairn/device/cpu/gemm_builtin.hpp>
#include <cairn/device/cpu/onednn.hpp>
#include <cairn/device/cpu/onednn_matmul.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/gemm_size.hpp>

#include <bit>
#include <cstdlib>
#include <type_traits>

#ifndef CAIRN_HAS_CBLAS
#if __has_include(<cblas.h>)
#define CAIRN_HAS_CBLAS 1
#else
#define CAIRN_HAS_CBLAS 0
#endif
#endif

#if CAIRN_HAS_CBLAS
// Two functions of CBLAS under names of our own: <cblas.h> and the header of the same name inside xtensor-blas
// contradict each other, and device/cpu/linalg.hpp needs the latter. The numbers are those of the CBLAS standard.
extern "C" {
void cairn_cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc) __asm__("cblas_sgemm");
void cairn_cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double* a, int lda,
                       const double* b, int ldb, double beta, double* c, int ldc) __asm__("cblas_dgemm");
}
extern "C" char* openblas_get_config(void) __attribute__((weak));
#endif

namespace cairn {

namespace gemm_detail {

#if CAIRN_HAS_CBLAS
/// "OpenBLAS 0.3.21 …", or "CBLAS" where the installed one does not say.
inline std::string blas_version() {
    std::string text = openblas_get_config ? openblas_get_config() : "CBLAS";
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

template <class T>
void cblas(const gemm_size& s, T alpha, const T* a, const T* b, T beta, T* c) {
    match_blas_threads();
    constexpr int row_major = 101;
    const auto op = [](bool trans) { return trans ? 112 : 111; };  // CblasTrans, CblasNoTrans
    const auto i = [](index_t v) { return static_cast<int>(v); };
    const auto call = [&](auto f) {
        f(row_major, op(s.trans_a), op(s.trans_b), i(s.m), i(s.n), i(s.k), alpha, a, i(s.lda), b, i(s.ldb), beta, c,
          i(s.ldc));
    };
    if constexpr (std::is_same_v<T, float>)
        call(cairn_cblas_sgemm);
    else
        call(cairn_cblas_dgemm);
}
#endif

enum kernel : std::uint8_t { use_onednn, use_builtin, use_cblas, use_widened };
inline constexpr const char* kernel_names[] = {"onednn", "builtin", "cblas", "widened"};

template <class T, class S, class R>
void product(bool threaded, const gemm_size& s, S alpha, const T* a, const T* b, S beta, R* c);

/// alpha op(a) op(b) + beta c by copies in float.
template <class R>
void run_widened(bool threaded, const gemm_size& s, float alpha, const bfloat16* a, const bfloat16* b, float beta,
                 R* c) {
    gemm_size dense = s;
    const index_t rows_a = s.trans_a ? s.k : s.m, rows_b = s.trans_b ? s.n : s.k;
    dense.lda = s.trans_a ? s.m : s.k;
    dense.ldb = s.trans_b ? s.k : s.n;
    const tensor<float> wide_a = widened(threaded, rows_a, dense.lda, a, s.lda),
                        wide_b = widened(threaded, rows_b, dense.ldb, b, s.ldb);
    if constexpr (std::is_same_v<R, float>) {
        product(threaded, dense, alpha, wide_a.data(), wide_b.data(), beta, c);
    } else {
        dense.ldc = s.n;
        tensor<float> sums =
            beta == 0 ? tensor<float>({s.m, s.n}, memory_category::workspace) : widened(threaded, s.m, s.n, c, s.ldc);
        product(threaded, dense, alpha, wide_a.data(), wide_b.data(), beta, sums.data());
        narrow(threaded, s.m, s.n, sums.data(), s.n, c, s.ldc);
    }
}

/// oneDNN's products of bfloat16 know neither a factor nor a share of c. A choice is one for a class of sizes, of which
/// oneDNN may lack some.
template <class R>
void run(kernel which, bool threaded, const gemm_size& s, float alpha, const bfloat16* a, const bfloat16* b, float beta,
         R* c) {
    if (which == use_onednn && alpha == 1 && (beta == 0 || beta == 1) &&
        onednn::matmul(s, a, b, nullptr, beta == 1, c, threaded))
        return;
    run_widened(threaded, s, alpha, a, b, beta, c);
}

template <class T>
void run(kernel which, bool threaded, const gemm_size& s, T alpha, const T* a, const T* b, T beta, T* c) {
    if (on_phantom_rank() && which != use_builtin) return;
    if constexpr (std::is_same_v<T, float>)
        if (which == use_onednn)
            return onednn::sgemm(s.trans_a, s.trans_b, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
#if CAIRN_HAS_CBLAS
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
        if (which == use_cblas) return cblas(s, alpha, a, b, beta, c);
#endif
    builtin::gemm(threaded, s.trans_a, s.trans_b, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
}

/// Whether oneDNN leaves short sums to one thread each: without AVX-512 it splits those too. Where it does, for dense
/// operands: of float below k = 256, of bfloat16 below some thousands (2 to 16 threads, oneDNN 2.6); see the head.
inline bool onednn_keeps_short_sums() {
#if defined(__x86_64__)
    static const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
    return avx512;
#else
    return false;
#endif
}

/// The kernels that can be used; BLAS has threads of its own and so stays out of parallel regions.
template <class T, class R>
std::vector<kernel> candidates(bool threaded, const gemm_size& s) {
    std::vector<kernel> list;
    if constexpr (std::is_same_v<T, bfloat16>) {
        if (onednn_keeps_short_sums() && onednn::matmul_applies<R>(s, threaded)) list.push_back(use_onednn);
        list.push_back(use_widened);
        return list;
    }
    if (std::is_same_v<T, float> && onednn::available && onednn_keeps_short_sums()) list.push_back(use_onednn);
    list.push_back(use_builtin);
    if (CAIRN_HAS_CBLAS && threaded && (std::is_same_v<T, float> || std::is_same_v<T, double>))
        list.push_back(use_cblas);
    return list;
}

inline unsigned size_class(index_t v) { return static_cast<unsigned>(std::bit_width(static_cast<std::size_t>(v - 1))); }

/// The kernel in use for this size. Measured, if it is not known yet, on the operands given; c is then overwritten.
/// Null ones are replaced by zeros: time does not depend on values.
template <class T, class R = T>
kernel choose(bool threaded, const gemm_size& s, const T* a, const T* b, std::type_identity_t<R>* c) {
    static const bool forced = [] {
        if (const char* name = std::getenv("CAIRN_GEMM")) autotune_cache::global().force("gemm", name);
        return true;
    }();
    (void)forced;
    // This thread's answers so far, by size class.
    struct answer {
        std::uint64_t code = 0, epoch = 0;
        kernel which{};
    };
    thread_local answer answers[256];
    // For a parallel region the caller measures before it, with one thread as there.
    const int n = threaded ? threads() : 1;
    const unsigned cm = size_class(s.m), cn = size_class(s.n), ck = size_class(s.k);
    const std::uint64_t code = std::uint64_t{cm} | std::uint64_t{cn} << 8 | std::uint64_t{ck} << 16 |
                               std::uint64_t{s.trans_a} << 24 | std::uint64_t{s.trans_b} << 25 |
                               std::uint64_t{threaded} << 26 | std::uint64_t{sizeof(T) == 8} << 27 |
                               static_cast<std::uint64_t>(n) << 32;
    answer& known = answers[code * 0x9E3779B97F4A7C15u >> 56];
    autotune_cache& registry = autotune_cache::global();
    if (known.code == code && known.epoch == registry.epoch()) return known.which;

    const std::string key = concat("gemm/", format_name<T>, std::is_same_v<T, R> ? " " : "-f32 ", s.trans_a ? 'T' : 'N',
                                   s.trans_b ? 'T' : 'N', " m2^", cm, " n2^", cn, " k2^", ck, " threads ", n,
                                   threaded ? "" : " in a region");
    const threads_for_now as_there(n);
    const std::vector<kernel> list = candidates<T, R>(threaded, s);
    std::vector<const char*> names;
    for (kernel k : list) names.push_back(kernel_names[k]);
    const std::uint64_t epoch = registry.epoch();
    const std::size_t choice = registry.get_or_measure(key, names, [&] {
        const auto stand_in = []<class Any>(const Any* given, index_t rows, index_t ld) {
            return given ? tensor<Any>{}
                         : tensor<Any>::zeros({std::max<index_t>(rows * ld, 1)}, memory_category::workspace);
        };
        struct operands {
            tensor<T> a, b;
            tensor<R> c;
        };
        const auto own =
            std::make_shared<operands>(operands{stand_in(a, s.trans_a ? s.k : s.m, s.lda),
                                                stand_in(b, s.trans_b ? s.n : s.k, s.ldb), stand_in(c, s.m, s.ldc)});
        return [own, list, s, threaded, a, b, c](std::size_t i) {
            using S = simd::arithmetic<T>;
            run(list[i], threaded, s, S{1}, a ? a : own->a.data(), b ? b : own->b.data(), S{}, c ? c : own->c.data());
        };
    });
    known = {code, epoch, list[choice]};
    return list[choice];
}

/// Product without the count of work; `threaded` is false when the caller is in a parallel region.
template <class T, class S, class R>
void product(bool threaded, const gemm_size& s, S alpha, const T* a, const T* b, S beta, R* c) {
    if (s.m == 0 || s.n == 0 || (s.k == 0 && on_phantom_rank())) return;
    if (s.k == 0) {
        for (index_t i = 0; i < s.m; ++i)
            for (index_t j = 0; j < s.n; ++j) {
                R& v = c[i * s.ldc + j];
                v = beta == S{} ? R{} : static_cast<R>(beta * v);
            }
        return;
    }
    if constexpr (std::is_floating_point_v<S>)
        run(choose<T, R>(threaded, s, a, b, beta == S{} ? c : nullptr), threaded, s, alpha, a, b, beta, c);
    else
        builtin::gemm(threaded, s.trans_a, s.trans_b, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
}

/// c = alpha op(a) op(b) + bias (n numbers, or null) in one pass, if a kernel that does so is the one in use.
inline bool product_with_bias(const gemm_size& s, float alpha, const bfloat16* a, const bfloat16* b,
                              const bfloat16* bias, bfloat16* c) {
    return alpha == 1 && s.m > 0 && s.n > 0 && s.k > 0 && choose<bfloat16>(true, s, a, b, c) == use_onednn &&
           onednn::matmul(s, a, b, bias, false, c, true);
}

#define CAIRN_COMPILED_PRODUCT(part, T)                                                               \
    CAIRN_COMPILED_ONCE(part, kernel choose<T, T>(bool, const gemm_size&, const T*, const T*, T*))    \
    CAIRN_COMPILED_ONCE(part, void run(kernel, bool, const gemm_size&, T, const T*, const T*, T, T*)) \
    CAIRN_COMPILED_ONCE(part, void product(bool, const gemm_size&, T, const T*, const T*, T, T*))
CAIRN_COMPILED_PRODUCT(layers_float, float)
CAIRN_COMPILED_PRODUCT(layers_double, double)

/// The announcement of `batch` products; c is not read where it is `fresh`.
template <class T, class R>
kernel_call call_of(const gemm_size& s, index_t batch, bool fresh) {
    const double count = static_cast<double>(batch), mn = static_cast<double>(s.m) * static_cast<double>(s.n);
    return kernel_call("gemm", format_name<T>, count * 2 * mn * static_cast<double>(s.k),
                       count * (sizeof(T) * static_cast<double>((s.m + s.n) * s.k) + sizeof(R) * mn * (fresh ? 1 : 2)),
                       {s.m, s.n, s.k, s.trans_a, s.trans_b, batch});
}

}  // namespace gemm_detail

/// c (m × n) = alpha op(a) op(b) + beta c, all row-major; op(a) is m × k, op(b) k × n, op transposes where asked. With
/// beta 0, c is not read. Sizes may be 0. Throws on a negative size or a leading dimension shorter than a row.
/// Operands of T are summed in S, which is T, but float for bfloat16; c is of T or S.
template <class T, class S, class R>
void gemm(cpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, S alpha, const T* a, index_t lda,
          const T* b, index_t ldb, S beta, R* c, index_t ldc) {
    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s);
    const kernel_call call = gemm_detail::call_of<T, R>(s, 1, beta == S{});
    gemm_detail::product(true, s, alpha, a, b, beta, c);
}

/// `batch` products of equal size; operand i starts stride_a · i (…) elements after the first. Eight or more are spread
/// over the threads whole, so that the result does not depend on the number of threads.
template <class T, class S, class R>
void gemm_batched(cpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, S alpha, const T* a, index_t lda,
                  index_t stride_a, const T* b, index_t ldb, index_t stride_b, S beta, R* c, index_t ldc,
                  index_t stride_c, index_t batch) {
    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s, batch);
    const kernel_call call = gemm_detail::call_of<T, R>(s, batch, beta == S{});
    const bool across = batch >= 8;
    const auto one = [&](index_t i) {
        gemm_detail::product(!across, s, alpha, a + i * stride_a, b + i * stride_b, beta, c + i * stride_c);
    };
    if (across) {
        if (m > 0 && n > 0 && k > 0)
            gemm_detail::choose<T, R>(false, s, a, b,
                                      beta == S{} ? c : nullptr);  // measured here, not by all threads at once
        if (on_phantom_rank()) one(0);                             // takes the workspace of one
        parallel_for(batch, 1, [&](index_t begin, index_t end) {
            for (index_t i = begin; i < end; ++i) one(i);
        });
    } else {
        for (index_t i = 0; i < batch; ++i) one(i);
    }
}

}  // namespace cairn
