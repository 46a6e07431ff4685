#pragma once
// oneDNN, versions 2 and 3: the one file that includes it. GEMM and convolutions on channels-last activations.
// CAIRN_HAS_ONEDNN: 1 where the header is found, or as the build says. Without it `available` is false, and calls throw.
//
// Activations are used where they lie. Weights go to the layout that the primitive likes best and back, on each call: they
// change between calls, and forward and backward like different ones. Primitives are kept, by shape and thread count. Their
// scratch memory comes from the pool and goes back after the call, so that concurrent calls of one primitive are safe.
//
// Bits: the same on every run with the same number of threads. Weight gradients are summed in pieces that depend on it.

#include <cairn/core/error.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#ifndef CAIRN_HAS_ONEDNN
#if __has_include(<oneapi/dnnl/dnnl.hpp>)
#define CAIRN_HAS_ONEDNN 1
#else
#define CAIRN_HAS_ONEDNN 0
#endif
#endif

#if CAIRN_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace cairn {

/// "forward", "backward_input" or "backward_weight".
inline const char* name_of(conv_phase phase) {
    constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
    return names[static_cast<std::size_t>(phase)];
}

namespace onednn {

#if CAIRN_HAS_ONEDNN

inline constexpr bool available = true;

/// "oneDNN 2.6.3"
inline std::string version() {
    const dnnl_version_t* v = dnnl_version();
    return concat("oneDNN ", v->major, '.', v->minor, '.', v->patch);
}

/// c = alpha op(a) op(b) + beta c, all row-major; m × n results, k products each.
inline void sgemm(bool trans_a, bool trans_b, index m, index n, index k, float alpha, const float* a, index lda, const float* b,
                  index ldb, float beta, float* c, index ldc) {
    const dnnl_status_t status =
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    require(status == dnnl_success, "oneDNN sgemm of ", m, " x ", n, " x ", k, " failed with status ", static_cast<int>(status));
}

namespace detail {

inline const dnnl::engine& engine() {
    static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
    return e;
}

inline dnnl::stream& stream() {
    thread_local dnnl::stream s(engine());
    return s;
}

/// Makes a cairn::error of a dnnl::error thrown by `action`.
template <class Action>
auto translated(const conv_geometry& g, const char* what, Action&& action) {
    try {
        return action();
    } catch (const dnnl::error& e) {
        fail("oneDNN ", what, " of a convolution ", g.to_string(), ": ", e.what());
    }
}

/// Offsets and extents of one convolution as oneDNN wants them; depth is left out of 1D and 2D convolutions.
struct layout {
    explicit layout(const conv_geometry& g) : first(g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 ? 1 : 0) {
        using desc = dnnl::memory::desc;
        x = activations(g.n, g.c_in, g.in);
        y = activations(g.n, g.c_out, g.out);
        const index ci = g.c_in / g.groups, co = g.c_out / g.groups, points = g.kernel_points();
        dnnl::memory::dims extents{co, ci}, strides{points * ci, 1};
        if (g.groups > 1) {
            extents.insert(extents.begin(), g.groups);
            strides.insert(strides.begin(), co * points * ci);
        }
        const index step[3] = {g.kernel[1] * g.kernel[2] * ci, g.kernel[2] * ci, ci};
        for (std::size_t axis = first; axis < 3; ++axis) {
            extents.push_back(g.kernel[axis]);
            strides.push_back(step[axis]);
            stride.push_back(g.stride[axis]);
            dilation.push_back(g.dilation[axis] - 1);
            pad.push_back(g.pad[axis]);
            // What the last output reaches; negative where the input's end is not read at all.
            pad_end.push_back((g.out[axis] - 1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1 - g.in[axis] -
                              g.pad[axis]);
        }
        w = desc(extents, f32, strides);
        w_any = desc(extents, f32, dnnl::memory::format_tag::any);
        b = desc({g.c_out}, f32, dnnl::memory::format_tag::x);
    }

    static constexpr auto f32 = dnnl::memory::data_type::f32;
    std::size_t first;
    dnnl::memory::desc x, y, w, w_any, b;
    dnnl::memory::dims stride, dilation, pad, pad_end;

private:
    dnnl::memory::desc activations(index n, index c, const std::array<index, 3>& size) const {
        dnnl::memory::dims extents{n, c}, strides{size[0] * size[1] * size[2] * c, 1};
        const index step[3] = {size[1] * size[2] * c, size[2] * c, c};
        for (std::size_t axis = first; axis < 3; ++axis) {
            extents.push_back(size[axis]);
            strides.push_back(step[axis]);
        }
        return {extents, f32, strides};
    }
};

inline dnnl::primitive_attr user_scratchpad() {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
}

#if DNNL_VERSION_MAJOR >= 3
inline auto forward_desc(const layout& l, bool bias) {
    return dnnl::convolution_forward::primitive_desc(engine(), dnnl::prop_kind::forward_training,
                                                     dnnl::algorithm::convolution_direct, l.x, l.w_any,
                                                     bias ? l.b : dnnl::memory::desc(), l.y, l.stride, l.dilation, l.pad,
                                                     l.pad_end, user_scratchpad());
}
inline auto backward_input_desc(const layout& l) {
    return dnnl::convolution_backward_data::primitive_desc(engine(), dnnl::algorithm::convolution_direct, l.x, l.w_any, l.y,
                                                           l.stride, l.dilation, l.pad, l.pad_end, forward_desc(l, false),
                                                           user_scratchpad());
}
inline auto backward_weight_desc(const layout& l) {
    return dnnl::convolution_backward_weights::primitive_desc(engine(), dnnl::algorithm::convolution_direct, l.x, l.w_any,
                                                              l.y, l.stride, l.dilation, l.pad, l.pad_end,
                                                              forward_desc(l, false), user_scratchpad());
}
#else
inline auto forward_desc(const layout& l, bool bias) {
    const dnnl::convolution_forward::desc op(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, l.x,
                                             l.w_any, bias ? l.b : dnnl::memory::desc(), l.y, l.stride, l.dilation, l.pad,
                                             l.pad_end);
    return dnnl::convolution_forward::primitive_desc(op, user_scratchpad(), engine());
}
inline auto backward_input_desc(const layout& l) {
    const dnnl::convolution_backward_data::desc op(dnnl::algorithm::convolution_direct, l.x, l.w_any, l.y, l.stride,
                                                   l.dilation, l.pad, l.pad_end);
    return dnnl::convolution_backward_data::primitive_desc(op, user_scratchpad(), engine(), forward_desc(l, false));
}
inline auto backward_weight_desc(const layout& l) {
    const dnnl::convolution_backward_weights::desc op(dnnl::algorithm::convolution_direct, l.x, l.w_any, l.y, l.stride,
                                                      l.dilation, l.pad, l.pad_end);
    return dnnl::convolution_backward_weights::primitive_desc(op, user_scratchpad(), engine(), forward_desc(l, false));
}
#endif

/// A convolution ready to run, and the reorder of its weights.
struct convolution {
    dnnl::primitive run, reorder;
    dnnl::memory::desc x, y, w, b, w_inside;
    bool reorders = false;                                   // whether w_inside differs from w
    index inside_bytes = 0, scratch_bytes = 0, reorder_scratch_bytes = 0;
    dnnl::memory::desc scratch, reorder_scratch;
    std::string implementation;

