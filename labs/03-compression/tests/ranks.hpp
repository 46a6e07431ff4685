#pragma once
// Shared by the tests of this lab: arrays drawn from the seed, messages put together and taken apart, and the
// submission's methods on ranks.

#include "judge.hpp"

#include <cairn/core/random.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace lab {

using arrays = std::vector<std::vector<float>>;  // [rank][element]

inline constexpr double epsilon = std::numeric_limits<float>::epsilon();

/// Two arrays of each rank.
struct both {
    arrays first, second;
    std::vector<lab::sent> sent;
};
inline both halved(outcome<std::pair<std::vector<float>, std::vector<float>>> of) {
    both all;
    for (auto& [a, b] : of.results) all.first.push_back(std::move(a)), all.second.push_back(std::move(b));
    all.sent = std::move(of.sent);
    return all;
}

/// The means, and what each rank sent.
inline both reduce_mean(const std::string& method, const arrays& x) {
    return halved(on_ranks<std::pair<std::vector<float>, std::vector<float>>>(
        static_cast<int>(x.size()), "reduce_mean",
        [&](int r) { return std::tuple(method, x[static_cast<std::size_t>(r)]); }));
}
/// Error feedback on all ranks.
class feedback {
public:
    feedback(int ranks, const std::string& method, int which = 1) : which_(which) {
        on_ranks<void>(ranks, "error_feedback", [&](int) { return std::tuple(which, method); });
    }
    /// The means and the residuals.
    both reduce(const arrays& gradients) const {
        return halved(on_ranks<std::pair<std::vector<float>, std::vector<float>>>(
            static_cast<int>(gradients.size()), "error_feedback::reduce",
            [&](int r) { return std::tuple(which_, gradients[static_cast<std::size_t>(r)]); }));
    }

private:
    int which_;
};
/// PowerSGD on all ranks.
class low_rank {
public:
    low_rank(int ranks, std::size_t rows, std::size_t cols, std::size_t rank, int which = 1) : which_(which) {
        on_ranks<void>(ranks, "powersgd", [&](int) { return std::tuple(which, rows, cols, rank, seed()); });
    }
    /// results: the means.
    outcome<std::vector<float>> reduce(const arrays& m) const {
        return on_ranks<std::vector<float>>(static_cast<int>(m.size()), "powersgd::reduce",
                                            [&](int r) { return std::tuple(which_, m[static_cast<std::size_t>(r)]); });
    }

private:
    int which_;
};

/// `quarters` of a value.
inline float quarter(float v) { return std::trunc(4 * v) / 4; }

/// n numbers in (−1, 1) on each of p ranks.
inline arrays numbers_on(int p, std::size_t n, std::uint32_t stream) {
    arrays all;
    for (int r = 0; r < p; ++r) all.push_back(numbers(n, stream + static_cast<std::uint32_t>(r)));
    return all;
}

inline std::span<const float> view(const std::vector<float>& v) { return v; }

/// The number at byte `at` of a message; the message is known to be long enough.
template <class T>
T number_at(const std::vector<std::byte>& message, std::size_t at) {
    T value;
    std::memcpy(&value, message.data() + at, sizeof value);
    return value;
}
template <class T>
void append(std::vector<std::byte>& message, T value) {
    message.resize(message.size() + sizeof value);
    std::memcpy(message.data() + message.size() - sizeof value, &value, sizeof value);
}

/// Σ (a − b)², in double; b may be left out. NaN where a value is NaN.
inline double square(std::span<const float> a, std::span<const float> b = {}) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - (b.empty() ? 0.0 : static_cast<double>(b[i]));
        sum += d * d;
    }
    return sum;
}

/// A byte as bits, the lowest last: "0b00000101".
inline std::string bits(std::byte byte) {
    std::string all = "0b";
    for (int i = 7; i >= 0; --i) all += static_cast<int>(byte) >> i & 1 ? '1' : '0';
    return all;
}

/// Empty, or what is wrong with a message of topk that should have the values of `x` at `positions`.
inline std::string fault_of_top(const bytes& message, const std::vector<float>& x,
                                const std::vector<std::uint32_t>& positions) {
    const std::size_t k = positions.size();
    if (message.size() != 4 + 8 * k)
        return "the message has " + std::to_string(message.size()) + " bytes, expected " + std::to_string(4 + 8 * k);
    if (number_at<std::uint32_t>(message, 0) != k)
        return "the message says k = " + std::to_string(number_at<std::uint32_t>(message, 0)) + ", expected " +
               std::to_string(k);
    for (std::size_t i = 0; i < k; ++i) {
        const auto at = number_at<std::uint32_t>(message, 4 + 4 * i), right = positions[i];
        if (at != right && i > 0 && at <= number_at<std::uint32_t>(message, 4 * i))
            return "positions do not rise: number " + std::to_string(i) + " is " + std::to_string(at);
        if (at != right && at < x.size() && std::abs(x[at]) == std::abs(x[right]))
            return "a tie: position " + std::to_string(at) + " was chosen, where " + std::to_string(right) +
                   " has the same magnitude and is lower";
        if (at != right)
            return "position number " + std::to_string(i) + " is " + std::to_string(at) + ", expected " +
                   std::to_string(right);
        if (const auto value = number_at<float>(message, 4 + 4 * k + 4 * i); !(value == x[at]))
            return "value number " + std::to_string(i) + " is " + text(static_cast<double>(value)) + ", expected " +
                   text(static_cast<double>(x[at]));
    }
    return {};
}

/// Empty, or how two numbers differ by more than `relative` of the second.
inline std::string unlike(double got, double expected, double relative = 1e-12) {
    if (std::isfinite(got) && std::abs(got - expected) <= relative * std::abs(expected)) return {};
    return text(got) + ", expected " + text(expected);
}

/// Empty, or the first element in which two arrays are not equal: short, where Catch would print both of them.
inline std::string unlike(const std::vector<float>& got, const std::vector<float>& expected) {
    return difference(view(got), expected, std::vector<double>(expected.size()));
}

/// Of task 5: what one rank sends, a link, and a way to send gradients.
struct traffic {
    double messages = 0, bytes = 0;
};
struct link {
    double alpha = 0, bandwidth = 1;
};
struct way {
    traffic sends;
    double compute = 0;
};
template <>
struct members<traffic> {
    static auto of(auto& s) { return std::tie(s.messages, s.bytes); }
};
template <>
struct members<link> {
    static auto of(auto& s) { return std::tie(s.alpha, s.bandwidth); }
};
template <>
struct members<way> {
    static auto of(auto& s) { return std::tie(s.sends, s.compute); }
};

}  // namespace lab
