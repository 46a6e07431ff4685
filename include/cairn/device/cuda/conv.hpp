#pragma once
// Convolution on the GPU through cuDNN's graph interface (cudnn.hpp), channels last. The plan of each shape and phase
// is chosen by measurement among cuDNN's first suggestions, and entered into the record of choices
// (device/autotune.hpp), so that a resumed run takes the same. Plans that do not give the same bits every time are left
// out; float runs in float, or in TF32 where gpu_float_products() says so. Where none is left, or each fails, the phase
// is products of patches (conv_im2col_gemm.hpp), with a warning. Batches beyond 2^31 elements are cut.
// A bias is measured both ways, in the graph of forward ("fused0", …) and as a pass behind a plain plan ("plan0", …):
// not every engine takes it.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/device/cuda/cublaslt.hpp>
#include <cairn/device/cuda/cudnn_convolution.hpp>
#include <cairn/device/grid/column_sums.hpp>
#include <cairn/device/grid/conv_im2col_gemm.hpp>
#include <cairn/device/grid/matrices.hpp>
#include <cairn/device/grid/rows.hpp>

#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

namespace detail {

/// The chosen plans of the calling thread.
template <class T>
class conv_plans {
public:
    static conv_plans& mine() {
        thread_local conv_plans all;
        return all;
    }

    /// Runs the phase; x, w, y hold dx, dw, dy where the phase makes them. Forward adds the bias (c_out), if it is not
    /// null.
    void run(conv_phase phase, const conv_geometry& g, const T* x, const T* w, const T* y, const T* bias = nullptr) {
        require(cudnn::aligned(x, w, y), "convolution ", g.to_string(),
                ": cuDNN wants addresses that are multiples of 16 bytes");
        const call c{phase, g, uses_tensor_cores(), bias && cudnn::aligned(bias), x, w, y, bias};
        const std::uint64_t epoch = autotune_cache::global().epoch();
        const auto found = chosen_.find(numbers_of(c));
        if (found != chosen_.end() && found->second.epoch == epoch) return execute(found->second.plan, c);
        candidate best = choose(c);
        chosen_.insert_or_assign(numbers_of(c), choice{std::move(best), epoch});
    }

private:
    using candidate = std::optional<cudnn::plan>;  // none: products of patches
    struct choice {
        candidate plan;
        std::uint64_t epoch;  // of the registry: it may have another answer since
    };
    struct call {
        conv_phase phase;
        conv_geometry g;
        bool tensor_cores, may_fuse;
        const T *x, *w, *y, *bias;
    };
    static constexpr std::array<const char*, 3> names{"forward", "backward_input", "backward_weight"};
    static constexpr std::array<const char*, 2> fused_names{"fused0", "fused1"};
    static constexpr std::array<const char*, 8> plan_names{"plan0", "plan1", "plan2", "plan3",
                                                           "plan4", "plan5", "plan6", "plan7"};
    static constexpr index_t most_workspace = index_t{1} << 30;
    static constexpr bool is_half = std::is_same_v<T, float16>;  // as long as bfloat16

    // double's are as exact as other units.
    static bool uses_tensor_cores() { return sizeof(T) != 4 || gpu_float_products() == float_products::tf32; }

    // All that tells calls apart but addresses.
    static std::array<index_t, 25> numbers_of(const call& c) {
        std::array<index_t, 25> all{
            static_cast<index_t>(c.phase), c.tensor_cores, c.may_fuse, c.g.n, c.g.c_in, c.g.c_out, c.g.groups};
        auto* to = all.data() + 7;
        for (const auto* sizes : {&c.g.in, &c.g.out, &c.g.kernel, &c.g.stride, &c.g.pad, &c.g.dilation})
            for (const index_t v : *sizes) *to++ = v;
        return all;
    }

    static std::string key_of(const call& c) {
        return concat("conv_gpu/", names[static_cast<std::size_t>(c.phase)], ' ', cuda::properties().name, " cudnn ",
                      cudnnGetVersion(), is_half ? " half" : "", " bytes ", sizeof(T),
                      c.tensor_cores ? " tensor cores " : " ", c.may_fuse ? "bias " : "", c.g.to_string());
    }

    static void execute(const candidate& p, const call& c) {
        if (p) {
            gpu_workspace scratch(static_cast<std::size_t>(p->workspace));
            p->run(c.x, c.w, c.y, c.bias, scratch.data());
        } else {
            grid::conv_by_products<T>(
                cuda{}, c.phase, c.g, const_cast<T*>(c.x), const_cast<T*>(c.w), const_cast<T*>(c.y),
                [](bool trans_a, bool trans_b, index_t m, index_t n, index_t k, const T* a, index_t lda, const T* b,
                   index_t ldb, auto beta, auto* to, index_t ldc) {
                    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
                    lt_products::mine().run(product_of(s, a, b, to), decltype(beta){1}, a, b, beta, to, to);
                });
        }
        if (c.bias && !(p && p->with_bias))
            grid::add_to_rows(cuda{}, c.g.n * c.g.out_points(), c.g.c_out, c.bias, const_cast<T*>(c.y));
    }

