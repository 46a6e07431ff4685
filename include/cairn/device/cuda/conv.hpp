#pragma once
// Convolution on the GPU through cuDNN's graph interface (cudnn.hpp), channels last. The plan of each shape and phase is chosen by measurement
// among cuDNN's first suggestions, and entered into the record of choices (device/choices.hpp), so that a resumed run takes the same. Plans that
// do not give the same bits every time are left out; float runs in float, or in TF32 where gpu_float_products() says so.
// A bias is measured both ways, in the graph of forward ("fused0", …) and as a pass behind a plain plan ("plan0", …): not every engine takes it.

#include <cairn/core/work.hpp>
#include <cairn/device/choices.hpp>
#include <cairn/device/cuda/cublaslt.hpp>
#include <cairn/device/cuda/cudnn.hpp>
#include <cairn/device/cuda/matrices.hpp>

#include <array>
#include <iterator>
#include <map>
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

    /// Runs the phase; x, w, y hold dx, dw, dy where the phase makes them. Forward adds the bias (c_out), if it is not null.
    void run(conv_phase phase, const conv_geometry& g, const T* x, const T* w, const T* y, const T* bias = nullptr) {
        require(common_alignment(x, w, y) >= 16, "convolution ", g.to_string(),
                ": cuDNN wants addresses that are multiples of 16 bytes");
        const bool tensor_cores = sizeof(T) == 2 || (sizeof(T) == 4 && gpu_float_products() == float_products::tf32);
        const bool may_fuse = bias && common_alignment(bias) >= 16;
        const std::string key =
            concat("conv_gpu/", names[static_cast<std::size_t>(phase)], ' ', cuda::properties().name, " cudnn ",
                   cudnnGetVersion(), is_half ? " half" : "", " bytes ", sizeof(T),
                   tensor_cores ? " tensor cores " : " ", may_fuse ? "bias " : "", g.to_string());
        const std::uint64_t epoch = choices::global().epoch();
        auto found = chosen_.find(key);
        if (found == chosen_.end() || found->second.epoch != epoch)
            found =
                chosen_
                    .insert_or_assign(key, choice{choose(key, phase, g, tensor_cores, may_fuse, x, w, y, bias), epoch})
                    .first;
        execute(found->second.plan, g, x, w, y, bias);
    }

private:
    struct choice {
        cudnn::plan plan;
        std::uint64_t epoch;  // of the registry: it may have another answer since
    };
    static constexpr std::array<const char*, 3> names{"forward", "backward_input", "backward_weight"};
    static constexpr std::array<const char*, 2> fused_names{"fused0", "fused1"};
    static constexpr std::array<const char*, 8> plan_names{"plan0", "plan1", "plan2", "plan3",
                                                           "plan4", "plan5", "plan6", "plan7"};
    static constexpr index most_workspace = index{1} << 30;
    static constexpr bool is_half = std::is_same_v<T, float16>;  // as long as bfloat16

    static void execute(const cudnn::plan& p, const conv_geometry& g, const T* x, const T* w, const T* y,
                        const T* bias) {
        {
            gpu_workspace scratch(static_cast<std::size_t>(p.workspace));
            p.run(x, w, y, bias, scratch.data());
        }
        if (bias && !p.with_bias) grid::add_to_rows(cuda{}, g.n * g.out_points(), g.c_out, bias, const_cast<T*>(y));
    }

    static cudnn::plan choose(const std::string& key, conv_phase phase, const conv_geometry& g, bool tensor_cores,
                              bool may_fuse, const T* x, const T* w, const T* y, const T* bias) {
        std::vector<cudnn::plan> plans = cudnn::plans_for(cudnn::convolution_graph<T>(phase, g), false, tensor_cores,
                                                          plan_names.size(), most_workspace);
        require(!plans.empty(), "convolution: cuDNN ", cudnnGetVersion(), " has no plan for ",
                names[static_cast<std::size_t>(phase)], ' ', g.to_string(), " in ",
                is_half          ? "float16"
                : sizeof(T) == 2 ? "bfloat16"
                : sizeof(T) == 4 ? "float"
                                 : "double");
        std::vector<const char*> candidates(plan_names.begin(),
                                            plan_names.begin() + static_cast<std::ptrdiff_t>(plans.size()));
        if (may_fuse) {
            std::vector<cudnn::plan> fused = fused_plans(phase, g, tensor_cores);
            candidates.insert(candidates.begin(), fused_names.begin(),
                              fused_names.begin() + static_cast<std::ptrdiff_t>(fused.size()));
            plans.insert(plans.begin(), std::make_move_iterator(fused.begin()), std::make_move_iterator(fused.end()));
        }
        // Every plan overwrites the same result with nearly the same numbers; the chosen one runs last.
        const std::size_t best = choices::global().get_or_measure(key, candidates, [&] {
            return [&](std::size_t i) {
                execute(plans[i], g, x, w, y, bias);
                cuda::wait();
            };
        });
        return std::move(plans[best]);
    }

    // None where cuDNN refuses the graph as a whole.
    static std::vector<cudnn::plan> fused_plans(conv_phase phase, const conv_geometry& g, bool tensor_cores) {
        try {
            return cudnn::plans_for(cudnn::convolution_graph<T>(phase, g, true), true, tensor_cores, fused_names.size(),
                                    most_workspace);
        } catch (const error&) {
            return {};
        }
    }

    std::map<std::string, choice> chosen_;
};

template <class T>
void count_conv(const conv_geometry& g, index extra) {
    work::count(g.flops() + static_cast<double>(extra),
                static_cast<double>(g.x_elements() + g.y_elements() + g.w_elements()) * sizeof(T));
}

}  // namespace detail

/// y (n, out…, c_out) = x (n, in…, c_in) * w (c_out, kernel…, c_in / groups) + bias (c_out, or null). x, w and y at multiples of 16 bytes.
/// The bias is added before y is written where such a plan is the fastest: it then needs no pass over y.
template <class T>
void conv_forward(cuda, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    check(g);
    if (g.n == 0) return;
    detail::conv_plans<T>::mine().run(conv_phase::forward, g, x, w, y, bias);
    detail::count_conv<T>(g, bias ? g.y_elements() : 0);
}

/// dx (n, in…, c_in) = gradient of <dy, x * w> with respect to x.
template <class T>
void conv_backward_input(cuda, const conv_geometry& g, const T* dy, const T* w, T* dx) {
    check(g);
    if (g.n == 0) return;
    detail::conv_plans<T>::mine().run(conv_phase::backward_input, g, dx, w, dy);
    detail::count_conv<T>(g, 0);
}

/// dw (c_out, kernel…, c_in / groups) += gradient with respect to w, db (c_out, or null) += that with respect to bias. W: T, or a type of
/// more digits.
template <class T, class W>
void conv_backward_weight(cuda d, const conv_geometry& g, const T* x, const T* dy, W* dw, W* db) {
    check(g);
    if (g.n == 0) return;
    tensor<T, cuda> here({g.w_elements()}, category::workspace);
    detail::conv_plans<T>::mine().run(conv_phase::backward_weight, g, x, here.data(), dy);
    for_each(d, g.w_elements(), grid::add_rule<T, W>{}, dw, here.data());
    if (db) grid::column_sums(d, g.n * g.out_points(), g.c_out, dy, db, true);
    detail::count_conv<T>(g, db ? g.y_elements() : 0);
}

}  // namespace cairn
