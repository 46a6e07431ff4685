#pragma once
// Lab 3, task 4: the mean of compressed gradients over the ranks, and error feedback.
//
// A method is one of two kinds:
//   messages       method.encode(values) → bytes, method.decode(bytes, into): topk, sign. Messages cannot be added, so
//                  every rank gets all of them. Their number of bytes is the same on all ranks.
//   its own sums   method.reduce(c, values, mean): powersgd. What it sends of each rank is the mean itself.

#include <cairn/comm/collectives/all_gather.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace student {

/// mean: the mean over the ranks of what their messages decode to, the same bits on each. sent: what this rank's own
/// message decodes to. One all-gather: c.size() − 1 messages a rank. Any number of values; the three spans have the
/// same size and do not overlap.
template <class C, class Method>
void reduce_mean(C& c, Method& method, std::span<const float> values, std::span<float> mean, std::span<float> sent) {
    if constexpr (requires { method.reduce(c, values, mean); }) {  // given
        method.reduce(c, values, mean);
        std::copy(mean.begin(), mean.end(), sent.begin());
    } else {
        //! solution
        const auto p = static_cast<std::size_t>(c.size()), me = static_cast<std::size_t>(c.rank());
        const std::vector<std::byte> mine = method.encode(values);
        const std::size_t bytes = mine.size();
        std::vector<std::byte> all(p * bytes);
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(me * bytes));
        cairn::all_gather(c, std::span<std::byte>(all));
        std::fill(mean.begin(), mean.end(), 0.0f);
        std::vector<float> decoded(values.size());
        for (std::size_t r = 0; r < p; ++r) {
            method.decode(std::span<const std::byte>(all).subspan(r * bytes, bytes), decoded);
            for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += decoded[i];
            if (r == me) std::copy(decoded.begin(), decoded.end(), sent.begin());
        }
        for (float& v : mean) v /= static_cast<float>(p);
        //! starter
        // throw std::logic_error("task 4: reduce_mean is not written yet");
        //! end
    }
}

/// A method with error feedback: what one step does not send is added to the next gradient.
///   x = gradient + e;   x is sent;   e = x − what was sent of it
/// Hence Σ sent + e = Σ gradients, on each rank, after any number of steps.
template <class Method>
class error_feedback {
public:
    explicit error_feedback(Method method) : method_(std::move(method)) {}

    /// mean ≈ the mean of the gradients of all ranks. Every call has as many values.
    template <class C>
    void reduce(C& c, std::span<const float> gradient, std::span<float> mean) {
        //! solution
        const std::size_t n = gradient.size();
        residual_.resize(n);
        std::vector<float> x(n), sent(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + residual_[i];
        reduce_mean(c, method_, std::span<const float>(x), mean, std::span<float>(sent));
        for (std::size_t i = 0; i < n; ++i) residual_[i] = x[i] - sent[i];
        //! starter
        // (void)c, (void)gradient, (void)mean;
        // throw std::logic_error("task 4: error_feedback::reduce is not written yet");
        //! end
    }

    /// e; empty before the first step.
    std::span<const float> residual() const { return residual_; }

private:
    Method method_;
    std::vector<float> residual_;
};

}  // namespace student