    convolution(const conv_geometry& g, conv_phase phase, bool bias) {
        const layout l(g);
        x = l.x, y = l.y, w = l.w, b = l.b;
        if (phase == conv_phase::forward) {
            const auto pd = forward_desc(l, bias);
            adopt(pd, pd.weights_desc());
            run = dnnl::convolution_forward(pd);
        } else if (phase == conv_phase::backward_input) {
            const auto pd = backward_input_desc(l);
            adopt(pd, pd.weights_desc());
            run = dnnl::convolution_backward_data(pd);
        } else {
            const auto pd = backward_weight_desc(l);
            adopt(pd, pd.diff_weights_desc());
            run = dnnl::convolution_backward_weights(pd);
        }
        dnnl::primitive_attr attr = user_scratchpad();
        const bool back = phase == conv_phase::backward_weight;
        if (back) {  // gradients are added to what is there
            dnnl::post_ops sum;
            sum.append_sum(1.0f);
            attr.set_post_ops(sum);
        }
        reorders = back || w_inside != w;
        if (!reorders) return;
        const dnnl::reorder::primitive_desc pd(engine(), back ? w_inside : w, engine(), back ? w : w_inside, attr);
        reorder_scratch = pd.scratchpad_desc();
        reorder_scratch_bytes = static_cast<index>(reorder_scratch.get_size());
        reorder = dnnl::reorder(pd);
    }

private:
    template <class Desc>
    void adopt(const Desc& pd, const dnnl::memory::desc& weights) {
        w_inside = weights;
        inside_bytes = static_cast<index>(w_inside.get_size());
        scratch = pd.scratchpad_desc();
        scratch_bytes = static_cast<index>(scratch.get_size());
        implementation = pd.impl_info_str();
    }
};

/// The kept primitive for this shape, phase and number of threads; null where oneDNN has none, or only its reference loops.
inline std::shared_ptr<const convolution> kept_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<const convolution>> kept;
    const std::string key = concat(g.to_string(), ' ', static_cast<int>(phase), bias, ' ', threads());
    const std::scoped_lock lock(mutex);
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
    std::shared_ptr<const convolution> made;
    try {
        made = std::make_shared<const convolution>(g, phase, bias);
        if (made->implementation.rfind("ref", 0) == 0) made = nullptr;
    } catch (const dnnl::error&) {  // unimplemented
    }
    return kept.emplace(key, made).first->second;
}

inline std::shared_ptr<const convolution> needed_convolution(const conv_geometry& g, conv_phase phase, bool bias) {
    auto c = kept_convolution(g, phase, bias);
    require(c != nullptr, "oneDNN has no ", name_of(phase), " kernel for a convolution ", g.to_string(), "; choose im2col");
    return c;
}

inline dnnl::memory at(const dnnl::memory::desc& desc, const void* data) {
    return {desc, engine(), const_cast<void*>(data)};
}

inline tensor<char> workspace(index bytes) { return tensor<char>({bytes}, category::workspace); }

}  // namespace detail

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
    detail::translated(g, "forward", [&] {
        using detail::at;
        const auto scratch = detail::workspace(c->scratch_bytes);
        const auto inside = detail::workspace(c->reorders ? c->inside_bytes : 0);
        const auto reorder_scratch = detail::workspace(c->reorder_scratch_bytes);
        if (c->reorders)
            c->reorder.execute(detail::stream(), {{DNNL_ARG_FROM, at(c->w, w)},
                                                  {DNNL_ARG_TO, at(c->w_inside, inside.data())},
                                                  {DNNL_ARG_SCRATCHPAD, at(c->reorder_scratch, reorder_scratch.data())}});
        std::unordered_map<int, dnnl::memory> arguments{
            {DNNL_ARG_SRC, at(c->x, x)},
            {DNNL_ARG_WEIGHTS, at(c->w_inside, c->reorders ? static_cast<const void*>(inside.data()) : w)},
            {DNNL_ARG_DST, at(c->y, y)},
            {DNNL_ARG_SCRATCHPAD, at(c->scratch, scratch.data())}};
        if (bias) arguments.emplace(DNNL_ARG_BIAS, at(c->b, bias));
        c->run.execute(detail::stream(), arguments);
        detail::stream().wait();
    });
}

