#pragma once
// Convolution on the host, channels last, 1D to 3D: the front that chooses an algorithm for each shape and phase.
//
//   direct     oneDNN's kernels on channels-last activations              (float, bfloat16)
//   winograd4  F(4×4, 3×3) and winograd2 F(2×2, 3×3), winograd.hpp        (kernels 3×3 and k×3×3, stride 1)
//   tiled      register tiles without patches, conv_tiled.hpp             (everything)
//   im2col     blocks of patches and GEMM, im2col.hpp                     (everything)
//   plain      loops, conv_reference.hpp                                      (everything; only on demand)
//
// Tensors of bfloat16: direct, and im2col's weight gradients, by the processor's instructions for it; winograd in
// float, from and to bfloat16; the others on copies in float. Weight gradients are of float.
//
// The fastest is measured at first use and entered in the registry as "conv/forward f32 …"; it is part of a run's
// record. Before that each is compared with im2col, in bfloat16 with tiled (conv_check.hpp), and rejected where wrong.
// CAIRN_CONV=direct, winograd4, winograd2, tiled, im2col or plain forces one wherever it applies. Workspace is from the
// pool, for the time of the call. Bytes: each tensor once, by design.

#include <cairn/core/compiled.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/conv_check.hpp>
#include <cairn/device/cpu/conv_reference.hpp>
#include <cairn/device/cpu/conv_tiled.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/im2col.hpp>
#include <cairn/device/cpu/onednn_conv.hpp>
#include <cairn/device/cpu/winograd.hpp>

#include <cstdlib>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace cairn {

