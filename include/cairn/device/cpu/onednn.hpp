#pragma once
// oneDNN, versions 2 and 3: the one file that includes it. Handles, layouts, primitives, GEMM of floats;
// onednn_matmul.hpp has the products of bfloat16, onednn_conv.hpp the convolutions.
// CAIRN_HAS_ONEDNN: 1 where the header is found, or as the build says. Without it `available` is false, and calls
// throw.
// It is oneDNN's C interface that is used: the C++ one costs every user's file a second and a half of compilation.
//
// Scratch memory of a primitive comes from the pool and goes back after the call, so that concurrent calls of one
// primitive are safe.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/tensor.hpp>

#include <memory>
#include <string>
#include <type_traits>

#ifndef CAIRN_HAS_ONEDNN
#if __has_include(<oneapi/dnnl/dnnl.h>)
#define CAIRN_HAS_ONEDNN 1
#else
#define CAIRN_HAS_ONEDNN 0
#endif
#endif

#if CAIRN_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace cairn {

namespace onednn {

#if CAIRN_HAS_ONEDNN

inline constexpr bool available = true;

/// "oneDNN 2.6.3"
inline std::string version() {
    const dnnl_version_t* v = dnnl_version();
    return concat("oneDNN ", v->major, '.', v->minor, '.', v->patch);
}

namespace detail {

inline void check(dnnl_status_t status, const char* what) {
    if (status != dnnl_success) [[unlikely]]
        fail("oneDNN: ", what, " failed with status ", static_cast<int>(status));
}

/// A handle that is destroyed with its owner.
struct destroy {
    void operator()(dnnl_primitive_t p) const { dnnl_primitive_destroy(p); }
    void operator()(dnnl_primitive_desc_t p) const { dnnl_primitive_desc_destroy(p); }
    void operator()(dnnl_primitive_attr_t p) const { dnnl_primitive_attr_destroy(p); }
    void operator()(dnnl_post_ops_t p) const { dnnl_post_ops_destroy(p); }
    void operator()(dnnl_stream_t p) const { dnnl_stream_destroy(p); }
    void operator()(dnnl_memory_t p) const { dnnl_memory_destroy(p); }
#if DNNL_VERSION_MAJOR >= 3
    void operator()(dnnl_memory_desc_t p) const { dnnl_memory_desc_destroy(p); }
#endif
};
template <class Handle>
using owned = std::unique_ptr<std::remove_pointer_t<Handle>, destroy>;

/// The handle that `create(address, arguments…)` makes.
template <class Handle, class Create, class... Arguments>
owned<Handle> make(const char* what, Create create, Arguments... arguments) {
    Handle handle = nullptr;
    check(create(&handle, arguments...), what);
    return owned<Handle>(handle);
}

inline dnnl_engine_t engine() {
    static const dnnl_engine_t e = [] {
        dnnl_engine_t made = nullptr;
        check(dnnl_engine_create(&made, dnnl_cpu, 0), "creating the engine");
        return made;  // for the life of the process
    }();
    return e;
}

inline dnnl_stream_t stream() {
    thread_local const auto s = make<dnnl_stream_t>("creating a stream", dnnl_stream_create, engine(),
                                                    static_cast<unsigned>(dnnl_stream_default_flags));
    return s.get();
}

inline owned<dnnl_primitive_attr_t> attributes(bool add) {
    auto a = make<dnnl_primitive_attr_t>("creating attributes", dnnl_primitive_attr_create);
    check(dnnl_primitive_attr_set_scratchpad_mode(a.get(), dnnl_scratchpad_mode_user), "setting the scratchpad mode");
    if (!add) return a;
    const auto sum = make<dnnl_post_ops_t>("creating post-ops", dnnl_post_ops_create);
#if DNNL_VERSION_MAJOR >= 3
    check(dnnl_post_ops_append_sum(sum.get(), 1.0f, 0, dnnl_data_type_undef), "appending a sum");
#else
    check(dnnl_post_ops_append_sum(sum.get(), 1.0f), "appending a sum");
#endif
    check(dnnl_primitive_attr_set_post_ops(a.get(), sum.get()), "setting post-ops");
    return a;
}

template <class T>
inline constexpr dnnl_data_type_t type_of = std::is_same_v<T, bfloat16> ? dnnl_bf16 : dnnl_f32;

/// Type, shape and layout of an array. A value in version 2, a handle in version 3.
class layout {
public:
    layout() = default;
#if DNNL_VERSION_MAJOR >= 3
    using pointer = const_dnnl_memory_desc_t;
    layout(dnnl_data_type_t type, int rank, const dnnl_dims_t extents, const dnnl_dims_t strides)
        : desc_(make<dnnl_memory_desc_t>("describing memory", dnnl_memory_desc_create_with_strides, rank, extents, type,
                                         strides)) {}
    layout(dnnl_data_type_t type, int rank, const dnnl_dims_t extents)
        : desc_(make<dnnl_memory_desc_t>("describing memory", dnnl_memory_desc_create_with_tag, rank, extents, type,
                                         dnnl_format_tag_any)) {}
    explicit layout(pointer p) : desc_(make<dnnl_memory_desc_t>("copying a description", dnnl_memory_desc_clone, p)) {}
    pointer get() const { return desc_.get(); }

private:
    owned<dnnl_memory_desc_t> desc_;
#else
    using pointer = const dnnl_memory_desc_t*;
    layout(dnnl_data_type_t type, int rank, const dnnl_dims_t extents, const dnnl_dims_t strides) {
        check(dnnl_memory_desc_init_by_strides(&desc_, rank, extents, type, strides), "describing memory");
    }
    layout(dnnl_data_type_t type, int rank, const dnnl_dims_t extents) {
        check(dnnl_memory_desc_init_by_tag(&desc_, rank, extents, type, dnnl_format_tag_any), "describing memory");
    }
    explicit layout(pointer p) : desc_(*p) {}
    pointer get() const { return &desc_; }

private:
    dnnl_memory_desc_t desc_{};
#endif

public:
    index_t bytes() const { return static_cast<index_t>(dnnl_memory_desc_get_size(get())); }
};

/// A primitive, and the scratch memory that it wants.
struct operation {
    owned<dnnl_primitive_t> primitive;
    layout scratch;
    std::string kernel;  // for example "brg:avx512_core_bf16"

