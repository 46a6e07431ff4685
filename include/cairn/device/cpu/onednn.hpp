#pragma once
// oneDNN, versions 2 and 3: the one file that includes it. GEMM and convolutions on channels-last activations.
// CAIRN_HAS_ONEDNN: 1 where the header is found, or as the build says. Without it `available` is false, and calls
// throw.
// It is oneDNN's C interface that is used: the C++ one costs every user's file a second and a half of compilation.
//
// Activations are used where they lie. Weights go to the layout that the primitive likes best and back, on each call:
// they change between calls, and forward and backward like different ones. Primitives are kept, by shape and thread
// count. Their scratch memory comes from the pool and goes back after the call, so that concurrent calls of one
// primitive are safe.
//
// Bits: the same on every run with the same number of threads. Weight gradients are summed in pieces that depend on it.

#include <cairn/core/error.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

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

/// "forward", "backward_input" or "backward_weight".
inline const char* name_of(conv_phase phase) {
    constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
    return names[static_cast<std::size_t>(phase)];
}

/// What a kept answer or primitive depends on. Compared and hashed byte by byte.
struct conv_call {
    conv_geometry g;
    index_t phase, bytes, variant, threads;
    bool operator==(const conv_call&) const = default;

    struct hash {
        std::size_t operator()(const conv_call& c) const {
            return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&c), sizeof c});
        }
    };
};
static_assert(std::has_unique_object_representations_v<conv_call>);

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

/// Shape and layout of an array of floats. A value in version 2, a handle in version 3.
class layout {
public:
    layout() = default;
#if DNNL_VERSION_MAJOR >= 3
    using pointer = const_dnnl_memory_desc_t;
    layout(int rank, const dnnl_dims_t extents, const dnnl_dims_t strides)
        : desc_(make<dnnl_memory_desc_t>("describing memory", dnnl_memory_desc_create_with_strides, rank, extents,
                                         dnnl_f32, strides)) {}
    layout(int rank, const dnnl_dims_t extents)
        : desc_(make<dnnl_memory_desc_t>("describing memory", dnnl_memory_desc_create_with_tag, rank, extents, dnnl_f32,
                                         dnnl_format_tag_any)) {}
    explicit layout(pointer p) : desc_(make<dnnl_memory_desc_t>("copying a description", dnnl_memory_desc_clone, p)) {}
    pointer get() const { return desc_.get(); }

private:
    owned<dnnl_memory_desc_t> desc_;
#else
    using pointer = const dnnl_memory_desc_t*;
    layout(int rank, const dnnl_dims_t extents, const dnnl_dims_t strides) {
        check(dnnl_memory_desc_init_by_strides(&desc_, rank, extents, dnnl_f32, strides), "describing memory");
    }
    layout(int rank, const dnnl_dims_t extents) {
        check(dnnl_memory_desc_init_by_tag(&desc_, rank, extents, dnnl_f32, dnnl_format_tag_any), "describing memory");
    }
    explicit layout(pointer p) : desc_(*p) {}
    pointer get() const { return &desc_; }

private:
    dnnl_memory_desc_t desc_{};
#endif

public:
    index_t bytes() const { return static_cast<index_t>(dnnl_memory_desc_get_size(get())); }
};

/// One convolution as oneDNN wants it; depth is left out of 1D and 2D convolutions.
struct problem {
    layout x, y, w, w_any, b;
    dnnl_dims_t stride, dilation, pad, pad_end;

