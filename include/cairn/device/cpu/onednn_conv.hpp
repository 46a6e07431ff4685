#pragma once
// Convolutions by oneDNN on channels-last activations, in float, or in bfloat16 with weight gradients in float.
//
// Activations are used where they lie. Weights go to the layout that the primitive likes best and back, on each call:
// they change between calls, and forward and backward like different ones. Primitives are kept, by shape and thread
// count.
//
// Bits: the same on every run with the same number of threads. Weight gradients are summed in pieces that depend on it.

#include <cairn/core/error.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/onednn.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace cairn::onednn {

#if CAIRN_HAS_ONEDNN

namespace detail {

/// One convolution of T as oneDNN wants it, its weights, or in backward_weight their gradient, of W; depth is left out
/// of 1D and 2D convolutions.
struct problem {
    layout x, y, w, w_any, b, w_forward;  // w_forward: of the forward pass that a gradient refers to
    dnnl_dims_t stride, dilation, pad, pad_end;

    problem(const conv_geometry& g, dnnl_data_type_t type, dnnl_data_type_t weight_type) {
        const bool flat = g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 && g.pad[0] == 0;
        const std::size_t first = flat ? 1 : 0;
        const auto describe = [&](dnnl_data_type_t of, std::initializer_list<index_t> outer,
                                  std::initializer_list<index_t> outer_strides, const std::array<index_t, 3>& size,
                                  index_t inner, bool any) {
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
            return any ? layout(of, rank, extents) : layout(of, rank, extents, strides);
        };
        x = describe(type, {g.n, g.c_in}, {g.in_points() * g.c_in, 1}, g.in, g.c_in, false);
        y = describe(type, {g.n, g.c_out}, {g.out_points() * g.c_out, 1}, g.out, g.c_out, false);
        const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, filter = g.kernel_points() * ci;
        const auto weights = [&](dnnl_data_type_t of, bool any) {
            return g.groups > 1 ? describe(of, {g.groups, co, ci}, {co * filter, filter, 1}, g.kernel, ci, any)
                                : describe(of, {co, ci}, {filter, 1}, g.kernel, ci, any);
        };
        w = weights(weight_type, false);
        w_any = weights(weight_type, true);
        w_forward = weights(type, true);
        const dnnl_dims_t channels = {g.c_out}, one = {1};
        b = layout(type, 1, channels, one);
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
                                           dnnl_forward_training, direct, x.get(), w_forward.get(), bias_layout,
                                           y.get(), stride, dilation, pad, pad_end, attr);
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
        check(dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, direct, x.get(), w_forward.get(),
                                                         bias_layout, y.get(), stride, dilation, pad, pad_end),
              what);
        return make<dnnl_primitive_desc_t>(what, dnnl_primitive_desc_create, &op, attr, engine(), nullptr);
#endif
    }
};

/// A convolution ready to run, and the reorder of its weights.
struct convolution {
    problem p;
    operation run, reorder;
    layout w_inside;  // of the weights, as the primitive likes them
    bool reorders;    // whether that differs from ours

    convolution(const conv_geometry& g, conv_phase phase, bool bias, dnnl_data_type_t type,
                dnnl_data_type_t weight_type)
        : p(g, type, weight_type) {
        const bool gradient = phase == conv_phase::backward_weight;
        const auto desc = p.describe(phase, bias, attributes(false).get());
        run = operation(desc.get());
        w_inside = layout(
            dnnl_primitive_desc_query_md(desc.get(), gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0));
        reorders = gradient || !dnnl_memory_desc_equal(w_inside.get(), p.w.get());  // gradients are accumulated
        if (!reorders) return;
        const auto attr = attributes(gradient);
        const layout &from = gradient ? w_inside : p.w, &to = gradient ? p.w : w_inside;
        reorder = operation(make<dnnl_primitive_desc_t>("describing a reorder", dnnl_reorder_primitive_desc_create,
                                                        from.get(), engine(), to.get(), engine(), attr.get())
                                .get());
    }

    /// The weights as the primitive likes them; `room` keeps the copy.
    const void* inside(const void* w, tensor<char>& room) const {
        if (!reorders) return w;
        room = tensor<char>({w_inside.bytes()}, memory_category::workspace);
        reorder.run({{DNNL_ARG_FROM, p.w, w}, {DNNL_ARG_TO, w_inside, room.data()}});
        return room.data();
    }
};

/// Whether this kernel goes beyond its operands. Found in 2.6.3 (tests/device/cpu/conv_drawn_test.cpp); such kernels
/// must not even be tried.
inline bool beyond_its_operands(const conv_geometry& g, conv_phase phase, std::string_view kernel) {
    if (phase != conv_phase::backward_weight) return false;
    // An axis so short that the padding behind it begins before the padding in front of it ends.
    const auto shallow = [&](std::size_t axis) {
        const index_t stride = g.stride[axis], pad = g.pad[axis];
        const index_t front = pad % stride == 0 ? stride : (pad + stride - 1) / stride * stride;
        return (pad > 0 || stride > 1) && g.in[axis] + pad - g.dilation[axis] * (g.kernel[axis] - 1) - 1 < front;
    };
    // The kernel for AMX walks over depth and rows as the other of bfloat16 does.
    const bool of_bfloat16 = kernel.starts_with("jit_bf16:") || kernel.starts_with("jit:avx512_core_amx_bf16");
    if (of_bfloat16 && (shallow(0) || shallow(1) || shallow(2))) return true;
    if (kernel.starts_with("jit:") && g.stride[0] > 1 && g.pad[0] > g.stride[0] && shallow(0)) return true;
    // A copy of the strided input in rows of 8 channels. Without AVX-512.
    const bool strided = g.stride[0] > 1 || g.stride[1] > 1 || g.stride[2] > 1;
    return kernel.starts_with("jit_1x1") && strided && g.c_in / g.groups < 8;
}