namespace conv_detail {

enum class algorithm : std::uint8_t { direct, winograd4, winograd2, tiled, im2col, plain };
inline constexpr const char* algorithm_names[] = {"direct", "winograd4", "winograd2", "tiled", "im2col", "plain"};

/// Whether oneDNN has convolutions of T at all.
template <class T>
inline constexpr bool has_direct = std::is_same_v<T, float> || std::is_same_v<T, bfloat16>;

template <class T>
bool applies(algorithm a, const conv_geometry& g, conv_phase phase) {
    switch (a) {
        case algorithm::direct:
            if constexpr (has_direct<T>) return onednn::convolution_applies<T>(g, phase);
            return false;
        case algorithm::winograd4:
            return winograd_applies(g, 4);
        case algorithm::winograd2:
            return winograd_applies(g, 2);
        default:
            return true;
    }
}

/// The algorithms worth measuring for this shape, best guess first. Plain loops are for the asking only.
template <class T>
std::vector<algorithm> candidates(const conv_geometry& g, conv_phase phase) {
    std::vector<algorithm> list;
    const index_t smaller = std::min(g.out[1], g.out[2]), per_group = std::min(g.c_in, g.c_out) / g.groups;
    // Winograd's transforms do not pay with few channels. Its small tiles are for images that the large ones overhang.
    const bool winograd = winograd_applies(g, 4) && per_group >= 8 && smaller >= 2;
    if (winograd && smaller >= 3) list.push_back(algorithm::winograd4);
    if (winograd && smaller <= 8) list.push_back(algorithm::winograd2);
    if (applies<T>(algorithm::direct, g, phase)) list.push_back(algorithm::direct);
    if (g.groups == 1 || per_group >= 4 || list.size() < 2) list.push_back(algorithm::tiled);
    if (!winograd && per_group >= 8) list.push_back(algorithm::im2col);
    return list;
}

// Weight gradients are of R = float, the other results of R = T.
template <class T, class R>
void run_direct(conv_phase phase, const conv_geometry& g, const operands<T, R>& o) {
    if constexpr (std::is_same_v<R, float>)
        if (phase == conv_phase::backward_weight) return onednn::convolution_backward_weight(g, o.x, o.w, o.y);
    if constexpr (std::is_same_v<R, T>)
        phase == conv_phase::forward ? onednn::convolution_forward(g, o.x, o.w, o.bias, o.y)
                                     : onednn::convolution_backward_input(g, o.x, o.w, o.y);
}

template <class T, class R = T>
void run(algorithm a, conv_phase phase, const conv_geometry& g, const operands<T, R>& o) {
    if constexpr (has_direct<T>)
        if (a == algorithm::direct) return run_direct(phase, g, o);
    if (a == algorithm::winograd4 || a == algorithm::winograd2) return run_winograd(a, phase, g, o);
    if constexpr (std::is_same_v<T, bfloat16>)
        run_on_bfloat16(a, phase, g, o);
    else
        run_portable(a, phase, g, o);
}

template <class T, class R>
void run_winograd(algorithm a, conv_phase phase, const conv_geometry& g, const operands<T, R>& o) {
    const int tile = a == algorithm::winograd4 ? 4 : 2;
    tensor<char> workspace({winograd_workspace_bytes<T>(g, phase, tile)}, memory_category::workspace);
    if constexpr (std::is_same_v<R, simd::arithmetic<T>>)
        if (phase == conv_phase::backward_weight)
            return winograd_backward_weight(g, o.x, o.w, o.y, true, tile, workspace.data());
    if constexpr (std::is_same_v<R, T>)
        phase == conv_phase::forward ? winograd_forward(g, o.x, o.w, o.bias, o.y, tile, workspace.data())
                                     : winograd_backward_input(g, o.x, o.w, o.y, tile, workspace.data());
}

// The algorithms that are the same for all types.
template <class T>
void run_portable(algorithm a, conv_phase phase, const conv_geometry& g, const operands<T>& o) {
    if (phase == conv_phase::forward)
        a == algorithm::plain   ? plain::forward(g, o.x, o.w, o.bias, o.y)
        : a == algorithm::tiled ? tiled::forward(g, o.x, o.w, o.bias, o.y)
                                : im2col::forward(g, o.x, o.w, o.bias, o.y);
    else if (phase == conv_phase::backward_input)
        a == algorithm::plain   ? plain::backward_input(g, o.x, o.w, o.y)
        : a == algorithm::tiled ? tiled::backward_input(g, o.x, o.w, o.y)
                                : im2col::backward_input(g, o.x, o.w, o.y);
    else
        a == algorithm::plain   ? plain::backward_weight(g, o.x, o.w, o.y)
        : a == algorithm::tiled ? tiled::backward_weight(g, o.x, o.w, o.y)
                                : im2col::backward_weight(g, o.x, o.w, o.y);
}

/// run_portable() on copies in float, but for im2col's weight gradients, whose products take bfloat16. Those of groups
/// have operands with gaps, of which oneDNN splits short sums over the threads too (gemm.hpp).
template <class R>
void run_on_bfloat16(algorithm a, conv_phase phase, const conv_geometry& g, const operands<bfloat16, R>& o) {
    if constexpr (std::is_same_v<R, float>)
        if (a == algorithm::im2col && g.groups == 1) return im2col::backward_weight(g, o.x, o.w, o.y);
    const bool gradient = phase == conv_phase::backward_weight;
    const tensor<float> x = widened(phase == conv_phase::backward_input ? g.y_elements() : g.x_elements(), o.x),
                        w = widened(gradient ? g.y_elements() : g.w_elements(), o.w),
                        bias = o.bias ? widened(g.c_out, o.bias) : tensor<float>{};
    operands<float> wide{x.data(), w.data(), bias.data(), nullptr};
    if constexpr (std::is_same_v<R, float>) {
        wide.y = o.y;
        run_portable(a, phase, g, wide);
    } else {
        tensor<float> y({phase == conv_phase::forward ? g.y_elements() : g.x_elements()}, memory_category::workspace);
        wide.y = y.data();
        run_portable(a, phase, g, wide);
        narrow(y.size(), y.data(), o.y);
    }
}

/// The candidates of autotuning on the operands given, and a check of them against one that is taken for right.
template <class T, class R>
struct measured_candidates {
    // None that works by a library's products of bfloat16.
    static constexpr algorithm reference = std::is_same_v<T, bfloat16> ? algorithm::tiled : algorithm::im2col;

    const std::vector<algorithm>& list;
    conv_phase phase;
    const conv_geometry& g;
    const operands<T, R>& given;
    tensor<R> stand_in;  // y and dx are overwritten anyway; dw is added to, and so has a stand-in