    explicit problem(const conv_geometry& g) {
        const std::size_t first = g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 ? 1 : 0;
        const auto describe = [&](std::initializer_list<index_t> outer, std::initializer_list<index_t> outer_strides,
                                  const std::array<index_t, 3>& size, index_t inner, bool any) {
            dnnl_dims_t extents, strides;
            int rank = 0;
            for (auto s = outer_strides.begin(); index_t extent : outer) {
                extents[rank] = extent;
                strides[rank++] = *s++;
            }
            const index_t step[3] = {size[1] * size[2] * inner, size[2] * inner, inner};
            for (std::size_t axis = first; axis < 3; ++axis) {
                extents[rank] = size[axis];
                strides[rank++] = step[axis];
            }
            return any ? layout(rank, extents) : layout(rank, extents, strides);
        };
        x = describe({g.n, g.c_in}, {g.in_points() * g.c_in, 1}, g.in, g.c_in, false);
        y = describe({g.n, g.c_out}, {g.out_points() * g.c_out, 1}, g.out, g.c_out, false);
        const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, filter = g.kernel_points() * ci;
        for (const bool any : {false, true})
            (any ? w_any : w) = g.groups > 1 ? describe({g.groups, co, ci}, {co * filter, filter, 1}, g.kernel, ci, any)
                                             : describe({co, ci}, {filter, 1}, g.kernel, ci, any);
        const dnnl_dims_t channels = {g.c_out}, one = {1};
        b = layout(1, channels, one);
        for (std::size_t axis = first, i = 0; axis < 3; ++axis, ++i) {
            stride[i] = g.stride[axis];
            dilation[i] = g.dilation[axis] - 1;
            pad[i] = g.pad[axis];
            // What the last output reaches; negative where the input's end is not read at all.
            pad_end[i] = (g.out[axis] - 1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1 - g.in[axis] -
                         g.pad[axis];
        }
    }

    owned<dnnl_primitive_desc_t> describe(conv_phase phase, bool bias, dnnl_primitive_attr_t attr) const {
        const auto direct = dnnl_convolution_direct;
        const layout::pointer bias_layout = bias ? b.get() : nullptr;
        const char* what = "describing a convolution";
        if (phase != conv_phase::forward) {
            const auto hint = describe(conv_phase::forward, false, attr);
#if DNNL_VERSION_MAJOR >= 3
            if (phase == conv_phase::backward_input)
                return make<dnnl_primitive_desc_t>(what, dnnl_convolution_backward_data_primitive_desc_create, engine(),
                                                   direct, x.get(), w_any.get(), y.get(), stride, dilation, pad,
                                                   pad_end, hint.get(), attr);
            return make<dnnl_primitive_desc_t>(what, dnnl_convolution_backward_weights_primitive_desc_create, engine(),
                                               direct, x.get(), w_any.get(), bias_layout, y.get(), stride, dilation,
                                               pad, pad_end, hint.get(), attr);
        }
        return make<dnnl_primitive_desc_t>(what, dnnl_convolution_forward_primitive_desc_create, engine(),
                                           dnnl_forward_training, direct, x.get(), w_any.get(), bias_layout, y.get(),
                                           stride, dilation, pad, pad_end, attr);
#else
            dnnl_convolution_desc_t op;
            if (phase == conv_phase::backward_input)
                check(dnnl_dilated_convolution_backward_data_desc_init(&op, direct, x.get(), w_any.get(), y.get(),
                                                                       stride, dilation, pad, pad_end),
                      what);
            else
                check(dnnl_dilated_convolution_backward_weights_desc_init(
                          &op, direct, x.get(), w_any.get(), bias_layout, y.get(), stride, dilation, pad, pad_end),
                      what);
            return make<dnnl_primitive_desc_t>(what, dnnl_primitive_desc_create, &op, attr, engine(), hint.get());
        }
        dnnl_convolution_desc_t op;
        check(dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, direct, x.get(), w_any.get(),
                                                         bias_layout, y.get(), stride, dilation, pad, pad_end),
              what);
        return make<dnnl_primitive_desc_t>(what, dnnl_primitive_desc_create, &op, attr, engine(), nullptr);
#endif
    }
};

/// A primitive, and the scratch memory that it wants.
struct operation {
    owned<dnnl_primitive_t> primitive;
    layout scratch;

    operation() = default;
    explicit operation(dnnl_primitive_desc_t desc)
        : primitive(make<dnnl_primitive_t>("creating a primitive", dnnl_primitive_create, desc)),
          scratch(dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)) {}

    struct argument {
        int name;
        const layout& where;
        const void* data;
    };

    /// Runs it to its end.
    void run(std::initializer_list<argument> arguments) const {
        const tensor<char> workspace({scratch.bytes()}, memory_category::workspace);
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

/// A convolution ready to run, and the reorder of its weights.
struct convolution {
    problem p;
    operation run, reorder;
    layout w_inside;  // of the weights, as the primitive likes them
    bool reorders;    // whether that differs from ours
    std::string implementation;

    convolution(const conv_geometry& g, conv_phase phase, bool bias) : p(g) {
        const bool gradient = phase == conv_phase::backward_weight;
        const auto desc = p.describe(phase, bias, attributes(false).get());
        const char* name = nullptr;
        check(dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &name), "asking for a kernel's name");
        implementation = name;
        run = operation(desc.get());
        w_inside = layout(
            dnnl_primitive_desc_query_md(desc.get(), gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0));
        reorders =
            gradient || !dnnl_memory_desc_equal(w_inside.get(), p.w.get());  // gradients are added to what is there
        if (!reorders) return;
        const auto attr = attributes(gradient);
        const layout &from = gradient ? w_inside : p.w, &to = gradient ? p.w : w_inside;
        reorder = operation(make<dnnl_primitive_desc_t>("describing a reorder", dnnl_reorder_primitive_desc_create,
                                                        from.get(), engine(), to.get(), engine(), attr.get())
                                .get());
    }

    /// The weights as the primitive likes them; `room` keeps the copy.
    const void* inside(const float* w, tensor<char>& room) const {
        if (!reorders) return w;
        room = tensor<char>({w_inside.bytes()}, memory_category::workspace);
        reorder.run({{DNNL_ARG_FROM, p.w, w}, {DNNL_ARG_TO, w_inside, room.data()}});
        return room.data();
    }
};

