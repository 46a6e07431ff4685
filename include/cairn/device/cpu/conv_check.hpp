#pragma once
// Whether a convolution algorithm computes what another one does, on random normal operands between guard values.
// autotune.hpp asks before it measures an algorithm; a kernel that is wrong, or goes beyond its operands, is rejected.
//
//   operands   standard normal numbers, repeated after 8,191 of them: a block that no stride hits twice alike
//   forward    with bias and without; weight gradients are accumulated
//   limit      2^-7 (results in bfloat16), 1e-3 (float) or 1e-10 (double) of the largest value: above any rounding,
//              far below what a fault leaves
//
// Memory while it lasts: copies of both operands, and the result twice.

#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/simd_bfloat16.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace cairn::conv_detail {

/// The operands of a phase: forward (x, w, bias → y), backward_input (dy, w → dx), backward_weight (x, dy → dw). The
/// result is of T; weight gradients of bfloat16 are of float.
template <class T, class R = T>
struct operands {
    const T *x, *w, *bias;
    R* y;
};

/// An array with guard values before and behind it.
template <class T>
class guarded_array {
public:
    guarded_array(index_t size, std::uint32_t stream) : size_(size), stream_(stream) {
        all_ = tensor<T>({size + 2 * guards}, memory_category::workspace);
        std::fill(all_.data(), all_.data() + all_.size(), guard);
        fill();
    }

    T* data() { return all_.data() + guards; }
    index_t size() const { return size_; }
    /// Sets all elements to the random numbers that belong here.
    void fill() {
        const std::vector<T>& numbers = block(stream_);
        for (index_t i = 0; i < size_; ++i) data()[i] = numbers[static_cast<std::size_t>(i % period)];
    }
    bool guards_intact() const {
        const auto is_guard = [](T v) { return v == guard; };
        const T *first = all_.data(), *end = first + all_.size();
        return std::all_of(first, first + guards, is_guard) && std::all_of(end - guards, end, is_guard);
    }
    bool unchanged() {
        const std::vector<T>& numbers = block(stream_);
        for (index_t i = 0; i < size_; ++i)
            if (data()[i] != numbers[static_cast<std::size_t>(i % period)]) return false;
        return guards_intact();
    }

private:
    static constexpr index_t guards = 1024, period = 8191;
    static constexpr T guard = static_cast<T>(-1.2345e30f);  // large: it shows in what is computed from it

    static const std::vector<T>& block(std::uint32_t stream) {
        const auto draw = [](std::uint32_t s) {
            std::vector<T> numbers(static_cast<std::size_t>(period));
            for (std::size_t i = 0; i < numbers.size(); ++i)
                numbers[i] = static_cast<simd::arithmetic<T>>(random_stream{2606, s, 0}.normal(i));
            return numbers;
        };
        static const std::vector<T> blocks[4] = {draw(0), draw(1), draw(2), draw(3)};
        return blocks[stream];
    }

    index_t size_;
    std::uint32_t stream_;
    tensor<T> all_;
};

/// Compares algorithms of one phase and shape with `reference`, a callable on operands<T, R>.
template <class T, class R = T>
class conv_checker {
public:
    template <class Reference>
    conv_checker(conv_phase phase, const conv_geometry& g, Reference&& reference)
        : adds_(phase == conv_phase::backward_weight),
          x_(phase == conv_phase::backward_input ? g.y_elements() : g.x_elements(), 0),
          w_(adds_ ? g.y_elements() : g.w_elements(), 1),
          bias_(phase == conv_phase::forward ? g.c_out : 0, 2),
          got_(phase == conv_phase::forward ? g.y_elements()
               : adds_                      ? g.w_elements()
                                            : g.x_elements(),
               3) {
        clear();
        reference(operands<T, R>{x_.data(), w_.data(), nullptr, got_.data()});
        std::copy(got_.data(), got_.data() + got_.size(), expected_.data());
        for (index_t i = 0; i < got_.size(); ++i)
            scale_ = std::max(scale_, std::abs(static_cast<double>(expected_[i])));
    }

    /// The fault of `algorithm`, a callable on operands<T, R>; "" for none.
    template <class Algorithm>
    std::string fault(Algorithm&& algorithm) {
        for (const bool biased : {false, true}) {
            if (biased && bias_.size() == 0) continue;
            clear();
            algorithm(operands<T, R>{x_.data(), w_.data(), biased ? bias_.data() : nullptr, got_.data()});
            if (!got_.guards_intact()) return "writes beyond its result";
            if (!x_.unchanged() || !w_.unchanged() || !bias_.unchanged()) return "writes to its input";
            const double error = largest_error(biased);
            if (!(error <= limit)) return concat("relative error ", error, biased ? " with bias" : "");
        }
        return "";
    }

private:
    static constexpr double limit = sizeof(R) == 8 ? 1e-10 : sizeof(R) == 4 ? 1e-3 : 0x1p-7;

    // Weight gradients are accumulated; all other results are overwritten.
    void clear() {
        got_.fill();
        if (!adds_)
            std::fill(got_.data(), got_.data() + got_.size(), static_cast<R>(std::numeric_limits<float>::quiet_NaN()));
    }

    double largest_error(bool biased) {
        double worst = 0, scale = scale_;
        for (index_t i = 0; i < got_.size(); ++i) {
            const double expected = static_cast<double>(expected_[i]) +
                                    (biased ? static_cast<double>(bias_.data()[i % bias_.size()]) : 0.0);
            const double e = std::abs(static_cast<double>(got_.data()[i]) - expected);
            if (std::isnan(e)) return e;
            worst = std::max(worst, e);
            scale = std::max(scale, std::abs(expected));  // a bias may lift all values into coarser numbers
        }
        return worst / scale;
    }

    bool adds_;
    guarded_array<T> x_, w_, bias_;
    guarded_array<R> got_;
    tensor<R> expected_{tensor<R>({got_.size()}, memory_category::workspace)};
    double scale_ = 1e-30;
};

}  // namespace cairn::conv_detail