    measured_candidates(const std::vector<algorithm>& all, conv_phase p, const conv_geometry& shape,
                        const operands<T, R>& o)
        : list(all), phase(p), g(shape), given(o) {
        if (phase == conv_phase::backward_weight)
            stand_in = tensor<R>::zeros({g.w_elements()}, memory_category::workspace);
    }

    void operator()(std::size_t i) {
        operands<T, R> scratch = given;
        if (!stand_in.empty()) scratch.y = stand_in.data();
        run(list[i], phase, g, scratch);
    }

    /// A callable that says what is wrong with candidate i; it holds memory as long as it lives.
    auto checker() const {
        const auto on = [this](algorithm a) { return [this, a](const operands<T, R>& o) { run(a, phase, g, o); }; };
        return [this, on, check = conv_checker<T, R>(phase, g, on(reference))](std::size_t i) mutable {
            return list[i] == reference ? std::string() : check.fault(on(list[i]));
        };
    }
};

/// The algorithm in use for this shape, measured with these operands if it is not known yet.
template <class T, class R>
algorithm choose(conv_phase phase, const conv_geometry& g, const operands<T, R>& o) {
    static const bool forced = [] {
        if (const char* name = std::getenv("CAIRN_CONV")) autotune_cache::global().force("conv", name);
        return true;
    }();
    (void)forced;
    struct answer {
        std::uint64_t epoch = 0;
        algorithm a{};
    };
    thread_local std::unordered_map<conv_call, answer, conv_call::hash> answers;  // of this thread: no lock is taken
    autotune_cache& registry = autotune_cache::global();
    const std::uint64_t epoch = registry.epoch();
    answer& known = answers[{g, static_cast<index_t>(phase), sizeof(T), 0, threads()}];
    if (known.epoch == epoch) return known.a;

    const std::string key = concat("conv/", name_of(phase), ' ', format_name<T>, ' ', g.to_string(), " t", threads());
    std::vector<algorithm> list = candidates<T>(g, phase);
    for (std::size_t i = 0; i < std::size(algorithm_names); ++i) {  // what was asked for by name joins, if it can
        const auto a = static_cast<algorithm>(i);
        if (registry.is_forced("conv", algorithm_names[i]) && applies<T>(a, g, phase) &&
            std::find(list.begin(), list.end(), a) == list.end())
            list.push_back(a);
    }
    std::vector<const char*> names;
    for (algorithm a : list) names.push_back(algorithm_names[static_cast<std::size_t>(a)]);
    const std::size_t choice =
        registry.get_or_measure(key, names, [&] { return measured_candidates<T, R>(list, phase, g, o); });
    known = {epoch, list[choice]};
    return list[choice];
}

/// Its announcement, with `added` numbers of a bias or its gradient; W: of the weights, or of their gradient.
template <class T, class W = T>
kernel_call call_of(conv_phase phase, const conv_geometry& g, index_t added, double added_bytes = 0) {
    return kernel_call(
        phase == conv_phase::forward          ? "convolution forward"
        : phase == conv_phase::backward_input ? "convolution backward input"
                                              : "convolution backward weight",
        format_name<T>, g.flops() + static_cast<double>(added),
        sizeof(T) * static_cast<double>(g.x_elements() + g.y_elements()) +
            sizeof(W) * static_cast<double>(g.w_elements()) + added_bytes,
        {g.n, g.in[0], g.in[1], g.in[2], g.out[0] * g.out[1] * g.out[2], g.c_in, g.c_out, g.kernel[0], g.kernel[1],
         g.kernel[2], g.stride[0], g.stride[1], g.stride[2], g.pad[0] + 16 * g.pad[1] + 256 * g.pad[2],
         g.dilation[0] + 16 * g.dilation[1] + 256 * g.dilation[2], g.groups});
}

/// sum[c] += Σ rows of a (rows × columns), in an order that depends on the sizes alone.
template <class T, class S>
void add_column_sums(index_t rows, index_t columns, const T* a, S* sum) {
    const index_t grain = std::max<index_t>(64, 16384 / columns), chunks = (rows + grain - 1) / grain;
    auto parts = tensor<S>::zeros({chunks, columns}, memory_category::workspace);
    parallel_chunks(rows, grain, [&](index_t chunk, index_t begin, index_t end) {
        S* part = parts.data() + chunk * columns;
        for (index_t r = begin; r < end; ++r)
            for (index_t c = 0; c < columns; ++c) part[c] += a[r * columns + c];
    });
    for (index_t chunk = 0; chunk < chunks && !on_phantom_rank(); ++chunk)
        for (index_t c = 0; c < columns; ++c) sum[c] += parts[chunk * columns + c];
}

}  // namespace conv_detail