/// dx = gradient of <dy, x * w> with respect to x.
inline void convolution_backward_input(const conv_geometry& g, const float* dy, const float* w, float* dx) {
    const auto c = detail::needed_convolution(g, conv_phase::backward_input, false);
    detail::translated(g, "input gradient", [&] {
        using detail::at;
        const auto scratch = detail::workspace(c->scratch_bytes);
        const auto inside = detail::workspace(c->reorders ? c->inside_bytes : 0);
        const auto reorder_scratch = detail::workspace(c->reorder_scratch_bytes);
        if (c->reorders)
            c->reorder.execute(detail::stream(), {{DNNL_ARG_FROM, at(c->w, w)},
                                                  {DNNL_ARG_TO, at(c->w_inside, inside.data())},
                                                  {DNNL_ARG_SCRATCHPAD, at(c->reorder_scratch, reorder_scratch.data())}});
        c->run.execute(detail::stream(),
                       {{DNNL_ARG_DIFF_DST, at(c->y, dy)},
                        {DNNL_ARG_WEIGHTS, at(c->w_inside, c->reorders ? static_cast<const void*>(inside.data()) : w)},
                        {DNNL_ARG_DIFF_SRC, at(c->x, dx)},
                        {DNNL_ARG_SCRATCHPAD, at(c->scratch, scratch.data())}});
        detail::stream().wait();
    });
}

/// dw += gradient of <dy, x * w> with respect to w.
inline void convolution_backward_weight(const conv_geometry& g, const float* x, const float* dy, float* dw) {
    const auto c = detail::needed_convolution(g, conv_phase::backward_weight, false);
    detail::translated(g, "weight gradient", [&] {
        using detail::at;
        const auto scratch = detail::workspace(c->scratch_bytes);
        const auto inside = detail::workspace(c->inside_bytes);
        const auto reorder_scratch = detail::workspace(c->reorder_scratch_bytes);
        c->run.execute(detail::stream(), {{DNNL_ARG_SRC, at(c->x, x)},
                                          {DNNL_ARG_DIFF_DST, at(c->y, dy)},
                                          {DNNL_ARG_DIFF_WEIGHTS, at(c->w_inside, inside.data())},
                                          {DNNL_ARG_SCRATCHPAD, at(c->scratch, scratch.data())}});
        c->reorder.execute(detail::stream(), {{DNNL_ARG_FROM, at(c->w_inside, inside.data())},
                                              {DNNL_ARG_TO, at(c->w, dw)},
                                              {DNNL_ARG_SCRATCHPAD, at(c->reorder_scratch, reorder_scratch.data())}});
        detail::stream().wait();
    });
}

#else

inline constexpr bool available = false;
inline std::string version() { return "no oneDNN"; }

[[noreturn]] inline void missing() { fail("oneDNN: not built in (CAIRN_HAS_ONEDNN is 0); install libdnnl-dev or choose another kernel"); }

inline void sgemm(bool, bool, index, index, index, float, const float*, index, const float*, index, float, float*, index) { missing(); }
inline bool convolution_applies(const conv_geometry&, conv_phase) { return false; }
inline std::string convolution_kernel(const conv_geometry&, conv_phase) { return ""; }
inline void convolution_forward(const conv_geometry&, const float*, const float*, const float*, float*) { missing(); }
inline void convolution_backward_input(const conv_geometry&, const float*, const float*, float*) { missing(); }
inline void convolution_backward_weight(const conv_geometry&, const float*, const float*, float*) { missing(); }

#endif

}  // namespace onednn
}  // namespace cairn