    // Runs the call with what it returns. A plan that fails is dropped; where none is left, or cuDNN has none, products
    // of patches do it.
    static candidate choose(const call& c) {
        require(!cuda::is_recording(), "convolution ", c.g.to_string(),
                ": its plan is chosen while launches are recorded; run it once before");
        const std::string key = key_of(c);
        std::vector<candidate> plans;
        std::vector<const char*> known_as;
        std::string trouble = "no plan gives the same bits every time in these numbers";
        const auto add = [&](std::vector<cudnn::plan> more, const char* const* called) {
            for (cudnn::plan& p : more) plans.emplace_back(std::move(p)), known_as.push_back(*called++);
        };
        if (c.may_fuse) add(fused_plans(c), fused_names.data());
        try {
            add(cudnn::plans_for(cudnn::convolution_graph<T>(c.phase, c.g), false, c.tensor_cores, plan_names.size(),
                                 most_workspace),
                plan_names.data());
        } catch (const cudnn::refusal& e) {
            trouble = e.what();
        }
        for (;;) {
            if (plans.empty()) {
                std::fprintf(stderr, "warning: %s: products of patches instead, which are slower: %s\n", key.c_str(),
                             trouble.c_str());
                plans.emplace_back(), known_as.push_back("products");
            }
            std::optional<std::size_t> best;
            try {
                // Every plan overwrites the same result with nearly the same numbers; the chosen one runs last.
                best = autotune_cache::global().get_or_measure(key, known_as, [&] {
                    return [&](std::size_t i) {
                        execute(plans[i], c);
                        cuda::wait();
                    };
                });
                execute(plans[*best], c);
                return std::move(plans[*best]);
            } catch (const error& e) {
                if (!plans.front()) throw;
                trouble = e.what();
            }
            if (!best) plans.clear(), known_as.clear();
            if (best) {
                plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(*best));
                known_as.erase(known_as.begin() + static_cast<std::ptrdiff_t>(*best));
            }
        }
    }

    // None where cuDNN refuses the graph as a whole.
    static std::vector<cudnn::plan> fused_plans(const call& c) {
        try {
            return cudnn::plans_for(cudnn::convolution_graph<T>(c.phase, c.g, true), true, c.tensor_cores,
                                    fused_names.size(), most_workspace);
        } catch (const error&) {
            return {};
        }
    }

    std::map<std::array<index_t, 25>, choice> chosen_;
};

/// W: of the weights, or of their gradient.
template <class T, class W = T>
void count_conv(const conv_geometry& g, index_t extra) {
    flop_counter::count(g.flops() + static_cast<double>(extra),
                        sizeof(T) * static_cast<double>(g.x_elements() + g.y_elements()) +
                            sizeof(W) * static_cast<double>(g.w_elements()));
}

/// cuDNN's type of element counts.
inline constexpr index_t most_conv_elements = (index_t{1} << 31) - 1;

}  // namespace detail

/// y (n, out…, c_out) = x (n, in…, c_in) * w (c_out, kernel…, c_in / groups) + bias (c_out, or null). x, w and y at
/// multiples of 16 bytes.
/// The bias is added before y is written where such a plan is the fastest: it then needs no pass over y.
template <class T>
void conv_forward(cuda, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    check(g);
    if (g.n == 0) return;
    grid::for_image_parts(g, detail::most_conv_elements, [&](const conv_geometry& part, index_t first) {
        detail::conv_plans<T>::mine().run(conv_phase::forward, part, x + first * g.in_points() * g.c_in, w,
                                          y + first * g.out_points() * g.c_out, bias);
    });
    detail::count_conv<T>(g, bias ? g.y_elements() : 0);
}

/// dx (n, in…, c_in) = gradient of <dy, x * w> with respect to x; then a bias (c_in, or null) is added to it.
template <class T>
void conv_backward_input(cuda d, const conv_geometry& g, const T* dy, const T* w, T* dx, const T* bias = nullptr) {
    check(g);
    if (g.n == 0) return;
    grid::for_image_parts(g, detail::most_conv_elements, [&](const conv_geometry& part, index_t first) {
        detail::conv_plans<T>::mine().run(conv_phase::backward_input, part, dx + first * g.in_points() * g.c_in, w,
                                          dy + first * g.out_points() * g.c_out);
    });
    if (bias) add_to_rows(d, g.n * g.in_points(), g.c_in, bias, dx);
    detail::count_conv<T>(g, 0);
}

/// dw (c_out, kernel…, c_in / groups) += gradient with respect to w, db (c_out, or null) += that with respect to bias.
/// W: T, or a type of more digits.
template <class T, class W>
void conv_backward_weight(cuda d, const conv_geometry& g, const T* x, const T* dy, W* dw, W* db) {
    check(g);
    if (g.n == 0) return;
    tensor<T, cuda> here({g.w_elements()}, memory_category::workspace);
    grid::for_image_parts(g, detail::most_conv_elements, [&](const conv_geometry& part, index_t first) {
        detail::conv_plans<T>::mine().run(conv_phase::backward_weight, part, x + first * g.in_points() * g.c_in,
                                          here.data(), dy + first * g.out_points() * g.c_out);
        for_each(d, g.w_elements(), grid::add_rule<T, W>{}, dw, here.data());
    });
    if (db) grid::column_sums(d, g.n * g.out_points(), g.c_out, dy, db, true);
    detail::count_conv<T, W>(g, db ? g.y_elements() : 0);
}

}  // namespace cairn
