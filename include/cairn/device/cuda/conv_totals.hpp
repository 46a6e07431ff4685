#pragma once
// Convolution of bfloat16 or float16 that leaves Σ y and Σ y² of each channel for the batch norm behind it, where that is faster than a pass over y:
// "apart" (today's plan, then batch_statistics()) or graphs of cuDNN's that add up in their epilogue (cudnn_conv_totals.hpp: "result0", … and
// "sums0", …), by measurement for each shape, entered into the record of choices (device/choices.hpp), so that a resumed run takes the same.
// Left out are plans that may give other bits each time, and those whose totals, tried once on the call's own numbers, are not the same twice
// or not those of y.
// Bytes moved: x, w, y; "apart" y once more.

#include <cairn/core/work.hpp>
#include <cairn/device/choices.hpp>
#include <cairn/device/cuda/batch_norm.hpp>
#include <cairn/device/cuda/cudnn_conv_totals.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn::detail {

/// The chosen plans of the calling thread. D: where our own kernels are launched.
template <class T, GridDevice D>
class conv_totals_plans {
    static_assert(sizeof(T) == 2, "totals of float results lose too many digits");

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
        index rows() const { return g.n * g.out_points(); }
    };

    /// y of the call; whether the totals are made as well. apart(): y alone, not counted as work.
    template <class Apart>
    bool run(const call& c, Apart&& apart) {
        const std::uint64_t epoch = choices::global().epoch();
        auto known = std::find_if(chosen_.begin(), chosen_.end(), [&](const choice& one) { return one.g == c.g; });
        if (known != chosen_.end() && known->epoch != epoch) known = (chosen_.erase(known), chosen_.end());
        if (known == chosen_.end()) known = chosen_.insert(chosen_.end(), choice{c.g, choose(c, apart), epoch});
        execute(known->plan, c, apart);
        return known->plan.has_value();
    }

private:
    using candidate = std::optional<cudnn::plan>;  // none: apart
    struct choice {
        conv_geometry g;
        candidate plan;
        std::uint64_t epoch;  // of the registry: it may have another answer since
    };
    static constexpr std::array<const char*, 2> result_names{"result0", "result1"};
    static constexpr std::array<const char*, 4> sums_names{"sums0", "sums1", "sums2", "sums3"};
    static constexpr index most_workspace = index{1} << 30;

    template <class Apart>
    static candidate choose(const call& c, Apart& apart) {
        require(!cuda::is_recording(), "convolution ", c.g.to_string(),
                ": its plan is chosen while launches are recorded; run it once before");
        const std::string key =
            concat("conv_totals_gpu/forward ", cuda::properties().name, " cudnn ", cudnnGetVersion(),
                   std::is_same_v<T, float16> ? " float16 " : " bfloat16 ", c.g.to_string());
        std::vector<candidate> candidates{std::nullopt};
        std::vector<const char*> known_as{"apart"};
        const auto add = [&](cudnn::totals_form form, auto& names) {
            for (std::size_t i = 0; cudnn::plan & p : plans_of(form, c, names.size()))
                candidates.emplace_back(std::move(p)), known_as.push_back(names[i++]);
        };
        add(cudnn::totals_form::of_result, result_names);
        add(cudnn::totals_form::of_sums, sums_names);
        std::vector<std::optional<bool>> tried(candidates.size());
        tried[0] = true;
        const auto is_right = [&](std::size_t i) {
            if (!tried[i]) tried[i] = gives_totals(*candidates[i], c);
            return *tried[i];
        };
        tensor<float, D> statistics({2, c.g.c_out}, category::workspace);
        const std::size_t best = choices::global().get_or_measure(key, known_as, [&] {
            return [&](std::size_t i) {
                require(is_right(i), "its totals are not those of its result");
                execute(candidates[i], c, apart);
                statistics_of(candidates[i].has_value(), c, statistics);
                D::wait();
            };
        });
        for (std::size_t i = 0; i < candidates.size(); ++i)
            if (i == best ? !is_right(i) : tried[i] == false)
                std::fprintf(stderr, "warning: %s: %s leaves totals that are not those of its result; not used\n",
                             key.c_str(), known_as[i]);
        return std::move(candidates[is_right(best) ? best : 0]);
    }

    // None where cuDNN refuses the graph as a whole.
    static std::vector<cudnn::plan> plans_of(cudnn::totals_form form, const call& c, std::size_t most) {
        try {
            return cudnn::plans_for(cudnn::convolution_totals_graph<T>(form, c.g), false, true, most, most_workspace);
        } catch (const error&) {
            return {};
        }
    }

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

    // Totals that are the same twice, whatever was there before, and give y's mean and variance but for the rounding of y.
    static bool gives_totals(const cudnn::plan& p, const call& c) {
        const index channels = c.g.c_out;
        const auto made = [&](int before) {
            D::set_bytes(c.totals, before, 2 * channels * index{sizeof(float)});
            execute_plan(p, c);
            tensor<float> host({2 * channels}, category::workspace);
            D::copy_to_host(host.data(), c.totals, host.bytes());
            return host;
        };
        try {
            const tensor<float> once = made(0xff), again = made(0);
            tensor<float, D> of_totals({2, channels}, category::workspace),
                of_result({2, channels}, category::workspace);
            statistics_of(true, c, of_totals);
            statistics_of(false, c, of_result);
            const tensor<float> a = of_totals.on_host(), b = of_result.on_host();
            for (index i = 0; i < 2 * channels; ++i)
                if (!(once[i] == again[i])) return false;
            for (index i = 0; i < channels; ++i) {
                const double mean = double(b[i]), var = double(b[channels + i]), square = mean * mean + var;
                if (!(std::abs(double(a[i]) - mean) <= std::sqrt(square) / 128)) return false;
                if (!(std::abs(double(a[channels + i]) - var) <= square / 32)) return false;
            }
            return true;
        } catch (const error&) {
            return false;
        }
    }

    std::vector<choice> chosen_;
};

/// y (n, out…, c_out) = x * w without bias, and whether `totals` (2, c_out), float, have become Σ y and Σ y² of each channel, summed before y was
/// rounded or behind it. apart(): what makes y alone, not counted as work. n ≥ 1, and no tensor beyond what cuDNN counts.
template <GridDevice D, class T, class Apart>
bool conv_totals_by_choice(const conv_geometry& g, const T* x, const T* w, T* y, float* totals, Apart&& apart) {
    const auto aligned = [](const auto*... at) { return ((reinterpret_cast<std::uintptr_t>(at) % 16 == 0) && ...); };
    if (!aligned(x, w, y, totals, totals + g.c_out)) {
        apart();
        return false;
    }
    return conv_totals_plans<T, D>::mine().run({g, x, w, y, totals}, apart);
}

}  // namespace cairn::detail
