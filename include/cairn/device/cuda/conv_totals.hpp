#pragma once
// Convolution of bfloat16 or float16 that leaves Σ y and Σ y² of each channel for the batch norm behind it, where that
// is faster than a pass over y:
// "apart" (today's plan, then batch_statistics()) or graphs of cuDNN's that add up in their epilogue
// (cudnn_conv_totals.hpp: "result0", … and "sums0", …), by measurement (conv_autotune.hpp). Left out are plans that may
// give other bits each time, and those whose totals are not the same twice, whatever was there before, or not those of
// y.
// Bytes moved: x, w, y; "apart" y once more.

#include <cairn/device/cuda/batch_norm.hpp>
#include <cairn/device/cuda/conv_autotune.hpp>
#include <cairn/device/cuda/cudnn_conv_totals.hpp>

#include <array>
#include <cmath>
#include <vector>

namespace cairn::detail {

/// The chosen plans of the calling thread. D: where our own kernels are launched.
template <class T, GridDevice D>
class conv_totals_plans {
public:
    static conv_totals_plans& mine() {
        thread_local conv_totals_plans all;
        return all;
    }

    struct call {
        conv_geometry g;
        const T *x, *w;
        T* y;
        float* totals;  // (2, c_out)
        index_t rows() const { return g.n * g.out_points(); }
    };

    /// y of the call; whether the totals are made as well. apart(): y alone, not counted as work.
    template <class Apart>
    bool run(const call& c, Apart&& apart) {
        const auto plans = [&] {
            std::vector<named_plan> all;
            const auto graph = [&](cudnn::totals_form form) {
                return [&c, form] { return cudnn::convolution_totals_graph<T>(form, c.g); };
            };
            add_plans(all, result_names, graph(cudnn::totals_form::of_result));
            add_plans(all, sums_names, graph(cudnn::totals_form::of_sums));
            return all;
        };
        const auto once = [&](const candidate& p) {  // and what follows
            execute(p, c, apart);
            tensor<float, D> statistics({2, c.g.c_out}, memory_category::workspace);
            statistics_of(p.has_value(), c, statistics);
            D::wait();
        };
        const candidate& chosen = chosen_.of(
            c.g, "conv_totals_gpu/forward", plans, [&](const cudnn::plan& p) { return gives_totals(p, c); }, once);
        execute(chosen, c, apart);
        return chosen.has_value();
    }

private:
    using candidate = typename conv_autotune<T>::candidate;
    static constexpr std::array<const char*, 2> result_names{"result0", "result1"};
    static constexpr std::array<const char*, 4> sums_names{"sums0", "sums1", "sums2", "sums3"};

    template <class Apart>
    static void execute(const candidate& p, const call& c, Apart& apart) {
        p ? execute_plan(*p, c) : apart();
    }

    static void execute_plan(const cudnn::plan& p, const call& c) {
        const std::array<std::int64_t, 5> ids{cudnn::id_x, cudnn::id_w, cudnn::id_y, cudnn::id_total,
                                              cudnn::id_square_total};
        const std::array<const void*, 5> at{c.x, c.w, c.y, c.totals, c.totals + c.g.c_out};
        gpu_workspace scratch(static_cast<std::size_t>(p.workspace));
        p.run(ids, at, scratch.data(), "running a convolution with totals");
    }

    static void statistics_of(bool has_totals, const call& c, tensor<float, D>& to) {
        float *const mean = to.data(), *const var = mean + c.g.c_out;
        if (has_totals)
            grid::statistics_of_totals(D{}, c.rows(), c.g.c_out, static_cast<const T*>(c.y), c.totals, mean, var);
        else
            grid::statistics(D{}, c.rows(), c.g.c_out, static_cast<const T*>(c.y), mean, var);
    }

    // Totals that are the same twice, whatever was there before, and give y's mean and variance but for the rounding of
    // y.
    static bool gives_totals(const cudnn::plan& p, const call& c) {
        const index_t channels = c.g.c_out;
        const auto made = [&](int before) {
            D::set_bytes(c.totals, before, 2 * channels * index_t{sizeof(float)});
            execute_plan(p, c);
            tensor<float> host({2 * channels}, memory_category::workspace);
            D::copy_to_host(host.data(), c.totals, host.bytes());
            return host;
        };
        const tensor<float> once = made(0xff), again = made(0);
        tensor<float, D> of_totals({2, channels}, memory_category::workspace),
            of_result({2, channels}, memory_category::workspace);
        statistics_of(true, c, of_totals);
        statistics_of(false, c, of_result);
        const tensor<float> a = of_totals.on_host(), b = of_result.on_host();
        for (index_t i = 0; i < 2 * channels; ++i)
            if (!(once[i] == again[i])) return false;
        for (index_t i = 0; i < channels; ++i) {
            const double mean = double(b[i]), var = double(b[channels + i]), square = mean * mean + var;
            if (!(std::abs(double(a[i]) - mean) <= std::sqrt(square) / 128)) return false;
            if (!(std::abs(double(a[channels + i]) - var) <= square / 32)) return false;
        }
        return true;
    }

    conv_autotune<T> chosen_;
};

/// y (n, out…, c_out) = x * w without bias, and whether `totals` (2, c_out), float, have become Σ y and Σ y² of each
/// channel, summed before y was rounded or behind it. apart(): what makes y alone, not counted as work. n ≥ 1, and no
/// tensor beyond what cuDNN counts.
template <GridDevice D, class T, class Apart>
bool conv_totals_by_choice(const conv_geometry& g, const T* x, const T* w, T* y, float* totals, Apart&& apart) {
    if (!cudnn::aligned(x, w, y, totals, totals + g.c_out)) {
        apart();
        return false;
    }
    return conv_totals_plans<T, D>::mine().run({g, x, w, y, totals}, apart);
}

}  // namespace cairn::detail