/// y (n, out…, c_out) = x (n, in…, c_in) * w (c_out, kernel…, c_in / groups) + bias (c_out, or null).
template <class T>
void conv_forward(cpu, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    check(g);
    if (g.n == 0) return;
    const kernel_call call = conv_detail::call_of<T>(conv_phase::forward, g, bias ? g.y_elements() : 0);
    const conv_detail::operands<T> o{x, w, bias, y};
    conv_detail::run(conv_detail::choose(conv_phase::forward, g, o), conv_phase::forward, g, o);
}

/// dx (n, in…, c_in) = gradient of <dy, x * w> with respect to x; with a bias (c_in, or null) added, as a transposed
/// convolution has it. Of bfloat16 such a sum is one of floats, rounded once.
template <class T>
void conv_backward_input(cpu, const conv_geometry& g, const T* dy, const T* w, T* dx, const T* bias = nullptr) {
    check(g);
    if (g.n == 0) return;
    const auto run = [&]<class S>(const S* of_dy, const S* of_w, S* result) {
        const conv_detail::operands<S> o{of_dy, of_w, nullptr, result};
        conv_detail::run(conv_detail::choose(conv_phase::backward_input, g, o), conv_phase::backward_input, g, o);
    };
    const auto add_bias = [&](const auto* sum) {
        detail::finish_rows(g.n * g.in_points(), g.c_in, sum, g.c_in, dx, g.c_in, bias, activation::none,
                            static_cast<const T*>(nullptr));
    };
    const kernel_call call =
        conv_detail::call_of<T>(conv_phase::backward_input, g, bias ? g.x_elements() : 0,
                                bias ? sizeof(T) * static_cast<double>(2 * g.x_elements() + g.c_in) : 0);
    if constexpr (std::is_same_v<T, bfloat16>) {
        if (!bias) return run(dy, w, dx);
        tensor<float> sum({g.x_elements()}, memory_category::workspace);
        const tensor<float> wide_dy = widened(g.y_elements(), dy), wide_w = widened(g.w_elements(), w);
        run(wide_dy.data(), wide_w.data(), sum.data());
        add_bias(sum.data());
    } else {
        run(dy, w, dx);
        if (bias) add_bias(dx);
    }
}

/// dw (c_out, kernel…, c_in / groups) += gradient of <dy, x * w + bias> with respect to w, db (c_out, or null) += that
/// with respect to bias.
template <class T, class W>
void conv_backward_weight(cpu, const conv_geometry& g, const T* x, const T* dy, W* dw, std::type_identity_t<W>* db) {
    check(g);
    if (g.n == 0) return;
    const kernel_call call = conv_detail::call_of<T, W>(conv_phase::backward_weight, g, db ? g.y_elements() : 0);
    const conv_detail::operands<T, W> o{x, dy, nullptr, dw};
    conv_detail::run(conv_detail::choose(conv_phase::backward_weight, g, o), conv_phase::backward_weight, g, o);
    if (db) conv_detail::add_column_sums(g.n * g.out_points(), g.c_out, dy, db);
}

#define CAIRN_COMPILED_CONV(part, T)                                                                                 \
    CAIRN_COMPILED_ONCE(part, void conv_forward(cpu, const conv_geometry&, const T*, const T*, const T*, T*))        \
    CAIRN_COMPILED_ONCE(part, void conv_backward_input(cpu, const conv_geometry&, const T*, const T*, T*, const T*)) \
    CAIRN_COMPILED_ONCE(part, void conv_backward_weight(cpu, const conv_geometry&, const T*, const T*, T*, T*))
CAIRN_COMPILED_CONV(layers_float, float)
CAIRN_COMPILED_CONV(layers_double, double)

}  // namespace cairn