    operation() = default;
    explicit operation(dnnl_primitive_desc_t desc)
        : primitive(make<dnnl_primitive_t>("creating a primitive", dnnl_primitive_create, desc)),
          scratch(dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)) {
        const char* name = nullptr;
        check(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name), "asking for a kernel's name");
        kernel = name;
    }

    struct argument {
        int name;
        const layout& where;
        const void* data;
    };

    /// Runs it to its end.
    void run(std::initializer_list<argument> arguments) const {
        const tensor<char> workspace({scratch.bytes()}, memory_category::workspace);
        if (on_phantom_rank()) return;
        dnnl_exec_arg_t list[6];
        owned<dnnl_memory_t> memory[6];
        int n = 0;
        const auto add = [&](int name, const layout& where, const void* data) {
            memory[n] = make<dnnl_memory_t>("wrapping memory", dnnl_memory_create, where.get(), engine(),
                                            const_cast<void*>(data));
            list[n] = {name, memory[n].get()};
            ++n;
        };
        for (const argument& a : arguments)
            if (a.data) add(a.name, a.where, a.data);
        if (workspace.size() > 0 && scratch.bytes() > 0) add(DNNL_ARG_SCRATCHPAD, scratch, workspace.data());
        check(dnnl_primitive_execute(primitive.get(), stream(), n, list), "running a primitive");
        check(dnnl_stream_wait(stream()), "waiting for a primitive");
    }
};

}  // namespace detail

/// c = alpha op(a) op(b) + beta c, all row-major; m × n results, k products each.
inline void sgemm(bool trans_a, bool trans_b, index_t m, index_t n, index_t k, float alpha, const float* a, index_t lda,
                  const float* b, index_t ldb, float beta, float* c, index_t ldc) {
    detail::check(dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                  "sgemm");
}

#else

inline constexpr bool available = false;
inline std::string version() { return "no oneDNN"; }

[[noreturn]] inline void missing() {
    fail("oneDNN: not built in (CAIRN_HAS_ONEDNN is 0); install libdnnl-dev or choose another kernel");
}

inline void sgemm(bool, bool, index_t, index_t, index_t, float, const float*, index_t, const float*, index_t, float,
                  float*, index_t) {
    missing();
}

#endif

}  // namespace onednn
}  // namespace cairn