/// The kept primitive for this type, shape, phase and number of threads; null where oneDNN has none, only its reference
/// loops, one whose results depend on the number of threads, or one that is known to be faulty.
template <class T>
std::shared_ptr<const convolution> kept_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    static std::mutex mutex;
    static std::unordered_map<conv_call, std::shared_ptr<const convolution>, conv_call::hash> kept;
    const conv_call key{g, static_cast<index_t>(phase), sizeof(T), bias, threads()};
    const std::scoped_lock lock(mutex);
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
    std::shared_ptr<const convolution> made;
    try {
        made = std::make_shared<const convolution>(g, phase, bias, type_of<T>,
                                                   phase == conv_phase::backward_weight ? dnnl_f32 : type_of<T>);
        const std::string& kernel = made->run.kernel;
        // Products that are split over the threads: the bits depend on their number. im2col does the same, without.
        const bool by_threads = phase != conv_phase::backward_weight && kernel.find("gemm:jit") != std::string::npos;
        if (kernel.starts_with("ref") || by_threads || beyond_its_operands(g, phase, kernel)) made = nullptr;
    } catch (const error&) {  // not implemented
    }
    return kept.emplace(key, made).first->second;
}

template <class T>
std::shared_ptr<const convolution> needed_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    auto c = kept_convolution<T>(g, phase, bias);
    require(c != nullptr, "oneDNN has no ", name_of(phase), " kernel for a convolution ", g.to_string(),
            "; choose another algorithm");
    return c;
}

}  // namespace detail

/// Whether oneDNN has a kernel (better than its reference loops) for this convolution of T.
template <class T = float>
bool convolution_applies(const conv_geometry& g, conv_phase phase) {
    return detail::kept_convolution<T>(g, phase, false) != nullptr;
}

/// Name of the kernel that oneDNN uses, for example "brgconv:avx512_core"; empty where it has none.
template <class T = float>
std::string convolution_kernel(const conv_geometry& g, conv_phase phase) {
    const auto c = detail::kept_convolution<T>(g, phase, false);
    return c ? c->run.kernel : "";
}

/// y = x * w + bias; bias may be null.
template <class T>
void convolution_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    const auto c = detail::needed_convolution<T>(g, conv_phase::forward, bias != nullptr);
    tensor<char> room;
    c->run.run({{DNNL_ARG_SRC, c->p.x, x},
                {DNNL_ARG_WEIGHTS, c->w_inside, c->inside(w, room)},
                {DNNL_ARG_BIAS, c->p.b, bias},
                {DNNL_ARG_DST, c->p.y, y}});
}

/// dx = gradient of <dy, x * w> with respect to x.
template <class T>
void convolution_backward_input(const conv_geometry& g, const T* dy, const T* w, T* dx) {
    const auto c = detail::needed_convolution<T>(g, conv_phase::backward_input, false);
    tensor<char> room;
    c->run.run({{DNNL_ARG_DIFF_DST, c->p.y, dy},
                {DNNL_ARG_WEIGHTS, c->w_inside, c->inside(w, room)},
                {DNNL_ARG_DIFF_SRC, c->p.x, dx}});
}

/// dw += gradient of <dy, x * w> with respect to w.
template <class T>
void convolution_backward_weight(const conv_geometry& g, const T* x, const T* dy, float* dw) {
    const auto c = detail::needed_convolution<T>(g, conv_phase::backward_weight, false);
    const tensor<char> room({c->w_inside.bytes()}, memory_category::workspace);
    c->run.run({{DNNL_ARG_SRC, c->p.x, x},
                {DNNL_ARG_DIFF_DST, c->p.y, dy},
                {DNNL_ARG_DIFF_WEIGHTS, c->w_inside, room.data()}});
    c->reorder.run({{DNNL_ARG_FROM, c->w_inside, room.data()}, {DNNL_ARG_TO, c->p.w, dw}});
}

#else

template <class T = float>
bool convolution_applies(const conv_geometry&, conv_phase) {
    return false;
}
template <class T = float>
std::string convolution_kernel(const conv_geometry&, conv_phase) {
    return "";
}
template <class T>
void convolution_forward(const conv_geometry&, const T*, const T*, const T*, T*) {
    missing();
}
template <class T>
void convolution_backward_input(const conv_geometry&, const T*, const T*, T*) {
    missing();
}
template <class T>
void convolution_backward_weight(const conv_geometry&, const T*, const T*, float*) {
    missing();
}

#endif

}  // namespace cairn::onednn