/// The kept primitive for this shape, phase and number of threads; null where oneDNN has none, or only its reference
/// loops.
inline std::shared_ptr<const convolution> kept_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    static std::mutex mutex;
    static std::unordered_map<conv_call, std::shared_ptr<const convolution>, conv_call::hash> kept;
    const conv_call key{g, static_cast<index_t>(phase), sizeof(float), bias, threads()};
    const std::scoped_lock lock(mutex);
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
    std::shared_ptr<const convolution> made;
    try {
        made = std::make_shared<const convolution>(g, phase, bias);
        if (made->implementation.rfind("ref", 0) == 0) made = nullptr;
    } catch (const error&) {  // not implemented
    }
    return kept.emplace(key, made).first->second;
}

inline std::shared_ptr<const convolution> needed_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    auto c = kept_convolution(g, phase, bias);
    require(c != nullptr, "oneDNN has no ", name_of(phase), " kernel for a convolution ", g.to_string(),
            "; choose another algorithm");
    return c;
}

}  // namespace detail

/// c = alpha op(a) op(b) + beta c, all row-major; m × n results, k products each.
inline void sgemm(bool trans_a, bool trans_b, index_t m, index_t n, index_t k, float alpha, const float* a, index_t lda,
                  const float* b, index_t ldb, float beta, float* c, index_t ldc) {
    detail::check(dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                  "sgemm");
}

/// Whether oneDNN has a kernel (better than its reference loops) for this convolution.
inline bool convolution_applies(const conv_geometry& g, conv_phase phase) {
    return detail::kept_convolution(g, phase, false) != nullptr;
}

/// Name of the kernel that oneDNN uses, for example "brgconv:avx512_core"; empty where it has none.
inline std::string convolution_kernel(const conv_geometry& g, conv_phase phase) {
    const auto c = detail::kept_convolution(g, phase, false);
    return c ? c->implementation : "";
}

/// y = x * w + bias; bias may be null.
inline void convolution_forward(const conv_geometry& g, const float* x, const float* w, const float* bias, float* y) {
    const auto c = detail::needed_convolution(g, conv_phase::forward, bias != nullptr);
    tensor<char> room;
    c->run.run({{DNNL_ARG_SRC, c->p.x, x},
                {DNNL_ARG_WEIGHTS, c->w_inside, c->inside(w, room)},
                {DNNL_ARG_BIAS, c->p.b, bias},
                {DNNL_ARG_DST, c->p.y, y}});
}

/// dx = gradient of <dy, x * w> with respect to x.
inline void convolution_backward_input(const conv_geometry& g, const float* dy, const float* w, float* dx) {
    const auto c = detail::needed_convolution(g, conv_phase::backward_input, false);
    tensor<char> room;
    c->run.run({{DNNL_ARG_DIFF_DST, c->p.y, dy},
                {DNNL_ARG_WEIGHTS, c->w_inside, c->inside(w, room)},
                {DNNL_ARG_DIFF_SRC, c->p.x, dx}});
}

/// dw += gradient of <dy, x * w> with respect to w.
inline void convolution_backward_weight(const conv_geometry& g, const float* x, const float* dy, float* dw) {
    const auto c = detail::needed_convolution(g, conv_phase::backward_weight, false);
    const tensor<char> room({c->w_inside.bytes()}, memory_category::workspace);
    c->run.run({{DNNL_ARG_SRC, c->p.x, x},
                {DNNL_ARG_DIFF_DST, c->p.y, dy},
                {DNNL_ARG_DIFF_WEIGHTS, c->w_inside, room.data()}});
    c->reorder.run({{DNNL_ARG_FROM, c->w_inside, room.data()}, {DNNL_ARG_TO, c->p.w, dw}});
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
inline bool convolution_applies(const conv_geometry&, conv_phase) { return false; }
inline std::string convolution_kernel(const conv_geometry&, conv_phase) { return ""; }
inline void convolution_forward(const conv_geometry&, const float*, const float*, const float*, float*) { missing(); }
inline void convolution_backward_input(const conv_geometry&, const float*, const float*, float*) { missing(); }
inline void convolution_backward_weight(const conv_geometry&, const float*, const float*, float*) { missing(); }

#endif

}  // namespace onednn
}  // namespace cairn
