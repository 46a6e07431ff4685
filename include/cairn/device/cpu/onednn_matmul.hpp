#pragma once
// Products of bfloat16 matrices by oneDNN, summed in float; the result is rounded once, or stays in float.
// Primitives are kept, by size and number of threads. Bits: the same on every run with the same number of threads.

#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/onednn.hpp>
#include <cairn/device/gemm_size.hpp>

#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace cairn::onednn {

#if CAIRN_HAS_ONEDNN

namespace detail {

struct matmul {
    layout a, b, bias, c;
    operation run;

    matmul(const gemm_size& s, bool biased, bool add, dnnl_data_type_t result) {
        const auto matrix = [](dnnl_data_type_t type, index_t rows, index_t columns, bool transposed, index_t ld) {
            const dnnl_dims_t extents = {rows, columns}, strides = {transposed ? 1 : ld, transposed ? ld : 1};
            return layout(type, 2, extents, strides);
        };
        a = matrix(dnnl_bf16, s.m, s.k, s.trans_a, s.lda);
        b = matrix(dnnl_bf16, s.k, s.n, s.trans_b, s.ldb);
        c = matrix(result, s.m, s.n, false, s.ldc);
        bias = matrix(dnnl_bf16, 1, s.n, false, s.n);
        const auto attr = attributes(add);
        const layout::pointer with = biased ? bias.get() : nullptr;
        const char* what = "describing a product";
#if DNNL_VERSION_MAJOR >= 3
        run = operation(make<dnnl_primitive_desc_t>(what, dnnl_matmul_primitive_desc_create, engine(), a.get(), b.get(),
                                                    with, c.get(), attr.get())
                            .get());
#else
        dnnl_matmul_desc_t op;
        check(dnnl_matmul_desc_init(&op, a.get(), b.get(), with, c.get()), what);
        run = operation(make<dnnl_primitive_desc_t>(what, dnnl_primitive_desc_create, &op, attr.get(), engine(),
                                                    static_cast<const_dnnl_primitive_desc_t>(nullptr))
                            .get());
#endif
    }
};

/// The kept primitive; null where oneDNN has none, or only its reference loops. `threaded`: not in a parallel region,
/// in which oneDNN makes a primitive for one thread.
inline std::shared_ptr<const matmul> kept_matmul(const gemm_size& s, bool biased, bool add, dnnl_data_type_t result,
                                                 bool threaded) {
    constexpr std::size_t most_kept = 4096;  // sizes of a training are few; a caller with ever new ones starts again
    static std::mutex mutex;
    static std::map<std::array<index_t, 8>, std::shared_ptr<const matmul>> kept;
    const index_t flags = s.trans_a + 2 * s.trans_b + 4 * biased + 8 * add + 16 * (result == dnnl_bf16) + 32 * threaded;
    const std::array<index_t, 8> key{s.m, s.n, s.k, s.lda, s.ldb, s.ldc, flags, threads()};
    const std::scoped_lock lock(mutex);
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
    std::shared_ptr<const matmul> made;
    try {
        made = std::make_shared<const matmul>(s, biased, add, result);
        if (made->run.kernel.starts_with("ref")) made = nullptr;
    } catch (const error&) {  // not implemented
    }
    if (kept.size() >= most_kept) kept.clear();
    return kept.emplace(key, made).first->second;
}

}  // namespace detail

/// Whether oneDNN has a product of bfloat16 of this size with a result of R.
template <class R>
bool matmul_applies(const gemm_size& s, bool threaded) {
    return detail::kept_matmul(s, false, false, detail::type_of<R>, threaded) != nullptr;
}

/// c = op(a) op(b) + bias, or added to c; bias (n) may be null. Returns whether it could: false, and nothing is done,
/// where oneDNN has no such kernel.
template <class R>
bool matmul(const gemm_size& s, const bfloat16* a, const bfloat16* b, const bfloat16* bias, bool add, R* c,
            bool threaded) {
    const auto product = detail::kept_matmul(s, bias != nullptr, add, detail::type_of<R>, threaded);
    if (!product) return false;
    product->run.run({{DNNL_ARG_SRC, product->a, a},
                      {DNNL_ARG_WEIGHTS, product->b, b},
                      {DNNL_ARG_BIAS, product->bias, bias},
                      {DNNL_ARG_DST, product->c, c}});
    return true;
}

#else

template <class R>
bool matmul_applies(const gemm_size&, bool) {
    return false;
}
template <class R>
bool matmul(const gemm_size&, const bfloat16*, const bfloat16*, const bfloat16*, bool, R*, bool) {
    return false;
}

#endif

}  // namespace cairn::onednn
