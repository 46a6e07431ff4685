#pragma once
// Gradient of a convolution's input in bfloat16 or float16, added onto a gradient that is there: what the two ways
// through a residual block say of its input. dx ← dx + (gradient of <dy, x * w>). "apart": today's plan into memory of
// its own, then a pass that adds; or plans that add what they read of dx before they round ("onto0", …, cuDNN's β = 1),
// by measurement (conv_autotune.hpp).
// Bytes moved: dy, w, dx read and written; "apart" the gradient twice more.

#include <cairn/device/cuda/array_sums.hpp>
#include <cairn/device/cuda/conv_autotune.hpp>
#include <cairn/device/cuda/for_each.hpp>

#include <array>

namespace cairn::detail {

struct term_square_difference {
    template <class T>
    CAIRN_HD double operator()(T x, T y) const {
        const double d = static_cast<double>(x) - static_cast<double>(y);
        return d * d;
    }
};

/// The chosen plans of the calling thread. D: where our own kernels are launched.
template <class T, GridDevice D>
class conv_onto_plans {
public:
    static conv_onto_plans& mine() {
        thread_local conv_onto_plans all;
        return all;
    }

    struct call {
        conv_geometry g;
        const T *dy, *w;
        T* dx;
        call with(T* other) const { return {g, dy, w, other}; }
    };

    /// dx += the gradient. apart(to): the gradient alone, not counted as work.
    template <class Apart>
    void run(const call& c, Apart&& apart) {
        tensor<T, D> scratch;  // measured runs add to it, one after another
        const auto plans = [&] {
            std::vector<named_plan> all;
            add_plans(all, names,
                      [&] { return cudnn::convolution_graph<T>(conv_phase::backward_input, c.g, false, true); });
            return all;
        };
        const auto once = [&](const candidate& p) {
            if (scratch.empty()) scratch = copy_of(c);
            execute(p, c.with(scratch.data()), apart);
            D::wait();
        };
        execute(chosen_.of(
                    c.g, "conv_onto_gpu/backward_input", plans, [&](const cudnn::plan& p) { return adds(p, c, apart); },
                    once),
                c, apart);
    }

private:
    using candidate = typename conv_autotune<T>::candidate;
    static constexpr std::array<const char*, 6> names{"onto0", "onto1", "onto2", "onto3", "onto4", "onto5"};

    static tensor<T, D> copy_of(const call& c) {
        tensor<T, D> copy({c.g.x_elements()}, memory_category::workspace);
        D::copy_within(copy.data(), c.dx, copy.bytes());
        return copy;
    }

    template <class Apart>
    static void execute(const candidate& p, const call& c, Apart& apart) {
        if (p) return execute_plan(*p, c);
        tensor<T, D> gradient({c.g.x_elements()}, memory_category::workspace);
        apart(gradient.data());
        for_each(D{}, gradient.size(), functors::add{}, c.dx, static_cast<const T*>(gradient.data()));
    }

    static void execute_plan(const cudnn::plan& p, const call& c) {
        gpu_workspace scratch(static_cast<std::size_t>(p.workspace));
        p.run(c.dx, c.w, c.dy, nullptr, scratch.data());
    }

    // Near what apart gives, whose gradient is rounded once more.
    template <class Apart>
    static bool adds(const cudnn::plan& p, const call& c, Apart& apart) {
        const tensor<T, D> one = copy_of(c), other = copy_of(c);
        execute_plan(p, c.with(const_cast<T*>(one.data())));
        execute(std::nullopt, c.with(const_cast<T*>(other.data())), apart);
        const index_t n = one.size();
        const auto sum = [&](auto term, const auto*... of) {
            return grid::waited_for(D{}, [&](double* out) { grid::sum_into(D{}, out, n, term, of...); });
        };
        return sum(term_square_difference{}, one.data(), other.data()) <=
               sum(grid::term_square{}, other.data()) / 1024;  // 2⁻⁵ of it
    }

    conv_autotune<T> chosen_;
};

/// dx (n, in…, c_in) += gradient of <dy, x * w> with respect to x. apart(to): that gradient alone, not counted as work.
/// n ≥ 1; no tensor beyond what cuDNN counts.
template <GridDevice D, class T, class Apart>
void conv_onto_by_choice(const conv_geometry& g, const T* dy, const T* w, T* dx, Apart&& apart) {
    conv_onto_plans<T, D>::mine().run({g, dy, w, dx}, apart);
}

}  // namespace cairn::detail
