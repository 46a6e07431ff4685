#pragma once
// Convolution on the GPU through cuDNN's graph interface (cudnn.hpp), channels last. The plan of each shape and phase is chosen by measurement
// among cuDNN's first suggestions, and entered into the record of choices (device/choices.hpp), so that a resumed run takes the same. Plans that
// do not give the same bits every time are left out; float runs in float, or in TF32 where gpu_float_products() says so.

#include <cairn/core/work.hpp>
#include <cairn/device/choices.hpp>
#include <cairn/device/cuda/cudnn.hpp>
#include <cairn/device/cuda/gemm.hpp>

#include <map>
#include <string>

namespace cairn {

namespace detail {

/// y += x.
template <class T, class W>
struct add_rule {
    CAIRN_HD void operator()(W& y, T x) const {
        y = static_cast<W>(static_cast<grid::sum_type<T>>(y) + static_cast<grid::sum_type<T>>(x));
    }
};

/// The chosen plans of the calling thread.
template <class T>
class conv_plans {
public:
    static conv_plans& mine() {
        thread_local conv_plans all;
        return all;
    }

    /// Runs the phase; x, w, y hold dx, dw, dy where the phase makes them.
    void run(conv_phase phase, const conv_geometry& g, const void* x, const void* w, const void* y) {
        require(common_alignment(x, w, y) >= 16, "convolution: cuDNN wants addresses that are multiples of 16 bytes");
        const bool tensor_cores = sizeof(T) == 2 || (sizeof(T) == 4 && gpu_float_products() == float_products::tf32);
        const std::string key = concat("conv_gpu/", names[static_cast<std::size_t>(phase)], ' ',
                                       cuda::properties().name, " cudnn ", cudnnGetVersion(), is_half ? " half" : "",
                                       " bytes ", sizeof(T), tensor_cores ? " tensor cores " : " ", g.to_string());
        auto found = chosen_.find(key);
        if (found == chosen_.end()) found = chosen_.emplace(key, choose(key, phase, g, tensor_cores, x, w, y)).first;
        execute(found->second, x, w, y);
    }

private:
    static constexpr std::array<const char*, 3> names{"forward", "backward_input", "backward_weight"};
    static constexpr std::array<const char*, 8> plan_names{"plan0", "plan1", "plan2", "plan3",
                                                           "plan4", "plan5", "plan6", "plan7"};
    static constexpr index most_workspace = index{1} << 30;
    static constexpr bool is_half = std::is_same_v<T, float16>;  // as long as bfloat16

    static void execute(const cudnn::plan& p, const void* x, const void* w, const void* y) {
        gpu_workspace scratch(static_cast<std::size_t>(p.workspace));
        p.run(x, w, y, scratch.data());
    }

    static cudnn::plan choose(const std::string& key, conv_phase phase, const conv_geometry& g, bool tensor_cores,
                              const void* x, const void* w, const void* y) {
        std::vector<cudnn::plan> plans =
            cudnn::plans_for(cudnn::convolution_graph<T>(phase, g), tensor_cores, plan_names.size(), most_workspace);
        require(!plans.empty(), "convolution: cuDNN ", cudnnGetVersion(), " has no plan for ",
                names[static_cast<std::size_t>(phase)], ' ', g.to_string(), " in ",
                is_half          ? "float16"
                : sizeof(T) == 2 ? "bfloat16"
                : sizeof(T) == 4 ? "float"
                                 : "double");
        // Every plan overwrites the same result with nearly the same numbers; the chosen one runs last.
        const std::size_t best = choices::global().get_or_measure(key, std::span(plan_names).first(plans.size()), [&] {
            return [&](std::size_t i) {
                execute(plans[i], x, w, y);
                cuda::wait();
            };
        });
        return std::move(plans[best]);
    }

    std::map<std::string, cudnn::plan> chosen_;
};

template <class T>
void count_conv(const conv_geometry& g, index extra) {
    work::count(g.flops() + static_cast<double>(extra),
                static_cast<double>(g.x_elements() + g.y_elements() + g.w_elements()) * sizeof(T));
}

}  // namespace detail

/// y (n, out…, c_out) = x (n, in…, c_in) * w (c_out, kernel…, c_in / groups) + bias (c_out, or null).
template <class T>
void conv_forward(cuda d, const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    if (g.n == 0) return;
    detail::conv_plans<T>::mine().run(conv_phase::forward, g, x, w, y);
    if (bias) grid::add_to_rows(d, g.n * g.out_points(), g.c_out, bias, y);
    detail::count_conv<T>(g, bias ? g.y_elements() : 0);
}

/// dx (n, in…, c_in) = gradient of <dy, x * w> with respect to x.
template <class T>
void conv_backward_input(cuda, const conv_geometry& g, const T* dy, const T* w, T* dx) {
    if (g.n == 0) return;
    detail::conv_plans<T>::mine().run(conv_phase::backward_input, g, dx, w, dy);
    detail::count_conv<T>(g, 0);
}

/// dw (c_out, kernel…, c_in / groups) += gradient with respect to w, db (c_out, or null) += that with respect to bias. W: T, or a type of
/// more digits.
template <class T, class W>
void conv_backward_weight(cuda d, const conv_geometry& g, const T* x, const T* dy, W* dw, W* db) {
    if (g.n == 0) return;
    tensor<T, cuda> here({g.w_elements()}, category::workspace);
    detail::conv_plans<T>::mine().run(conv_phase::backward_weight, g, x, here.data(), dy);
    for_each(d, g.w_elements(), detail::add_rule<T, W>{}, dw, here.data());
    if (db) grid::column_sums(d, g.n * g.out_points(), g.c_out, dy, db, true);
    detail::count_conv<T>(g, db ? g.y_elements() : 0);
}

}  // namespace cairn
